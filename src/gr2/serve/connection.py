"""A connection that is closed if its client is too slow to send the headers or to read the answer.

uvicorn limits neither, so a thousand idle connections would use up the file descriptors. The time that a body
takes is limited by `guard.py`. If they are used up all the same, new clients wait, and the log says so once a
minute.
"""

import asyncio
import logging
from math import inf
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

USED_UP = "socket.accept() out of system resource"
"""What asyncio says if it cannot accept a client: in Python 3.11 two thousand times a second, each with a
traceback, so that nobody else is answered and the disk fills."""
SILENT = 60.0
"""Seconds for which it is not said again."""
logger = logging.getLogger(__name__)


def say_seldom(loop: asyncio.AbstractEventLoop) -> None:
    """Let the loop say once a minute that there is no file descriptor for a new client."""
    silent_until = -inf

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal silent_until
        if context["message"] != USED_UP:
            loop.default_exception_handler(context)
        elif loop.time() >= silent_until:
            silent_until = loop.time() + SILENT
            logger.warning("no file descriptor is left: new clients wait until others leave")

    loop.set_exception_handler(handle)


def limited_connection(seconds: float) -> type[H11Protocol]:
    """The class of connections with this limit, for uvicorn."""

    class LimitedConnection(H11Protocol):
        """HTTP/1.1 with limits."""

        _headers: asyncio.TimerHandle | None = None
        _reading: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._limit_headers()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._limit_headers()

        def _limit_headers(self) -> None:
            """Count from the connection or the first byte of a request until its headers are complete."""
            complete = self.conn.their_state is not h11.IDLE or self.timeout_keep_alive_task is not None
            if complete and self._headers is not None:
                self._headers.cancel()
                self._headers = None
            elif not complete and self._headers is None:
                self._headers = self.loop.call_later(seconds, self.transport.abort)

        def pause_writing(self) -> None:
            """The client does not read, and the buffer is full."""
            super().pause_writing()
            self._reading = self.loop.call_later(seconds, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            if self._reading is not None:
                self._reading.cancel()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            for timer in (self._headers, self._reading):
                if timer is not None:
                    timer.cancel()

    return LimitedConnection
