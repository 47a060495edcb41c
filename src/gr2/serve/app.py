"""The HTTP routes of a `Service`, and its error replies."""

import asyncio
import logging
from collections.abc import AsyncIterator, Set
from contextlib import asynccontextmanager
from importlib.metadata import version
from itertools import pairwise
from time import perf_counter
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Security
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from fastapi.security import APIKeyHeader
from starlette.exceptions import HTTPException

from gr2.serve.batching import AnswerTimeout, QueueFull
from gr2.serve.config import RESULTS, UnsupportedRequest
from gr2.serve.connection import say_seldom
from gr2.serve.guard import Guard
from gr2.serve.judging import Judging
from gr2.serve.judging_routes import add_judging
from gr2.serve.learning import Learning
from gr2.serve.metrics import CONTENT_TYPE
from gr2.serve.pages import content_policy, page
from gr2.serve.replies import steps
from gr2.serve.schema import (
    DocumentReply,
    ErrorReply,
    ExamplesReply,
    HealthReply,
    SearchBody,
    SearchReply,
    SimilarReply,
)
from gr2.serve.service import Extras, Service

NO_JSON = ("missing", "model_attributes_type", "list_type")
"""How a body that is missing or not marked as JSON is reported."""
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


def build_app(
    service: Service, *, api_key: str = "", hosts: Set[str] = frozenset(), judging: Judging | None = None
) -> FastAPI:
    """The application of a service, which starts and stops with it.

    Args:
        service: What answers.
        api_key: The key that clients must send; empty for none.
        hosts: The names by which clients may call the service; empty for any.
        judging: With it, results can be judged and learned from.
    """
    learning = None if judging is None else Learning(service, judging.store.folder)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        say_seldom(asyncio.get_running_loop())
        await service.start()
        yield
        if learning is not None:
            await learning.stop()
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
    _add_page(app, "/", "search.html")
    _add_search(app, service, secured)
    _add_lookups(app, service, secured, judging is not None)
    if judging is not None and learning is not None:
        _add_page(app, "/judge", "judge.html")
        add_judging(app, judging, learning, secured)
    return app


def _add_search(app: FastAPI, service: Service, secured: list[Any]) -> None:
    @app.post("/search", responses=_errors(400, 401, 408, 413, 422, 503), dependencies=secured)
    async def search(body: SearchBody) -> SearchReply:
        """Search with one or more queries; all answers are returned together, in order."""
        began = perf_counter()
        extras = Extras(bm25=body.bm25, dense=body.dense, hybrid=body.hybrid, explain=body.explain)
        answers = await service.search(body.query, body.k, body.filter, extras)
        return SearchReply(answers=answers, milliseconds=_since(began))

    @app.get("/examples", responses=_errors(401), dependencies=secured)
    async def examples() -> ExamplesReply:
        """Some queries to begin with, of those whose judgements the model learned from."""
        return ExamplesReply(queries=list(service.model.examples))


def _add_lookups(app: FastAPI, service: Service, secured: list[Any], judging: bool) -> None:
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

    # Not below /documents/: a docno may contain slashes, and so end in any word.
    @app.get("/similar/{docno:path}", responses=_errors(401, 404, 422, 503), dependencies=secured)
    async def similar(docno: str, k: Annotated[int, Query(ge=1, le=RESULTS)] = 10) -> SimilarReply:
        """The documents most like one, by the model's vectors, without the document itself."""
        began = perf_counter()
        if service.model.look_ahead is None:
            raise HTTPException(404, "the model has no vectors of documents")
        found = await service.similar(docno, k)
        if found is None:
            raise HTTPException(404, f"unknown document {docno!r}")
        return SimilarReply(docno=docno, results=found, milliseconds=_since(began))

    @app.get("/health")
    async def health() -> HealthReply:
        """What is served, and what it supports; needs no API key."""
        return service.health(judging=judging)

    @app.get("/metrics", response_class=PlainTextResponse, responses=_errors(401), dependencies=secured)
    async def metrics() -> PlainTextResponse:
        """Counts and durations in the text format of Prometheus."""
        return PlainTextResponse(service.metrics.text(), headers={"content-type": CONTENT_TYPE})


def _since(began: float) -> float:
    """Milliseconds since a moment."""
    return round(1000 * (perf_counter() - began), 3)


def _add_page(app: FastAPI, path: str, name: str) -> None:
    content = page(name)
    policy = {"content-security-policy": content_policy(content)}

    @app.get(path, response_class=HTMLResponse, include_in_schema=False)
    async def show() -> HTMLResponse:
        return HTMLResponse(content, headers=policy)


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
    if problem["loc"] == ("body",) and problem["type"] in NO_JSON:
        return "the body: expected JSON, with the header content-type: application/json"
    parts = [part for part, after in pairwise([*problem["loc"], None]) if part not in ("body", after)]
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    message = problem["msg"].removeprefix("Value error, ")
    shown = f"{place.lstrip('.') or 'the body'}: {message}"
    return shown.encode("utf-8", "replace").decode("utf-8")


def _errors(*codes: int) -> dict[int | str, dict[str, Any]]:
    return {code: ERRORS[code] for code in sorted({421, *codes})}
