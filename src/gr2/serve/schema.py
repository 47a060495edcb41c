"""What goes over the wire: requests, checked field by field, and replies. This file knows no route."""

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StrictBool,
    Tag,
)
from pydantic import WithJsonSchema as Written

from gr2.serve.config import DOCNOS, QUERIES, QUERY_CHARACTERS, RESULTS

CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")  # and halves of characters
_PLAIN = r"[^\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]"
_QUERY = {
    "type": "string",
    "minLength": 1,
    "maxLength": QUERY_CHARACTERS,
    "pattern": rf"^{_PLAIN}*[^\s\u0000-\u001f\u007f]{_PLAIN}*$",
}


def _readable(text: str) -> str:
    found = CONTROL.search(text)
    if found:
        raise ValueError(
            f"has a character that is no text, U+{ord(found[0]):04X} at position {found.start()}"
        )
    if not text.strip():
        raise ValueError("is empty")
    if len(text) > QUERY_CHARACTERS:
        raise ValueError(f"has {len(text):,} characters; at most {QUERY_CHARACTERS:,} are read")
    return text


def _many(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _whole(value: Any) -> Any:
    if isinstance(value, bool | str):
        raise ValueError("expected a whole number")
    return value


Query = Annotated[str, AfterValidator(_readable)]
Queries = Annotated[
    list[Query],
    BeforeValidator(_many),
    Field(min_length=1, max_length=QUERIES),
    Written({"anyOf": [_QUERY, {"type": "array", "items": _QUERY, "minItems": 1, "maxItems": QUERIES}]}),
]


class Wire(BaseModel):
    """A field that nobody knows is an error, not silence."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class OnlyDocnos(Wire):
    """These documents and no others; docnos that the model does not know are passed over."""

    docnos: list[str] = Field(min_length=1, max_length=DOCNOS)


class OnlyField(Wire):
    """Documents whose field contains a text; A-Z and a-z are alike."""

    field: Literal["docno", "title", "url"]
    contains: str = Field(min_length=1, max_length=200)


def _kind(value: Any) -> str | None:
    if isinstance(value, OnlyDocnos | OnlyField):
        return "docnos" if isinstance(value, OnlyDocnos) else "field"
    return ("docnos" if "docnos" in value else "field") if isinstance(value, dict) else None


Filter = Annotated[
    Annotated[OnlyDocnos, Tag("docnos")] | Annotated[OnlyField, Tag("field")],
    Discriminator(
        _kind,
        custom_error_type="filter",
        custom_error_message='expected {"docnos": [...]} or {"field": ..., "contains": ...}',
    ),
]


class SearchRequest(Wire):
    """One query or several, and how they are to be answered."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"query": "read a csv file"},
                {"query": ["read a csv file", "sort a list"], "k": 5, "bm25": True},
                {"query": "sour fruit", "filter": {"docnos": ["d1", "d7"]}},
                {"query": "sour fruit", "filter": {"field": "title", "contains": "lemon"}},
            ]
        }
    )
    query: Queries
    """A text, or a list of texts."""
    k: Annotated[int, BeforeValidator(_whole)] = Field(10, ge=1, le=RESULTS)
    """Documents for each query."""
    filter: Filter | None = None
    """Which documents may be returned; the others keep no place."""
    bm25: StrictBool = False
    """Whether to give BM25's ranking too, where there is an index."""


class Piece(Wire):
    """A part of a snippet."""

    text: str
    marked: bool


class StepReply(Wire):
    """One token of a docid, and how many tokens the trie allowed there."""

    text: str
    choices: int


class Shown(Wire):
    """A document in a ranking; what the model folder does not hold is empty."""

    rank: int
    docno: str
    score: float
    title: str = ""
    url: str = ""
    snippet: list[Piece] = []


class Hit(Shown):
    """A document the model found: its docid, and the path that was taken to it. The score is log P(docid)."""

    docid: str
    path: list[StepReply]


class AnswerReply(Wire):
    """The answer to one query."""

    query: str
    results: list[Hit]
    proven: bool
    """No allowed document that is not listed has a higher score; false: not known."""
    cut: bool
    """The query was longer than the model reads: only its beginning was read."""
    allowed: int | None = None
    """How many documents the filter allows; null without a filter."""
    bm25: list[Shown] | None = None
    """BM25's ranking; null if it was not asked for or there is no index."""


class SearchReply(Wire):
    """An answer for each query, in order."""

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
                        }
                    ],
                    "milliseconds": 21.4,
                }
            ]
        }
    )
    answers: list[AnswerReply]
    milliseconds: float
    """From the request to this reply, waiting included."""


class DocumentReply(Wire):
    """A document as the collection has it; docid and path are empty if the model does not know it."""

    docno: str
    title: str
    text: str
    url: str
    docid: str
    path: list[StepReply]


class HealthReply(Wire):
    """What is served, and what it can do."""

    status: Literal["ok"]
    model: str
    collection: str
    gr2: str
    documents: int
    """Documents the model knows."""
    texts: bool
    """Whether the model folder holds the documents: without them there are docids and scores only."""
    bm25: bool
    bm25_note: str
    """Why there is no BM25, if there is none."""
    waiting: int
    """Queries in the queue."""


class Problem(Wire):
    """What went wrong, in a sentence."""

    detail: str
