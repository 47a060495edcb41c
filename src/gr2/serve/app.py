"""The routes: HTTP ↔ `Service`. This file knows no model."""

import base64
import hashlib
import logging
import re
from collections.abc import AsyncIterator
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

from gr2.serve.batching import Full, Late
from gr2.serve.config import Impossible
from gr2.serve.guard import Guard
from gr2.serve.metrics import CONTENT_TYPE
from gr2.serve.schema import DocumentReply, HealthReply, Problem, SearchReply, SearchRequest
from gr2.serve.service import Service, steps

PAGE = Path(__file__).with_name("page.html")
PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "The body cannot be read."},
    401: {"model": Problem, "description": "The API key is missing or wrong."},
    404: {"model": Problem, "description": "There is no such document."},
    408: {"model": Problem, "description": "The request did not come whole in time."},
    413: {"model": Problem, "description": "The request is too large."},
    422: {"model": Problem, "description": "A field is not as expected."},
    503: {
        "model": Problem,
        "description": "Too much to do. Come again after `Retry-After` seconds.",
        "headers": {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds."}},
    },
}
logger = logging.getLogger(__name__)


def build_app(service: Service) -> FastAPI:
    """The application around a service; it starts and stops with it."""

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.stop()

    app = FastAPI(
        title="GR²",
        version=version("gr2"),
        description="Generative retrieval: a query in, the identifiers of documents out, best first.",
        lifespan=life,
        docs_url=None,  # both pages would load scripts from elsewhere
        redoc_url=None,
    )
    config = service.config
    app.add_middleware(Guard, api_key=config.api_key, timeout=config.timeout, metrics=service.metrics)
    _handle_problems(app)
    _add_page(app)
    _add_search(app, service)
    _add_lookups(app, service)
    return app


def _add_search(app: FastAPI, service: Service) -> None:
    @app.post("/search", responses=_problems(400, 401, 408, 413, 422, 503), dependencies=_locked(service))
    async def search(request: SearchRequest) -> SearchReply:
        """Search with one query or several; all answers come together, in order."""
        began = perf_counter()
        answers = await service.search(request.query, request.k, request.filter, request.bm25)
        return SearchReply(answers=answers, milliseconds=round(1000 * (perf_counter() - began), 3))


def _add_lookups(app: FastAPI, service: Service) -> None:
    @app.get("/documents/{docno:path}", responses=_problems(401, 404, 422), dependencies=_locked(service))
    async def document(docno: str) -> DocumentReply:
        """One document by its docno."""
        if service.shelf.store is None:
            raise HTTPException(404, "the model folder holds no documents, only their docids")
        found = await service.document(docno)
        if found is None:
            raise HTTPException(404, f"there is no document {docno!r}")
        (docno, title, text, url), docid, path = found
        return DocumentReply(docno=docno, title=title, text=text, url=url, docid=docid, path=steps(path))

    @app.get("/health")
    async def health() -> HealthReply:
        """What is served; needs no key."""
        return service.health()

    @app.get(
        "/metrics", response_class=PlainTextResponse, responses=_problems(401), dependencies=_locked(service)
    )
    async def metrics() -> PlainTextResponse:
        """Counts and durations, as Prometheus reads them."""
        return PlainTextResponse(service.metrics.text(), headers={"content-type": CONTENT_TYPE})


def _add_page(app: FastAPI) -> None:
    content = PAGE.read_text(encoding="utf-8")
    policy = {"content-security-policy": _policy(content)}

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def page() -> HTMLResponse:
        return HTMLResponse(content, headers=policy)


def _policy(page: str) -> str:
    """What the page may do: its own style and script, and requests to where it came from; nothing else."""

    def allowed(tag: str) -> str:
        blocks = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digests = [base64.b64encode(hashlib.sha256(block.encode()).digest()).decode() for block in blocks]
        return " ".join(f"'sha256-{digest}'" for digest in digests)

    parts = ["default-src 'none'", f"style-src {allowed('style')}", f"script-src {allowed('script')}"]
    parts += ["connect-src 'self'", "img-src data:", "base-uri 'none'", "form-action 'self'"]
    return "; ".join([*parts, "frame-ancestors 'none'"])


def _handle_problems(app: FastAPI) -> None:
    """Every problem is `{"detail": a sentence}`; what the client sent is not sent back."""

    @app.exception_handler(RequestValidationError)
    async def not_as_expected(request: Request, error: RequestValidationError) -> JSONResponse:
        problems = [_sentence(one) for one in error.errors()]
        more = f"; and {len(problems) - 3} more" if len(problems) > 3 else ""
        return JSONResponse({"detail": "; ".join(problems[:3]) + more}, 422)

    @app.exception_handler(Impossible)
    async def not_possible(request: Request, error: Impossible) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 422)

    @app.exception_handler(Full)
    async def full(request: Request, error: Full) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 503, {"retry-after": str(error.seconds)})

    @app.exception_handler(Late)
    async def late(request: Request, error: Late) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 503, {"retry-after": "1"})

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> JSONResponse:
        logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return JSONResponse({"detail": "the service failed on this request; its log says why"}, 500)


def _sentence(problem: Any) -> str:
    """One problem of a request: the field, and what was expected."""
    if problem["type"] == "json_invalid":
        return f"the body is not JSON: {problem['ctx']['error']}"
    parts = [part for part, after in pairwise([*problem["loc"], None]) if part not in ("body", after)]
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    message = problem["msg"].removeprefix("Value error, ")
    shown = f"{place.lstrip('.') or 'the body'}: {message}"
    return shown.encode("utf-8", "replace").decode("utf-8")


def _problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    return {code: PROBLEMS[code] for code in codes}


def _locked(service: Service) -> list[Any]:
    """The key as OpenAPI describes it; `Guard` is what asks for it."""
    return [Security(APIKeyHeader(name="X-API-Key", auto_error=False))] if service.config.api_key else []
