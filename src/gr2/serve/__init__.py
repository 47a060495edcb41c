"""A model folder → an HTTP service with a page.

| file | |
|---|---|
| config.py | what the service allows |
| engine.py shelf.py | queries → docids with their paths; titles, snippets and BM25 beside them |
| batching.py | many clients → batches for one worker thread, behind a bounded queue |
| service.py | a request → its answers |
| schema.py app.py guard.py metrics.py | HTTP: fields, routes, what stands before them, counts |
| page.html | the page, whole in one file |

FastAPI and uvicorn (the extra `serve`) are imported by `schema.py` and `app.py`, so by whoever serves.
"""

import socket
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from gr2.serve.config import ServiceConfig

__all__ = ["Opened", "ServiceConfig", "read_key", "serve"]


@dataclass(frozen=True)
class Opened:
    """Where a service listens, and what it can do."""

    url: str
    documents: int
    texts: bool
    bm25_note: str
    """Why there is no BM25; empty if there is."""
    exposed: bool
    """Other machines can reach it."""


def serve(
    folder: Path,
    config: ServiceConfig,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    opened: Callable[[Opened], None] = lambda opened: None,
) -> None:
    """Serve a model folder until the process is told to end; what is under way is then still answered.

    Args:
        folder: what `gr2 train` wrote.
        config: how much the service takes on.
        host: the address to listen at.
        port: 0 takes one that is free.
        opened: is told once clients can come.
    """
    for package in ("fastapi", "uvicorn"):
        if find_spec(package) is None:
            raise ValueError(f"serving needs {package}: pip install 'gr2[serve]'")
    import uvicorn

    from gr2.serve.app import build_app
    from gr2.serve.service import Service

    door = _door(host, port)  # first: a port that is taken is known before the model is read
    with door:
        service = Service(folder, config)
        settings = uvicorn.Config(
            build_app(service),
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="on",
            timeout_keep_alive=75,  # longer than a proxy before it keeps connections
            timeout_graceful_shutdown=int(config.timeout) + 1,
        )
        door.listen(2048)
        address = door.getsockname()
        name = f"[{address[0]}]" if ":" in address[0] else address[0]
        opened(
            Opened(
                url=f"http://{name}:{address[1]}/",
                documents=len(service.docids),
                texts=service.shelf.store is not None,
                bm25_note=service.shelf.no_bm25,
                exposed=not _is_loopback(address[0]),
            )
        )
        uvicorn.Server(settings).run(sockets=[door])


def read_key(path: Path | None) -> str:
    """The API key a file holds; without a file there is none."""
    if path is None:
        return ""
    key = path.read_text(encoding="utf-8").strip()
    if not key or not key.isascii() or not key.isprintable():
        raise ValueError(f"{path}: expected an API key of printable ASCII characters")
    return key


def _door(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise ValueError(f"expected a port from 0 to 65535, found {port}")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        door = socket.socket(family, kind, protocol)
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind(address)
    except OSError as error:
        raise ValueError(f"cannot listen at {host}:{port}: {error}") from error
    return door


def _is_loopback(address: str) -> bool:
    from ipaddress import ip_address

    return ip_address(address.partition("%")[0]).is_loopback
