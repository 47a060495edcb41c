"""What stands before every route: the key, the size and time of a request's body, and counting.

Plain ASGI, because a body that is too large must be refused before anything reads it into memory. This file
knows no search.
"""

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable, MutableMapping
from time import perf_counter
from typing import Any

from gr2.serve.config import BODY_BYTES
from gr2.serve.metrics import Metrics

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

OPEN = ("/", "/health", "/openapi.json")  # needs no key: nothing of the collection is there
ROUTES = ("/", "/search", "/health", "/metrics", "/openapi.json")
DRAIN = 16 * BODY_BYTES  # of a body that is too large, so that its sender reads the reply
HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]


class Refused(Exception):
    """A request that no route sees."""

    def __init__(self, status: int, detail: str, *headers: tuple[bytes, bytes]) -> None:
        """Remember what to reply."""
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, headers


class Guard:
    """An ASGI application around another one."""

    def __init__(self, app: App, *, api_key: str, timeout: float, metrics: Metrics) -> None:
        """Stand before `app`."""
        self.app, self.metrics = app, metrics
        self.key, self.timeout = api_key.encode(), timeout

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Let a request through or refuse it, and count it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = perf_counter(), 500

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        try:
            self._check_key(scope)
            body = await self._body(scope, receive)
            await self.app(scope, _replayed(body, receive), noting)
        except Refused as refused:
            await _reply(noting, refused)
        except ConnectionError:
            status = 499  # the client went away; there is nobody to reply to
        finally:
            route = _route(scope["path"])
            self.metrics.requests.add(route, str(status))
            if route == "/search" and status == 200:
                self.metrics.seconds.note(perf_counter() - began)

    def _check_key(self, scope: MutableMapping[str, Any]) -> None:
        if not self.key or scope["path"] in OPEN:
            return
        headers = dict(scope["headers"])
        given = headers.get(b"x-api-key") or headers.get(b"authorization", b"").removeprefix(b"Bearer ")
        if not hmac.compare_digest(given.strip(), self.key):
            raise Refused(
                401, "expected the API key in the header X-API-Key", (b"www-authenticate", b"Bearer")
            )

    async def _body(self, scope: MutableMapping[str, Any], receive: Receive) -> bytes:
        """The whole body; one that is too large is read to its end, within bounds, and thrown away."""
        stated = dict(scope["headers"]).get(b"content-length", b"0")
        large = stated.isdigit() and int(stated) > BODY_BYTES
        parts: list[bytes] = []
        size, more = 0, True
        try:
            async with asyncio.timeout(self.timeout):
                while more and size < DRAIN:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ConnectionError
                    part = message.get("body", b"")
                    size, more = size + len(part), message.get("more_body", False)
                    if large or size > BODY_BYTES:
                        large = True
                        parts.clear()
                    else:
                        parts.append(part)
        except TimeoutError:
            raise Refused(408, f"the request was not complete within {self.timeout:g} s") from None
        if large:
            raise Refused(413, f"the request is larger than {BODY_BYTES:,} bytes")
        return b"".join(parts)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body as one message; after it, whatever comes."""
    told = False

    async def again() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def _reply(send: Send, refused: Refused) -> None:
    body = json.dumps({"detail": refused.detail}).encode()
    length = (b"content-length", str(len(body)).encode())
    headers = [(b"content-type", b"application/json"), length, *refused.headers]
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _route(path: str) -> str:
    """The route a path belongs to, so that clients cannot make labels without end."""
    if path.startswith("/documents/"):
        return "/documents/{docno}"
    return path if path in ROUTES else "other"
