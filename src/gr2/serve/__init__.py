"""A model folder → an HTTP service with a search page.

| file | |
|---|---|
| config.py judging_config.py | settings and limits |
| docid_path.py document_lookup.py | a docid's path through the trie; titles, snippets, filters and BM25 |
| batching.py | requests of many clients → batches for one worker thread, behind a bounded queue |
| served_model.py service.py | a model that answers, replaced as a whole; a request → its answers |
| schema.py app.py metrics.py | HTTP: bodies, routes, Prometheus metrics |
| guard.py hosts.py bounds.py connection.py | checks before every route; limits of slow clients |
| judging.py learning.py | what there is to judge; learning from it, and going back |
| judging_schema.py judging_routes.py | HTTP: their bodies and routes |
| pages.py page/ | the search page and the page of judging; each is sent as one file |

Needs the extra `serve` (FastAPI, uvicorn, prometheus_client), which is imported only when serving.
"""

import socket
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from gr2.extras import extra
from gr2.serve.config import ServiceConfig
from gr2.serve.judging_config import JudgingConfig

__all__ = ["JudgingConfig", "ServiceConfig", "ServiceInfo", "read_key", "serve"]


@dataclass(frozen=True)
class ServiceInfo:
    """The address of a running service, and what it supports."""

    url: str
    documents: int
    texts: bool
    """The model folder contains the documents."""
    bm25_note: str
    """Why BM25 is unavailable; empty if it is available."""
    exposed: bool
    """Other machines can reach the service."""


def serve(
    folder: Path,
    config: ServiceConfig,
    judging: JudgingConfig | None = None,
    *,
    api_key: str = "",
    host: str = "127.0.0.1",
    port: int = 8000,
    on_start: Callable[[ServiceInfo], None] = lambda info: None,
) -> None:
    """Serve a model folder until the process gets SIGINT or SIGTERM; accepted requests are still answered.

    Args:
        folder: A model folder, as `gr2 train` writes it.
        config: The settings of the service.
        judging: What is judged, if anything; needs a key if other machines can connect.
        api_key: The key that clients must send; empty: none.
        host: The address to listen on.
        port: The port; 0 picks a free one.
        on_start: Called once clients can connect.
    """
    with extra("serve", "serving needs FastAPI and uvicorn"):
        import uvicorn

        from gr2.serve.app import build_app
        from gr2.serve.connection import limited_connection
    from gr2.serve.hosts import answering_to
    from gr2.serve.judging import Judging
    from gr2.serve.service import Service

    listener = _socket(host, port)  # before the model is loaded, so that a port in use is reported at once
    with listener:
        address = listener.getsockname()
        exposed = not _is_loopback(address[0])
        if judging is not None and exposed and not api_key:
            raise ValueError(f"judging at {host} needs --api-key-file, or anyone could change the model")
        service = Service(folder, config)
        hosts = answering_to(config.allowed_hosts, address[0], loopback=not exposed)
        settings = uvicorn.Config(
            build_app(
                service,
                api_key=api_key,
                hosts=hosts,
                judging=None if judging is None else Judging(service, judging),
            ),
            http=limited_connection(config.timeout),
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="on",
            timeout_keep_alive=75,  # longer than a reverse proxy keeps its connections
            timeout_graceful_shutdown=int(config.timeout) + 1,
        )
        listener.listen(2048)
        name = f"[{address[0]}]" if ":" in address[0] else address[0]
        on_start(
            ServiceInfo(
                url=f"http://{name}:{address[1]}/",
                documents=len(service.model.docids),
                texts=service.documents.store is not None,
                bm25_note=service.documents.bm25_note,
                exposed=exposed,
            )
        )
        uvicorn.Server(settings).run(sockets=[listener])


def read_key(path: Path | None) -> str:
    """The API key in a file; empty without a file."""
    if path is None:
        return ""
    key = path.read_text(encoding="utf-8").strip()
    if not key or not key.isascii() or not key.isprintable():
        raise ValueError(f"{path}: expected an API key of printable ASCII characters")
    return key


def _socket(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise ValueError(f"expected a port from 0 to 65535, found {port}")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        raise ValueError(f"cannot listen on {host}:{port}: {error}") from error
    return listener


def _is_loopback(address: str) -> bool:
    return ip_address(address.partition("%")[0]).is_loopback
