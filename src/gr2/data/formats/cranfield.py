"""Cranfield's own files → a collection, and the document that each question was written from.

Documents and questions are records of fields: `.I` number, `.T` title, `.A` author, `.B` source, `.W` text.
Judgements are `question document code` lines; code 1 is the best and 4 the least relevant (so its readme
says, and so rankings confirm), so a grade is 5 − code. One line of each question has the code -1: it names
the paper that the question was written from, which is no answer.
"""

from collections.abc import Iterator
from hashlib import md5
from pathlib import Path

from gr2.data.collection import Collection, Document
from gr2.data.formats.lines import FormatError, text_lines

CODES = {"1": 4, "2": 3, "3": 2, "4": 1, "5": 0, "-1": 0}
SOURCE = "-1"
FIELDS = (".T", ".A", ".B", ".W")


def read_cranfield(documents: Path, queries: Path, qrels: Path, *, folds: int = 0) -> Collection:
    """A collection from cran.all.1400, cran.qry and cranqrel.

    A question is known by its place in the file: the judgements count so, not by the number after `.I`. For
    folds, questions are dealt in turn, in the order of the MD5 of their names.
    """
    texts = {str(place): record.get(".W", "") for place, (_, record) in enumerate(_records(queries), start=1)}
    judged: dict[str, dict[str, int]] = {}
    for _, qid, docno, code in _judgements(qrels):
        judged.setdefault(qid, {})[docno] = CODES[code]
    order = sorted(judged, key=lambda qid: md5(qid.encode(), usedforsecurity=False).hexdigest())
    return Collection(
        name="cranfield",
        documents=tuple(_document(number, record) for number, record in _records(documents)),
        queries=texts,
        qrels={"test": judged},
        folds=tuple(tuple(order[start::folds]) for start in range(folds)),
    )


def source_documents(qrels: Path) -> dict[str, set[str]]:
    """Question → the document it was written from, to be left out of its ranking."""
    found: dict[str, set[str]] = {}
    for _, qid, docno, code in _judgements(qrels):
        if code == SOURCE:
            found.setdefault(qid, set()).add(docno)
    return found


def _document(number: str, record: dict[str, str]) -> Document:
    """The title stands again at the beginning of the text, and is not repeated."""
    title = record.get(".T", "")
    return Document(number, title, record.get(".W", "").removeprefix(title).strip())


def _judgements(path: Path) -> Iterator[tuple[int, str, str, str]]:
    for line, text in text_lines(path):
        cells = text.split()
        if len(cells) != 3 or cells[2] not in CODES:
            raise FormatError(path, line, "expected `question document code` with a code of 1 to 5 or -1")
        yield line, cells[0], cells[1], cells[2]


def _records(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The number and the fields of each record; the lines of a field are joined by spaces."""
    number, parts = "", dict[str, list[str]]()
    field: list[str] | None = None
    for line, text in text_lines(path):
        mark = text.split(" ", 1)[0].rstrip()
        if mark == ".I":
            if number:
                yield number, {name: " ".join(words) for name, words in parts.items()}
            number, parts, field = text[2:].strip(), {}, None
            if not number:
                raise FormatError(path, line, "expected a number after .I")
        elif mark in FIELDS and text.strip() == mark and number:
            field = parts.setdefault(mark, [])
        elif field is not None:
            field += text.split()
        else:
            raise FormatError(path, line, f"expected .I or one of {', '.join(FIELDS)}, found {text[:40]!r}")
    if not number:
        raise FormatError(path, 0, "expected records that begin with .I")
    yield number, {name: " ".join(words) for name, words in parts.items()}
