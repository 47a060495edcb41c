"""Judgement files that people have → a store. Errors name the file and line, and then nothing is written.

| what | how it is recognised | what is read |
|---|---|---|
| BEIR | a folder | queries.jsonl (or .tsv, .csv, topics.txt) and every file of qrels/ |
| TREC | any other file | `qid 0 docno grade`, or BEIR's three columns; the texts are in a file of their own |
| Quepid | .csv with the queries' texts | see `quepid_rows` |

Tables may have column names of their own: `columns` maps our fields to them (of TREC and BEIR qid, docno and
grade; of Quepid query, docno and grade). Negative grades, which TREC uses for spam, become 0.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gr2.data.formats.folder import QRELS_KINDS, QUERY_NAMES, Columns, read_query_file
from gr2.data.formats.lines import FormatError, find, kind
from gr2.data.formats.tables import CSV, rows
from gr2.data.formats.trec import numbered_qrels
from gr2.judge.judgements import Judgement, Source
from gr2.judge.store import InvalidJudgement, JudgementStore

QUERY_COLUMNS = ("query", "query text")
DOCNO_COLUMNS = ("docid", "doc id")
OPTION = "gr2 judgements import --columns"
RATING = re.compile(r"([0-9]{1,4})(\.0+)?")


@dataclass(frozen=True)
class Row:
    """One judgement and the place it was read from."""

    path: Path
    line: int
    judgement: Judgement


def import_files(
    store: JudgementStore,
    files: Iterable[Path],
    *,
    judge: str,
    queries: Path | None = None,
    source: Source = "judged",
) -> list[Judgement]:
    """Read files into a store: all of their judgements, or none if one is wrong.

    Args:
        store: Where they are kept.
        files: BEIR folders, TREC qrels and Quepid exports.
        judge: Who made them; the judges of a Quepid book are named in the file instead.
        queries: The texts of the queries of TREC qrels: topics, or a table (.jsonl, .tsv, .csv).
        source: Whether people judged or clicks were counted.
    """
    return keep(store, [row for path in files for row in read_rows(path, judge, queries, source)])


def keep(store: JudgementStore, rows: Sequence[Row]) -> list[Judgement]:
    """Keep rows that were read; an invalid one raises an error with its place, and none is written."""
    try:
        return store.append(row.judgement for row in rows)
    except InvalidJudgement as error:
        row = rows[error.index]
        raise FormatError(row.path, row.line, str(error)) from None


def read_rows(
    path: Path,
    judge: str,
    queries: Path | None = None,
    source: Source = "judged",
    columns: Columns | None = None,
) -> Iterator[Row]:
    """Read one file or folder of any of the forms."""
    named = columns or {}
    if path.is_dir():
        return beir_rows(path, judge, source)
    if kind(path) == CSV and "qid" not in named:
        return quepid_rows(path, judge, source, named)
    if queries is None:
        raise FormatError(path, 0, "qrels name their queries by qid only: give the file of their texts too")
    return qrels_rows(path, read_query_file(queries), judge, source, named)


def beir_rows(folder: Path, judge: str, source: Source = "judged") -> Iterator[Row]:
    """Read the queries and all qrels of a BEIR folder; it needs no corpus."""
    texts = find(folder, *QUERY_NAMES)
    files = [path for path in sorted((folder / "qrels").glob("*")) if kind(path) in QRELS_KINDS]
    if texts is None or not files:
        raise FormatError(folder, 0, "expected queries.jsonl and qrels/NAME.tsv in this folder")
    queries = read_query_file(texts)
    for path in files:
        yield from qrels_rows(path, queries, judge, source)


def qrels_rows(
    path: Path,
    queries: Mapping[str, str],
    judge: str,
    source: Source = "judged",
    columns: Columns | None = None,
) -> Iterator[Row]:
    """Read qrels in TREC's or BEIR's columns, or in columns of other names."""
    for line, qid, docno, grade in numbered_qrels(path, columns=columns, option=OPTION):
        if qid not in queries:
            raise FormatError(path, line, f"judges the query {qid!r}, which is not among the queries")
        judgement = Judgement(queries[qid], docno, max(0, grade), judge, qid=qid, source=source)
        yield Row(path, line, judgement)


def quepid_rows(
    path: Path, judge: str, source: Source = "judged", columns: Columns | None = None
) -> Iterator[Row]:
    """Read a CSV export of Quepid; the columns may have any order and case, and other columns are ignored.

    - Basic: `query`, `docid`, `rating`.
    - Detailed: `Query Text`, `Doc ID`, `Rating`, among Team Name, Case Name, Case ID, Doc Position, Title.
    - Book: `query`, `docid`, and one column of ratings for each judge, who is named in the header.

    A row without a rating is skipped: Quepid writes one for a query that has none. `3.0` is read as 3.
    """
    header: list[str] = []
    for line, cells in rows(path):
        if not header:
            header = [cell.strip() for cell in cells]
            query, docno, ratings = _columns(path, _renamed(path, header, columns or {}), judge)
            continue
        if len(cells) > len(header):
            raise FormatError(path, line, f"expected {len(header)} cells, found {len(cells)}")
        padded = [cell.strip() for cell in cells] + [""] * (len(header) - len(cells))
        for column, name in ratings.items():
            if padded[column]:
                grade = _grade(path, line, padded[column])
                yield Row(path, line, Judgement(padded[query], padded[docno], grade, name, source=source))
    if not header:
        raise FormatError(path, 0, "expected a header such as query,docid,rating")


def _renamed(path: Path, header: list[str], columns: Columns) -> list[str]:
    """The header with the names of our fields as Quepid calls them."""
    known = {"query": "query", "docno": "docid", "grade": "rating"}
    if unknown := sorted(columns.keys() - known.keys()):
        raise ValueError(f"no field is called {unknown[0]!r}; the fields are {', '.join(known)}, or qid")
    if missing := [name for name in columns.values() if name not in header]:
        raise FormatError(path, 1, f"expected a column {missing[0]!r}, found {','.join(header)[:80]!r}")
    ours = {name: known[field] for field, name in columns.items()}
    return [ours.get(name, name) for name in header]


def _columns(path: Path, header: list[str], judge: str) -> tuple[int, int, dict[int, str]]:
    """The columns of the query and of the docno, and those of ratings with their judges."""
    names = [name.lower() for name in header]
    query = [names.index(name) for name in QUERY_COLUMNS if name in names]
    docno = [names.index(name) for name in DOCNO_COLUMNS if name in names]
    if not query or not docno:
        found = ",".join(header)[:80]
        raise FormatError(path, 1, f"expected the columns query, docid and rating, found {found!r}")
    if "rating" in names:
        return query[0], docno[0], {names.index("rating"): judge}
    if names[:2] != ["query", "docid"] or len(names) < 3 or not all(header):
        raise FormatError(
            path, 1, "expected a column `rating`, or query, docid and one column for each judge"
        )
    if len(set(header)) < len(header):
        raise FormatError(path, 1, "expected judges with different names")
    return query[0], docno[0], {column: header[column] for column in range(2, len(header))}


def _grade(path: Path, line: int, text: str) -> int:
    found = RATING.fullmatch(text)
    if found is None:
        raise FormatError(path, line, f"expected a rating that is a whole number, found {text[:40]!r}")
    return int(found[1])
