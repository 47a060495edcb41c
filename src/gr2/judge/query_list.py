"""A file of queries to judge → the queries, in the order in which to judge them.

| file | what is read | order |
|---|---|---|
| .jsonl; .tsv or .csv with a header that names a qid and a text | qid and text | of the file |
| topics in other files: `<top>`, or lines whose first word has a digit | qid and text | of the file |
| any other | a log: a query, or a query, a tab (.csv: comma) and a count | most frequent first |

A log may start with a header, `query` and perhaps `count`; a .csv must. A query that occurs again adds to its
count. All files may be gzipped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gr2.data.formats.folder import read_query_file
from gr2.data.formats.lines import FormatError, kind
from gr2.data.formats.records import TABLES, USUAL_NAMES
from gr2.data.formats.tables import CSV, rows
from gr2.judge.next_queries import Ranked, next_queries

HEADERS = (["query"], ["query", "count"])
COUNT_DIGITS = 15
Order = Literal["file", "disagreement"]
"""As the file has them (a log: most frequent first), or where systems disagree most first."""


@dataclass(frozen=True)
class QueryToJudge:
    """A query of a file."""

    text: str
    """Runs of white space are one space."""
    qid: str = ""
    """Empty in a log."""
    count: int = 1
    """How often it was asked."""


def read_query_list(path: Path) -> list[QueryToJudge]:
    """Read a file of queries; a problem names the file and line. Of equal texts only the first is kept."""
    lines = list(rows(path))
    if not lines:
        raise FormatError(path, 0, "expected at least one query")
    found = _queries(path) if _names_queries(path, [cells for _, cells in lines]) else _log(path, lines)
    first: dict[str, QueryToJudge] = {}
    for query in found:
        first.setdefault(query.text, query)
    return list(first.values())


def by_disagreement(
    queries: Sequence[QueryToJudge], rankings: Sequence[Mapping[str, Ranked]]
) -> list[QueryToJudge]:
    """The queries on which systems disagree most first; `rankings` has text → docnos for each system."""
    known = {query.text: query for query in queries}
    return [known[found.qid] for found in next_queries(rankings, list(known))]


def _names_queries(path: Path, lines: list[list[str]]) -> bool:
    """Whether every query has a qid."""
    if kind(path) == ".jsonl":
        return True
    if kind(path) in TABLES:
        return all(any(name in lines[0] for name in USUAL_NAMES[field]) for field in ("qid", "query"))
    numbered = all(any(sign.isdigit() for sign in cells[0].split()[0]) for cells in lines if cells[0].strip())
    return numbered or lines[0][0].lstrip().startswith("<")


def _queries(path: Path) -> list[QueryToJudge]:
    found = [QueryToJudge(" ".join(text.split()), qid) for qid, text in read_query_file(path).items()]
    for query in found:
        if not query.text:
            raise FormatError(path, 0, f"the query {query.qid!r} is empty")
    return found


def _log(path: Path, lines: list[tuple[int, list[str]]]) -> list[QueryToJudge]:
    counts: dict[str, int] = {}
    for place, (line, row) in enumerate(lines):
        cells = [cell.strip() for cell in row]
        if place == 0 and [cell.lower() for cell in cells] in HEADERS:
            continue
        if place == 0 and kind(path) == CSV:
            found = ", ".join(cells)[:80]
            message = f"expected the columns query and count, or query alone, or qid and query; found {found}"
            raise FormatError(path, line, message)
        query, count = " ".join(cells[0].split()), cells[1] if len(cells) > 1 else "1"
        is_count = count.isascii() and count.isdigit() and len(count) <= COUNT_DIGITS
        if len(cells) > 2 or not query or not is_count:
            raise FormatError(path, line, "expected a query, or a query, a tab and a whole number")
        counts[query] = counts.get(query, 0) + int(count)
    if not counts:
        raise FormatError(path, 0, "expected at least one query after the header")
    order = sorted(counts, key=lambda query: -counts[query])  # stable: equal counts stay in the file's order
    return [QueryToJudge(query, count=counts[query]) for query in order]
