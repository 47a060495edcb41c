"""Checks before every route: host name, API key, and size and duration of the body. Counts requests.

Plain ASGI, because a body that is too large must be rejected before it is in memory.
"""

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable, MutableMapping, Set
from time import perf_counter
from typing import Any

from gr2.serve.bounds import VALUES, too_many_values
from gr2.serve.config import BODY_BYTES
from gr2.serve.hosts import name_of
from gr2.serve.metrics import Metrics

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

OPEN = ("/", "/judge", "/health", "/openapi.json")  # no key needed: they reveal no document
ROUTES = (
    *("/", "/search", "/examples", "/health", "/metrics", "/openapi.json"),
    *("/judge", "/judgements", "/judgements/undo", "/judging/queries", "/judging/pool"),
    *("/learn", "/rollback", "/versions"),
)
DRAIN = 16 * BODY_BYTES  # read of a body that is too large, so that its sender gets to the reply
HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]


class Rejected(Exception):
    """A request that does not reach a route."""

    def __init__(self, status: int, detail: str, *headers: tuple[bytes, bytes]) -> None:
        """Keep the reply."""
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, headers


class Guard:
    """ASGI middleware."""

    def __init__(self, app: App, *, api_key: str, hosts: Set[str], timeout: float, metrics: Metrics) -> None:
        """Wrap `app`; an empty `api_key` means that no key is required, empty `hosts` that any is allowed."""
        self.app, self.metrics, self.hosts = app, metrics, hosts
        self.key, self.timeout = api_key.encode(), timeout

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Pass a request on or reject it, and count it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = perf_counter(), 500

        async def counted_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        try:
            self._check_host(scope)
            self._check_key(scope)
            body = await self._body(scope, receive)
            if too_many_values(body):
                raise Rejected(422, f"the body: expected at most {VALUES:,} values")
            await self.app(scope, _replayed(body, receive), counted_send)
        except Rejected as rejected:
            await _reply(counted_send, rejected)
        except ConnectionError:
            status = 499  # the client has disconnected
        finally:
            route = _route(scope["path"])
            self.metrics.requests.labels(route, str(status)).inc()
            if route == "/search" and status == 200:
                self.metrics.search_seconds.observe(perf_counter() - began)

    def _check_host(self, scope: MutableMapping[str, Any]) -> None:
        if self.hosts and name_of(dict(scope["headers"]).get(b"host", b"")) not in self.hosts:
            raise Rejected(421, "the service is not called by this name; its operator can allow it")

    def _check_key(self, scope: MutableMapping[str, Any]) -> None:
        if not self.key or scope["path"] in OPEN:
            return
        headers = dict(scope["headers"])
        given = headers.get(b"x-api-key") or headers.get(b"authorization", b"").removeprefix(b"Bearer ")
        if not hmac.compare_digest(given.strip(), self.key):
            raise Rejected(
                401, "expected the API key in the header X-API-Key", (b"www-authenticate", b"Bearer")
            )

    async def _body(self, scope: MutableMapping[str, Any], receive: Receive) -> bytes:
        """The whole body; one that is too large is read up to `DRAIN` bytes and discarded."""
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
            raise Rejected(408, f"the request was not complete within {self.timeout:g} s") from None
        if large:
            raise Rejected(413, f"the request is larger than {BODY_BYTES:,} bytes")
        return b"".join(parts)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """A `receive` that first returns the body, already read, as one message."""
    sent = False

    async def replay() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _reply(send: Send, rejected: Rejected) -> None:
    body = json.dumps({"detail": rejected.detail}).encode()
    length = (b"content-length", str(len(body)).encode())
    headers = [(b"content-type", b"application/json"), length, *rejected.headers]
    await send({"type": "http.response.start", "status": rejected.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _route(path: str) -> str:
    """The route of a path; unknown paths share one label, so that clients cannot create new ones."""
    for folder in ("/documents/", "/similar/"):
        if path.startswith(folder):
            return f"{folder}{{docno}}"
    return path if path in ROUTES else "other"
