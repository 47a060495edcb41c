"""The bodies of the routes of judging, validated field by field, and their replies."""

from typing import Annotated, Literal

from pydantic import FailFast, Field, StrictInt

from gr2.serve.schema import Query, RequestModel, SnippetPart, StrictModel, at_most

JUDGEMENTS = 100
"""Maximum judgements of a request."""
PAGE = 1_000
"""Maximum judgements of a page of a reply."""
QUERIES_SHOWN = 1_000
NAME_CHARACTERS = 100
KEY_CHARACTERS = 500
"""Maximum characters of a docno or a qid."""

JudgeName = Annotated[str, Field(min_length=1, max_length=NAME_CHARACTERS)]
Key = Annotated[str, Field(min_length=1, max_length=KEY_CHARACTERS)]


class JudgementBody(RequestModel):
    """One grade that a judge gives to a document for a query."""

    query: Query
    docno: Key
    grade: Annotated[StrictInt, Field(ge=0, le=100)]
    """0 not relevant, up to the highest grade of the folder."""
    judge: JudgeName
    qid: Annotated[str, Field(max_length=KEY_CHARACTERS)] = ""
    """By default that of a known query with the same text."""


JudgementBodies = Annotated[
    list[JudgementBody], FailFast(), Field(min_length=1, max_length=JUDGEMENTS), at_most(JUDGEMENTS)
]


class JudgeBody(RequestModel):
    """Who asks."""

    judge: JudgeName


class LearnBody(RequestModel):
    """No settings: `{}`. A body is required because a page of another site cannot send JSON unasked."""


class RollbackBody(RequestModel):
    """Which version of the model to go back to."""

    number: Annotated[StrictInt, Field(ge=0)] | None = None
    """As `GET /versions` lists it; by default the one before the present one."""


class JudgementReply(StrictModel):
    """A judgement that is on disk."""

    query: str
    docno: str
    grade: int
    judge: str
    qid: str
    time: str
    source: Literal["judged", "clicks"]


class SavedReply(StrictModel):
    """What was saved."""

    judgements: list[JudgementReply]


class JudgementsReply(StrictModel):
    """A page of the judgements that count now."""

    total: int
    """How many match; the page may have fewer."""
    judges: dict[str, int]
    """How many of all judgements are by whom."""
    judgements: list[JudgementReply]


class UndoReply(StrictModel):
    """What was undone."""

    undone: JudgementReply
    grade: int | None
    """The grade that this judge's document has now: an earlier one, or none."""


class QueryReply(StrictModel):
    """A query to judge."""

    query: str
    qid: str
    count: int
    """How often it was asked, according to the log."""
    judged: int
    """Documents that you have judged."""
    judged_by_all: int


class QueriesReply(StrictModel):
    """The queries to judge, and what judging means here."""

    grades: int
    """The highest grade."""
    words: list[str]
    """A word for each grade from 0 on; may be empty."""
    judge: str
    """The judge's name that the service proposes; may be empty."""
    judged: int
    """Judgements by you, of all queries."""
    total: int
    """How many queries there are; only the first 1,000 are listed."""
    queries: list[QueryReply]


class PooledReply(StrictModel):
    """A document to judge."""

    docno: str
    title: str
    url: str
    snippet: list[SnippetPart]
    grade: int | None
    """The grade that you have given; null if there is none."""


class PoolReply(StrictModel):
    """What the systems find for a query, mixed: the order does not say who found what."""

    query: str
    documents: list[PooledReply]


class LearnReply(StrictModel):
    """Where learning is."""

    state: Literal["idle", "running", "done", "failed"]
    line: str
    """What it does now; empty unless it runs."""
    result: str
    """What came out, or what went wrong, in a sentence."""


class VersionReply(StrictModel):
    """A model that is or was in use."""

    number: int
    """From 1; the present model has the highest."""
    time: str
    learned: str
    """What it learned."""
    queries: int
    """Judged queries that its gain was measured on; 0 if it was not made by learning."""
    gain: float | None
    """Its gain in nDCG@20 when it was learned."""
    current: bool


class VersionsReply(StrictModel):
    """The versions that are kept, oldest first."""

    versions: list[VersionReply]
