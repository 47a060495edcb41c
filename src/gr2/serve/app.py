"""The HTTP routes of a `Service`, and its error replies."""

import base64
import hashlib
import logging
import re
from collections.abc import AsyncIterator, Set
from contextlib import asynccontextmanager
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

from fastapi import FastAPI, Request, Security
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from fastapi.security import APIKeyHeader
from starlette.exceptions import HTTPException

from gr2.serve.batching import AnswerTimeout, QueueFull
from gr2.serve.config import UnsupportedRequest
from gr2.serve.guard import Guard
from gr2.serve.metrics import CONTENT_TYPE
from gr2.serve.schema import DocumentReply, ErrorReply, HealthReply, SearchBody, SearchReply
from gr2.serve.service import Service, steps

PAGE = Path(__file__).with_name("page.html")
ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorReply, "description": "The body is not valid JSON."},
    401: {"model": ErrorReply, "description": "The API key is missing or wrong."},
    404: {"model": ErrorReply, "description": "The document is unknown."},
    408: {"model": ErrorReply, "description": "The request was not complete in time."},
    413: {"model": ErrorReply, "description": "The request is too large."},
    421: {"model": ErrorReply, "description": "The service is not called by this name."},
    422: {"model": ErrorReply, "description": "A field is invalid."},
    503: {
        "model": ErrorReply,
        "description": "The service is overloaded; retry after `Retry-After` seconds.",
        "headers": {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds."}},
    },
}
logger = logging.getLogger(__name__)


def build_app(service: Service, *, api_key: str = "", hosts: Set[str] = frozenset()) -> FastAPI:
    """The application of a service, which starts and stops with it.

    Args:
        service: What answers.
        api_key: The key that clients must send; empty for none.
        hosts: The names by which clients may call the service; empty for any.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.stop()

    app = FastAPI(
        title="GR²",
        version=version("gr2"),
        description="Generative retrieval: the model reads a query and generates docids, best first.",
        lifespan=lifespan,
        docs_url=None,  # both pages load scripts from other hosts
        redoc_url=None,
    )
    timeout = service.config.timeout
    app.add_middleware(Guard, api_key=api_key, hosts=hosts, timeout=timeout, metrics=service.metrics)
    # `Guard` checks the key; this only describes it in the OpenAPI schema.
    secured = [Security(APIKeyHeader(name="X-API-Key", auto_error=False))] if api_key else []
    _handle_errors(app)
    _add_page(app)
    _add_search(app, service, secured)
    _add_lookups(app, service, secured)
    return app


def _add_search(app: FastAPI, service: Service, secured: list[Any]) -> None:
    @app.post("/search", responses=_errors(400, 401, 408, 413, 422, 503), dependencies=secured)
    async def search(body: SearchBody) -> SearchReply:
        """Search with one or more queries; all answers are returned together, in order."""
        began = perf_counter()
        answers = await service.search(body.query, body.k, body.filter, body.bm25)
        return SearchReply(answers=answers, milliseconds=round(1000 * (perf_counter() - began), 3))


def _add_lookups(app: FastAPI, service: Service, secured: list[Any]) -> None:
    @app.get("/documents/{docno:path}", responses=_errors(401, 404, 422), dependencies=secured)
    async def document(docno: str) -> DocumentReply:
        """One document by its docno."""
        if service.documents.store is None:
            raise HTTPException(404, "the model folder contains no documents, only docids")
        found = await service.document(docno)
        if found is None:
            raise HTTPException(404, f"unknown document {docno!r}")
        (docno, title, text, url), docid, path = found
        return DocumentReply(docno=docno, title=title, text=text, url=url, docid=docid, path=steps(path))

    @app.get("/health")
    async def health() -> HealthReply:
        """What is served, and what it supports; needs no API key."""
        return service.health()

    @app.get("/metrics", response_class=PlainTextResponse, responses=_errors(401), dependencies=secured)
    async def metrics() -> PlainTextResponse:
        """Counts and durations in the text format of Prometheus."""
        return PlainTextResponse(service.metrics.text(), headers={"content-type": CONTENT_TYPE})


def _add_page(app: FastAPI) -> None:
    content = PAGE.read_text(encoding="utf-8")
    policy = {"content-security-policy": _policy(content)}

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def page() -> HTMLResponse:
        return HTMLResponse(content, headers=policy)


def _policy(page: str) -> str:
    """The Content-Security-Policy: only the page's own style and script, and requests to its own server."""

    def allowed(tag: str) -> str:
        blocks = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digests = [base64.b64encode(hashlib.sha256(block.encode()).digest()).decode() for block in blocks]
        return " ".join(f"'sha256-{digest}'" for digest in digests)

    parts = ["default-src 'none'", f"style-src {allowed('style')}", f"script-src {allowed('script')}"]
    parts += ["connect-src 'self'", "img-src data:", "base-uri 'none'", "form-action 'self'"]
    return "; ".join([*parts, "frame-ancestors 'none'"])


def _handle_errors(app: FastAPI) -> None:
    """Every error is `{"detail": a sentence}`; the client's input is not echoed."""

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        problems = error.errors()
        more = f"; and {len(problems) - 3} more" if len(problems) > 3 else ""
        return JSONResponse({"detail": "; ".join(map(_sentence, problems[:3])) + more}, 422)

    @app.exception_handler(UnsupportedRequest)
    async def unsupported(request: Request, error: UnsupportedRequest) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 422)

    @app.exception_handler(QueueFull)
    async def full(request: Request, error: QueueFull) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 503, {"retry-after": str(error.seconds)})

    @app.exception_handler(AnswerTimeout)
    async def late(request: Request, error: AnswerTimeout) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 503, {"retry-after": "1"})

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> JSONResponse:
        logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return JSONResponse({"detail": "internal error; see the log of the service"}, 500)


def _sentence(problem: Any) -> str:
    """One error of a request: the field, and what was expected."""
    if problem["type"] == "json_invalid":
        return f"the body is not valid JSON: {problem['ctx']['error']}"
    parts = [part for part, after in pairwise([*problem["loc"], None]) if part not in ("body", after)]
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    message = problem["msg"].removeprefix("Value error, ")
    shown = f"{place.lstrip('.') or 'the body'}: {message}"
    return shown.encode("utf-8", "replace").decode("utf-8")


def _errors(*codes: int) -> dict[int | str, dict[str, Any]]:
    return {code: ERRORS[code] for code in sorted({421, *codes})}
