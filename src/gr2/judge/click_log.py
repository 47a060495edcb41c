"""Click logs → how often each document was shown for a query at each position, and how often clicked.

Two forms are read, plain or gzipped; a problem names the file and line.

- TSV (or CSV) with a header and the columns `query`, `docno`, `shown_at` (position from 1) and `clicked` (0
  or 1), or other names for them; one line for each time a document was shown.
- OpenSearch's User Behavior Insights (UBI 1.x) as NDJSON: the records of `ubi_queries` and `ubi_events`, in
  one file or in several; see `read_ubi`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import orjson

from gr2.data.formats.lines import FormatError, is_key, numbered_lines
from gr2.data.formats.tables import table

LogForm = Literal["tsv", "ubi"]
COLUMNS = ("query", "docno", "shown_at", "clicked")
POSITION = re.compile("[0-9]{1,9}")
BULK_ACTIONS = ("index", "create")
Cell = tuple[str, str, int]
"""Query, docno and position."""


@dataclass
class ClickLog:
    """Counts of a log."""

    shown: dict[Cell, int] = field(default_factory=dict)
    clicked: dict[Cell, int] = field(default_factory=dict)
    skipped: int = 0
    """Clicks and impressions of a UBI log that could not be used: of an unknown query, or without a place."""

    def add(self, query: str, docno: str, position: int, clicked: bool) -> None:
        """Count one document that was shown once."""
        cell = (" ".join(query.split()), docno, position)
        self.shown[cell] = self.shown.get(cell, 0) + 1
        self.clicked[cell] = self.clicked.get(cell, 0) + clicked


def read_log(paths: Sequence[Path], form: LogForm, columns: Mapping[str, str] | None = None) -> ClickLog:
    """Read the files of a log; `columns` maps our columns of a table to the file's own."""
    if form == "ubi" and columns:
        raise ValueError("records of UBI have no columns: leave --columns out")
    log = read_ubi(paths) if form == "ubi" else read_tsv(paths, columns)
    if not log.shown:
        raise FormatError(paths[0], 0, "no document was shown in this log")
    return log


def read_tsv(paths: Sequence[Path], columns: Mapping[str, str] | None = None) -> ClickLog:
    """Read TSV or CSV files; other columns than the four are ignored."""
    log, own = ClickLog(), columns or {}
    if unknown := sorted(own.keys() - set(COLUMNS)):
        raise ValueError(f"no column of a log is called {unknown[0]!r}; they are {', '.join(COLUMNS)}")
    names = {name: (own.get(name, name),) for name in COLUMNS}
    for path in paths:
        for line, record in table(path, needs=names, option="--columns"):
            query, docno, shown_at, clicked = (record[name].strip() for (name,) in names.values())
            if not query.strip() or not is_key(docno):
                raise FormatError(path, line, "expected a query and a docno without white space")
            if not (POSITION.fullmatch(shown_at) and 1 <= int(shown_at) <= 10_000):
                raise FormatError(path, line, f"expected a position from 1, found {shown_at[:40]!r}")
            if clicked not in ("0", "1"):
                raise FormatError(path, line, f"expected clicked to be 0 or 1, found {clicked[:40]!r}")
            log.add(query, docno, int(shown_at), clicked == "1")
    return log


@dataclass
class _Search:
    """One search of a UBI log."""

    query: str
    hits: dict[str, int]
    """Docno → position from 1, of the whole result list."""
    seen: dict[str, int] = field(default_factory=dict)
    """The same of documents with an impression event."""
    clicked: dict[str, int] = field(default_factory=dict)


def read_ubi(paths: Sequence[Path]) -> ClickLog:
    """Read UBI records; other fields and other actions are ignored.

    - Of a query: `query_id`, `user_query`, `query_response_hit_ids` (the documents in their order).
    - Of an event: `action_name` (`click` or `impression`), `query_id`,
      `event_attributes.object.object_id`, `event_attributes.position.ordinal` (from 1).

    A record with `action_name` is an event. A record may also stand in the `_source` of a search hit, and
    the action lines of a bulk request are skipped. A document's position is its place in
    `query_response_hit_ids`; the ordinal is used only if it is not among them. If a search has impressions,
    the documents with one were shown; else all of its hits were. A clicked document was shown in any case,
    and several clicks on it in one search count once.
    """
    log, searches = ClickLog(), dict[str, _Search]()
    events: list[tuple[Path, int, Mapping[str, Any]]] = []
    for path in paths:
        for line, record in _records(path):
            if "action_name" in record:
                if record["action_name"] in ("click", "impression"):
                    events.append((path, line, record))
            elif record.get("user_query"):  # an empty one is browsing, not searching
                query_id, search = _search(path, line, record)
                searches[query_id] = search
    for path, line, event in events:
        log.skipped += not _use(path, line, event, searches)
    for search in searches.values():
        shown = (search.seen or search.hits) | search.clicked
        for docno, position in shown.items():
            log.add(search.query, docno, position, docno in search.clicked)
    return log


def _records(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for line, raw in numbered_lines(path):
        try:
            record = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            raise FormatError(path, line, f"expected a JSON object: {error}") from None
        if isinstance(record, dict) and isinstance(record.get("_source"), dict):
            record = record["_source"]
        if not isinstance(record, dict):
            raise FormatError(path, line, f"expected a JSON object, not {type(record).__name__}")
        if not (len(record) == 1 and next(iter(record)) in BULK_ACTIONS):
            yield line, record


def _search(path: Path, line: int, record: Mapping[str, Any]) -> tuple[str, _Search]:
    query_id, query, hits = (record.get(k) for k in ("query_id", "user_query", "query_response_hit_ids"))
    if not isinstance(query_id, str) or not isinstance(query, str) or not query.strip():
        raise FormatError(path, line, "expected a query with the texts query_id and user_query")
    if not isinstance(hits or [], list):
        raise FormatError(path, line, "expected query_response_hit_ids to be a list")
    positions: dict[str, int] = {}
    for position, hit in enumerate(hits or [], start=1):
        positions.setdefault(_docno(path, line, hit), position)
    return query_id, _Search(query, positions)


def _use(path: Path, line: int, event: Mapping[str, Any], searches: Mapping[str, _Search]) -> bool:
    """Add an event to its search; False if it names none that is known, no document, or no place."""
    attributes = event.get("event_attributes") or {}
    if not isinstance(attributes, dict):
        raise FormatError(path, line, "expected event_attributes to be an object")
    search = searches.get(str(event.get("query_id")))
    found = _inner(attributes, "object", "object_id")
    if search is None or found is None:
        return False
    docno = _docno(path, line, found)
    position = search.hits.get(docno) or _inner(attributes, "position", "ordinal")
    if position is None:
        return False
    if type(position) is not int or not 1 <= position <= 10_000:
        raise FormatError(path, line, f"expected a position from 1 in ordinal, found {position!r}")
    (search.clicked if event["action_name"] == "click" else search.seen).setdefault(docno, position)
    return True


def _inner(attributes: Mapping[str, Any], name: str, field_name: str) -> Any:
    inner = attributes.get(name)
    return inner.get(field_name) if isinstance(inner, dict) else None


def _docno(path: Path, line: int, value: Any) -> str:
    docno = str(value) if type(value) is int else value
    if not isinstance(docno, str) or not is_key(docno):
        raise FormatError(path, line, f"expected a docno without white space, found {str(value)[:40]!r}")
    return docno
