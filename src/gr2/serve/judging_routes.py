"""The HTTP routes of judging and learning."""

from dataclasses import asdict
from typing import Annotated, Any

import fastapi
from fastapi import FastAPI
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from gr2.data.formats.lines import FormatError
from gr2.judge.judgements import Judgement, Source
from gr2.judge.store import InvalidJudgement
from gr2.serve.judging import Judging, PooledDocument, QueryProgress
from gr2.serve.judging_schema import (
    NAME_CHARACTERS,
    PAGE,
    QUERIES_SHOWN,
    JudgeBody,
    JudgementBodies,
    JudgementReply,
    JudgementsReply,
    LearnBody,
    LearnReply,
    PooledReply,
    PoolReply,
    QueriesReply,
    QueryReply,
    RollbackBody,
    SavedReply,
    UndoReply,
    VersionsReply,
)
from gr2.serve.learning import Learning, ModelIsChanging
from gr2.serve.schema import ErrorReply, Query, SnippetPart

ERRORS: dict[int | str, dict[str, Any]] = {
    401: {"model": ErrorReply, "description": "The API key is missing or wrong."},
    409: {"model": ErrorReply, "description": "Not possible now."},
    421: {"model": ErrorReply, "description": "The service is not called by this name."},
    422: {"model": ErrorReply, "description": "A field is invalid; nothing was written."},
    503: {"model": ErrorReply, "description": "The service is overloaded."},
}
Asker = Annotated[str, fastapi.Query(max_length=NAME_CHARACTERS, alias="judge")]
"""The judge who asks; by default nobody."""


def add_judging(app: FastAPI, judging: Judging, learning: Learning, secured: list[Any]) -> None:
    """Add the routes of judging and of learning to an application."""
    _add_judgements(app, judging, secured)
    _add_queries(app, judging, secured)
    _add_learning(app, learning, secured)

    @app.exception_handler(ModelIsChanging)
    async def changing(request: fastapi.Request, error: ModelIsChanging) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 409)


def _add_judgements(app: FastAPI, judging: Judging, secured: list[Any]) -> None:
    store = judging.store

    @app.post("/judgements", status_code=201, responses=ERRORS, dependencies=secured)
    def add(bodies: JudgementBodies) -> SavedReply:
        """Keep judgements, all or none; the reply comes when they are on disk."""
        try:
            kept = store.append(Judgement(**body.model_dump()) for body in bodies)
        except InvalidJudgement as error:
            place = f"[{error.index}]: " if len(bodies) > 1 else ""
            raise HTTPException(422, f"{place}{error}") from None
        return SavedReply(judgements=[_described(each) for each in kept])

    @app.get("/judgements", responses=ERRORS, dependencies=secured)
    def judgements(
        query: str | None = None,
        judge: str | None = None,
        source: Source | None = None,
        offset: Annotated[int, fastapi.Query(ge=0, le=1_000_000_000)] = 0,
        limit: Annotated[int, fastapi.Query(ge=0, le=PAGE)] = 100,
    ) -> JudgementsReply:
        """The judgements that count now, in the order in which the documents were first judged."""
        current = judging.current()
        judges: dict[str, int] = {}
        for each in current:
            judges[each.judge] = judges.get(each.judge, 0) + 1
        found = [
            each
            for each in current
            if query in (None, each.query) and judge in (None, each.judge) and source in (None, each.source)
        ]
        page = [_described(each) for each in found[offset : offset + limit]]
        return JudgementsReply(total=len(found), judges=judges, judgements=page)

    @app.post("/judgements/undo", responses=ERRORS, dependencies=secured)
    def undo(body: JudgeBody) -> UndoReply:
        """Take back the latest judgement of a judge; an earlier grade of the same document counts again."""
        try:
            undone = store.undo(body.judge)
        except FormatError:
            raise
        except ValueError as error:
            raise HTTPException(409, str(error)) from None
        earlier = store.current().get(undone.key)
        return UndoReply(undone=_described(undone), grade=None if earlier is None else earlier.grade)


def _add_queries(app: FastAPI, judging: Judging, secured: list[Any]) -> None:
    @app.get("/judging/queries", responses=ERRORS, dependencies=secured)
    def queries(judge: Asker = "") -> QueriesReply:
        """The queries to judge, with progress."""
        found, config = judging.progress(judge), judging.store.config
        return QueriesReply(
            grades=config.grades,
            words=list(config.words),
            judge=judging.config.judge_as,
            judged=sum(each.own for each in found),
            total=len(found),
            queries=[_query(each) for each in found[:QUERIES_SHOWN]],
        )

    @app.get("/judging/pool", responses=ERRORS, dependencies=secured)
    async def pool(query: Query, judge: Asker = "") -> PoolReply:
        """What the systems find for a query, mixed: the order does not say who found what."""
        found = await judging.pool(query, judge)
        return PoolReply(query=query, documents=[_pooled(each) for each in found])


def _add_learning(app: FastAPI, learning: Learning, secured: list[Any]) -> None:
    @app.post("/learn", status_code=202, responses=ERRORS, dependencies=secured)
    async def learn(body: LearnBody) -> LearnReply:
        """Learn from all judgements, in the background; a model that is better replaces the present one."""
        await learning.start()
        return learning.reply

    @app.get("/learn", responses=ERRORS, dependencies=secured)
    async def progress() -> LearnReply:
        """Where learning is, and what came out."""
        return learning.reply

    @app.post("/rollback", responses=ERRORS, dependencies=secured)
    async def rollback(body: RollbackBody) -> VersionsReply:
        """Go back to an earlier version of the model."""
        try:
            await learning.rollback(body.number)
        except ValueError as error:
            raise HTTPException(409, str(error)) from None
        return VersionsReply(versions=await learning.versions())

    @app.get("/versions", responses=ERRORS, dependencies=secured)
    async def versions() -> VersionsReply:
        """The versions of the model, oldest first; the last one is in use."""
        return VersionsReply(versions=await learning.versions())


def _described(judgement: Judgement) -> JudgementReply:
    return JudgementReply(**asdict(judgement))


def _query(progress: QueryProgress) -> QueryReply:
    query = progress.query
    return QueryReply(
        query=query.text, qid=query.qid, count=query.count, judged=progress.own, judged_by_all=progress.all
    )


def _pooled(document: PooledDocument) -> PooledReply:
    parts = [SnippetPart(text=text, marked=marked) for text, marked in document.text.snippet or ()]
    text = document.text
    return PooledReply(
        docno=document.docno, title=text.title, url=text.url, snippet=parts, grade=document.grade
    )
