"""The bodies of requests, validated field by field, and of replies.

The number of items is checked before the items, and a list is left at its first invalid item: a request that
is refused must cost next to nothing.
"""

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    FailFast,
    Field,
    StrictBool,
    Tag,
    WithJsonSchema,
    model_validator,
)

from gr2.serve.config import DOCNOS, QUERIES, QUERY_CHARACTERS, RESULTS

FIELDS = 20
"""Maximum fields of an object in a request."""
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")  # and lone surrogates
_CHARACTER = r"[^\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]"
_QUERY = {
    "type": "string",
    "minLength": 1,
    "maxLength": QUERY_CHARACTERS,
    "pattern": rf"^{_CHARACTER}*[^\s\u0000-\u001f\u007f\u0085]{_CHARACTER}*$",
}


def _checked(text: str) -> str:
    found = CONTROL.search(text)
    if found:
        raise ValueError(f"contains an invalid character, U+{ord(found[0]):04X} at position {found.start()}")
    if not text.strip():
        raise ValueError("is empty")
    if len(text) > QUERY_CHARACTERS:
        raise ValueError(f"has {len(text):,} characters, the maximum is {QUERY_CHARACTERS:,}")
    return text


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def at_most(count: int) -> BeforeValidator:
    """Check the length of a list before its items."""

    def check(value: Any) -> Any:
        if isinstance(value, list) and len(value) > count:
            raise ValueError(f"expected at most {count:,} items, found {len(value):,}")
        return value

    return BeforeValidator(check)


def _not_coerced(value: Any) -> Any:
    if isinstance(value, bool | str):
        raise ValueError("expected an integer")
    return value


Query = Annotated[str, AfterValidator(_checked)]
Queries = Annotated[
    list[Query],
    FailFast(),
    Field(min_length=1, max_length=QUERIES),
    at_most(QUERIES),
    BeforeValidator(_as_list),
    WithJsonSchema(
        {"anyOf": [_QUERY, {"type": "array", "items": _QUERY, "minItems": 1, "maxItems": QUERIES}]}
    ),
]


class StrictModel(BaseModel):
    """The base of all bodies: unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class RequestModel(StrictModel):
    """The base of all objects in a request: many unknown fields are one error."""

    @model_validator(mode="before")
    @classmethod
    def _few_fields(cls, value: Any) -> Any:
        if isinstance(value, dict) and len(value) > FIELDS:
            raise ValueError(f"expected at most {FIELDS} fields, found {len(value):,}")
        return value


class DocnoFilter(RequestModel):
    """Only these documents; unknown docnos are ignored."""

    docnos: Annotated[list[str], FailFast(), Field(min_length=1, max_length=DOCNOS), at_most(DOCNOS)]


class FieldFilter(RequestModel):
    """Only documents whose field contains a text, ignoring the case of A-Z."""

    field: Literal["docno", "title", "url"]
    contains: str = Field(min_length=1, max_length=200)


def _filter_kind(value: Any) -> str | None:
    if isinstance(value, DocnoFilter | FieldFilter):
        return "docnos" if isinstance(value, DocnoFilter) else "field"
    return ("docnos" if "docnos" in value else "field") if isinstance(value, dict) else None


Filter = Annotated[
    Annotated[DocnoFilter, Tag("docnos")] | Annotated[FieldFilter, Tag("field")],
    Discriminator(
        _filter_kind,
        custom_error_type="filter",
        custom_error_message='expected {"docnos": [...]} or {"field": ..., "contains": ...}',
    ),
]


class SearchBody(RequestModel):
    """One or more queries, with options."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"query": "read a csv file"},
                {"query": ["read a csv file", "sort a list"], "k": 5, "bm25": True},
                {"query": "read a csv file", "hybrid": True, "explain": True},
                {"query": "sour fruit", "filter": {"docnos": ["d1", "d7"]}},
                {"query": "sour fruit", "filter": {"field": "title", "contains": "lemon"}},
            ]
        }
    )
    query: Queries
    """A text, or a list of texts."""
    k: Annotated[int, BeforeValidator(_not_coerced)] = Field(10, ge=1, le=RESULTS)
    """The number of documents per query."""
    filter: Filter | None = None
    """The documents to search; by default all."""
    bm25: StrictBool = False
    """Also return BM25's ranking, if there is an index."""
    dense: StrictBool = False
    """Also return the ranking by the model's vectors alone, if it has look-ahead."""
    hybrid: StrictBool = False
    """Also return the ranking by words and vectors with nothing learned, if the model has look-ahead."""
    explain: StrictBool = False
    """Also return what each word of the query contributed to each result."""


class SnippetPart(StrictModel):
    """A part of a snippet."""

    text: str
    marked: bool
    """Whether it is a word of the query."""


class StepReply(StrictModel):
    """One token of a docid, and the number of tokens that the trie allowed at this position."""

    text: str
    choices: int


class RankedDocument(StrictModel):
    """A document in a ranking; title, URL and snippet are empty if the model folder has no documents."""

    rank: int
    docno: str
    score: float
    title: str = ""
    url: str = ""
    snippet: list[SnippetPart] = []


class Hit(RankedDocument):
    """A document found by the model, with its docid and the docid's path. The score is log P(docid)."""

    docid: str
    path: list[StepReply]
    views: dict[str, float] = {}
    """What each view of look-ahead (words, vectors, prior, learned, memory, decoder) contributed to the score
    before it is normalised; empty without look-ahead."""
    words: dict[str, float] = {}
    """What each matching word of the query contributed to the view `words`, highest first; only if it was
    requested."""


class AnswerReply(StrictModel):
    """The answer to one query."""

    query: str
    results: list[Hit]
    proven: bool
    """True: no other allowed document has a higher score. False: unknown."""
    cut: bool
    """The query was too long for the model, which read only the beginning."""
    allowed: int | None = None
    """The number of documents that match the filter; null without a filter."""
    bm25: list[RankedDocument] | None = None
    """BM25's ranking; null if it was not requested or there is no index."""
    dense: list[RankedDocument] | None = None
    """The ranking by vectors alone; null if it was not requested or there are none."""
    hybrid: list[RankedDocument] | None = None
    """The ranking by words and vectors with nothing learned; null if it was not requested or is not there."""


class SearchReply(StrictModel):
    """One answer per query, in order."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "answers": [
                        {
                            "query": "read a csv file",
                            "results": [
                                {
                                    "rank": 1,
                                    "docno": "csv",
                                    "score": -0.41,
                                    "title": "csv",
                                    "url": "",
                                    "snippet": [
                                        {"text": "CSV", "marked": True},
                                        {"text": " parsing and writing.", "marked": False},
                                    ],
                                    "docid": "csv module",
                                    "path": [
                                        {"text": " csv", "choices": 812},
                                        {"text": " module", "choices": 3},
                                    ],
                                }
                            ],
                            "proven": True,
                            "cut": False,
                            "allowed": None,
                            "bm25": None,
                            "dense": None,
                            "hybrid": None,
                        }
                    ],
                    "milliseconds": 21.4,
                }
            ]
        }
    )
    answers: list[AnswerReply]
    milliseconds: float
    """Time on the server, including the queue and everything that was requested besides."""


class DocumentReply(StrictModel):
    """A document of the collection; docid and path are empty if the model does not cover it."""

    docno: str
    title: str
    text: str
    url: str
    docid: str
    path: list[StepReply]


class SimilarReply(StrictModel):
    """The documents nearest to one, best first; their scores are cosines of vectors."""

    docno: str
    results: list[RankedDocument]
    milliseconds: float
    """Time on the server."""


class ExamplesReply(StrictModel):
    """Some queries with known answers, to begin with; empty if the model knows none."""

    queries: list[str]


class HealthReply(StrictModel):
    """What is served, and what it supports."""

    status: Literal["ok"]
    model: str
    collection: str
    gr2: str
    documents: int
    """The number of documents that the model covers."""
    texts: bool
    """Whether the model folder contains the documents; without them, results are docids and scores only."""
    bm25: bool
    bm25_note: str
    """Why BM25 is unavailable; empty if it is available."""
    dense: bool
    """Whether the model has vectors of documents, for `dense` and for `/similar`."""
    hybrid: bool
    """Whether the model has words and vectors."""
    judging: bool
    """Whether results can be judged, at `/judge`."""
    waiting: int
    """Queries in the queue."""


class ErrorReply(StrictModel):
    """What went wrong, in one sentence."""

    detail: str
