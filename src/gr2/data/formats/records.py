"""JSONL, TSV and CSV files with named columns → records, documents and queries.

A file has one document or query per line (in CSV: per row). `columns` maps our field names to the file's
column names; without it the usual names are tried (BEIR's `_id`, our `docno`, ...).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from gr2.data.collection import Document
from gr2.data.formats.lines import FormatError, Report, is_key, kind, numbered_lines, refuse, text_lines
from gr2.data.formats.tables import missing_column, rows, table

USUAL_NAMES: Mapping[str, tuple[str, ...]] = {
    "docno": ("_id", "docno", "doc_id", "docid", "id"),
    "qid": ("_id", "qid", "query_id", "query-id", "id"),
    "query": ("text", "query", "question"),
    "title": ("title",),
    "text": ("text", "body", "contents"),
    "url": ("url",),
}
QRELS_NAMES: Mapping[str, tuple[str, ...]] = {
    "qid": ("query-id", "qid", "query_id", "topic"),
    "docno": ("corpus-id", "docno", "doc_id", "docid"),
    "grade": ("score", "grade", "relevance", "rel", "label"),
}
RUN_NAMES = {"qid": QRELS_NAMES["qid"], "docno": QRELS_NAMES["docno"], "score": ("score",)}
TABLES = (".tsv", ".csv")
IMPORT = "gr2 collection import"
"""The command that takes other column names."""


@dataclass(frozen=True)
class DocumentFile:
    """The documents of a JSONL, TSV or CSV file; each iteration streams them again."""

    path: Path
    columns: Mapping[str, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Document]:
        """Yield the documents; the first problem raises."""
        return (document for _, document in self.numbered())

    def unread(self) -> list[str]:
        """The columns of a table that are no part of a document, such as a price."""
        if kind(self.path) not in TABLES:
            return []
        header = next((cells for _, cells in rows(self.path)), [])
        fields = ("docno", "title", "text", "url")
        read = {next((n for n in _names(field, self.columns) if n in header), "") for field in fields}
        return [name for name in header if name not in read]

    def numbered(self, report: Report = refuse) -> Iterator[tuple[int, Document]]:
        """Yield line number and document; a line with a problem is reported and skipped."""
        docno, title, text, url = (_names(name, self.columns) for name in ("docno", "title", "text", "url"))
        needs = {"docno": docno, "text": text}
        needs |= {name: (self.columns[name],) for name in ("title", "url") if name in self.columns}
        for line, record in records(self.path, report, needs):
            try:
                document = Document(
                    _key(record, docno),
                    _text(record, title, required="title" in self.columns),
                    _text(record, text, required=True),
                    _text(record, url, required="url" in self.columns),
                )
            except ValueError as error:
                report(self.path, line, str(error))
            else:
                yield line, document


def read_queries(
    path: Path, columns: Mapping[str, str] | None = None, report: Report = refuse
) -> dict[str, str]:
    """Read qid → text from a JSONL, TSV or CSV file."""
    qid_names, query_names = (_names(name, columns or {}) for name in ("qid", "query"))
    queries: dict[str, str] = {}
    for line, record in records(path, report, {"qid": qid_names, "query": query_names}):
        try:
            qid, text = _key(record, qid_names), _text(record, query_names, required=True)
            if qid in queries:
                raise ValueError(f"query {qid!r} occurs twice")
        except ValueError as error:
            report(path, line, str(error))
        else:
            queries[qid] = text
    return queries


def read_texts(path: Path) -> dict[str, str]:
    """Read `key<TAB>text` lines as key → text; blanks in the text become single spaces."""
    found: dict[str, str] = {}
    for line, row in text_lines(path):
        key, tab, text = row.partition("\t")
        if not tab or not is_key(key):
            raise FormatError(path, line, "expected a key, a tab and a text")
        if key in found:
            raise FormatError(path, line, f"{key!r} occurs twice")
        found[key] = " ".join(text.split())
    return found


def read_pairs_of_texts(path: Path) -> list[tuple[str, str]]:
    """Read rows of a text and a question about it (.tsv or .csv, plain or .gz), with or without a header."""
    found: list[tuple[str, str]] = []
    for number, cells in rows(path):
        text, question = cells if len(cells) == 2 else ("", "")
        if not text.strip() or not question.strip():
            raise FormatError(path, number, "expected two columns: a text and a question about it")
        if found or [text.strip().lower(), question.strip().lower()] != ["text", "question"]:
            found.append((text.strip(), question.strip()))
    if not found:
        raise FormatError(path, 0, "expected at least one text with a question")
    return found


def read_grouped(path: Path) -> dict[str, list[str]]:
    """Read rows of a docno and a text (.tsv or .csv, plain or .gz) as docno → texts, in file order."""
    found: dict[str, list[str]] = {}
    for number, cells in rows(path):
        docno, text = cells[0], "\t".join(cells[1:])
        if not is_key(docno) or not text.strip():
            raise FormatError(path, number, "expected two columns: a docno and a text")
        found.setdefault(docno, []).append(text.strip())
    return found


def named_cells(
    path: Path, names: Mapping[str, tuple[str, ...]], report: Report = refuse, *, option: str = ""
) -> Iterator[tuple[int, list[str]]]:
    """Yield line and cells of a .tsv or .csv file, in the order of `names`: field → what it may be called.

    `option` takes other names, for the message about a missing column.
    """
    if kind(path) not in TABLES:
        raise FormatError(
            path, 0, "expected a table with a header, in a file that ends in .tsv or .csv (.gz)"
        )
    for line, record in table(path, report, needs=names, option=option):
        found = [next(name for name in each if name in record) for each in names.values()]
        yield line, [record[name].strip() for name in found]


def records(
    path: Path, report: Report = refuse, names: Mapping[str, tuple[str, ...]] | None = None
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield line number and record of a .jsonl, .tsv or .csv file (each may be gzipped).

    `names`, field → what it may be called, are what a table's header or the first record must have: a column
    that is missing everywhere is one problem, not one in every row.
    """
    needs, option = names or {}, f"{IMPORT} --columns"
    if kind(path) in TABLES:
        return table(path, report, needs=needs, option=option)
    if kind(path) != ".jsonl":
        message = "expected a file name that ends in .jsonl, .tsv or .csv (or these with .gz)"
        raise FormatError(path, 0, message)
    return _json_records(path, report, needs, option)


def _json_records(
    path: Path, report: Report, needs: Mapping[str, Sequence[str]], option: str
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    first = True
    for line, raw in numbered_lines(path, report):
        try:
            record = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            report(path, line, f"expected a JSON object: {error}")
        else:
            if isinstance(record, dict):
                if first and (problem := missing_column(list(record), needs, option, "field")):
                    report(path, line, problem)
                    return
                first = False
                yield line, record
            else:
                report(path, line, f"expected a JSON object, not {type(record).__name__}")


def _names(field_name: str, columns: Mapping[str, str]) -> tuple[str, ...]:
    return (columns[field_name],) if field_name in columns else USUAL_NAMES[field_name]


def _key(record: Mapping[str, Any], names: tuple[str, ...]) -> str:
    for name in names:
        if name in record:
            value = record[name]
            key = str(value) if type(value) is int else value
            if isinstance(key, str) and is_key(key):
                return key
            raise ValueError(f"expected {name!r} to be a key without white space, found {_short(value)}")
    raise ValueError(f"missing field {' or '.join(map(repr, names))}")


def _text(record: Mapping[str, Any], names: tuple[str, ...], *, required: bool = False) -> str:
    for name in names:
        if name in record:
            value = record[name]
            if isinstance(value, str):
                return value
            if value is not None or required:
                raise ValueError(f"expected {name!r} to be a string, found {_short(value)}")
            return ""
    if required:
        raise ValueError(f"missing field {' or '.join(map(repr, names))}")
    return ""


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
