"""TREC files (topics, qrels, runs, pairs) → queries, judgements, scores and query-document pairs.

Topics come in the classic SGML-like form or in two columns; qrels in TREC's four columns or in BEIR's
three, with or without its header. The first line of a file tells which form it has. Qrels, runs and pairs may
also be CSV files with a header, and qrels any table whose columns are named.
"""

import math
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping
from io import StringIO
from itertools import chain
from pathlib import Path

from gr2.data.formats.lines import Report, is_key, kind, refuse, small, text_lines
from gr2.data.formats.records import QRELS_NAMES, RUN_NAMES, named_cells
from gr2.data.formats.tables import CSV

GRADE = re.compile(r"[+-]?[0-9]{1,4}")
TAG = re.compile(r"<(/?[a-zA-Z]+)>")
TOPIC_START, TOPIC_END = (re.compile(tag, re.IGNORECASE) for tag in ("<top>", "</top>"))
LABEL = re.compile(r"^(number|topic|title|description|narrative)\s*:\s*", re.IGNORECASE)


def read_topics(path: Path, part: str = "title", report: Report = refuse) -> dict[str, str]:
    """Read qid → text; `part` chooses the tag (title, desc, narr) of topics in the SGML-like form."""
    lines = text_lines(path, report)
    first = next(lines, (0, ""))
    sgml, lines = first[1].lstrip().startswith("<"), chain([first] if first[0] else [], lines)
    topics: dict[str, str] = {}
    found = _sgml_topics(path, lines, part, report) if sgml else _two_columns(path, lines, report)
    for line, qid, text in found:
        if qid in topics:
            report(path, line, f"topic {qid!r} occurs twice")
        else:
            topics[qid] = text
    return topics


def _two_columns(
    path: Path, lines: Iterable[tuple[int, str]], report: Report
) -> Iterator[tuple[int, str, str]]:
    for place, (line, text) in enumerate(lines):
        qid, _, query = text.strip().replace("\t", " ", 1).partition(" ")
        untabbed = "\t" not in text and not any(sign.isdigit() for sign in qid)
        message = f"expected a qid before the text: {qid!r} has no digit, so it must have a tab after it"
        if untabbed and place == 0:  # one message for a list without any qid
            report(path, line, f"{message}; to number a list of queries: cat -n {path.name} > topics.txt")
            return
        if not is_key(qid) or not query.strip():
            report(path, line, "expected two columns: topic number and text")
        elif untabbed:
            report(path, line, message)
        else:
            yield line, qid, query.strip()


def _sgml_topics(
    path: Path, lines: Iterable[tuple[int, str]], part: str, report: Report
) -> Iterator[tuple[int, str, str]]:
    numbers, whole = array("Q"), StringIO(newline="\n")
    for number, text in small(path, lines, report):
        whole.write(f"\n{text}" if numbers else text)
        numbers.append(number)
    content = whole.getvalue()
    *topics, rest = TOPIC_END.split(content)
    row = 0
    for topic in topics:
        line = numbers[row + _blank_lines(topic)]
        row += topic.count("\n")
        before, *bodies = TOPIC_START.split(topic)
        parts = _parts("".join(bodies))
        qid, text = parts.get("num", ""), parts.get(part, "")
        if before.strip() or len(bodies) != 1:
            report(path, line, "expected each topic between <top> and </top>")
        elif not is_key(qid) or not text:
            report(path, line, f"expected a topic with a number in <num> and text in <{part}>")
        else:
            yield line, qid, text
    if rest.strip():
        report(path, numbers[row + _blank_lines(rest)], "expected </top> after the last topic")


def _blank_lines(text: str) -> int:
    """The number of blank lines before a text starts."""
    return text[: len(text) - len(text.lstrip())].count("\n")


def _parts(body: str) -> dict[str, str]:
    """The text after each tag of a topic, without its label: `<num> Number: 301` gives num → 301."""
    _, *pieces = TAG.split(body)
    texts = {tag.lower(): " ".join(text.split()) for tag, text in zip(pieces[::2], pieces[1::2], strict=True)}
    return {tag: LABEL.sub("", text) for tag, text in texts.items()}


def read_qrels(path: Path, report: Report = refuse) -> dict[str, dict[str, int]]:
    """Read qid → docno → grade from either form."""
    qrels: dict[str, dict[str, int]] = {}
    for _, qid, docno, grade in numbered_qrels(path, report):
        qrels.setdefault(qid, {})[docno] = grade
    return qrels


def numbered_qrels(
    path: Path, report: Report = refuse, columns: Mapping[str, str] | None = None, *, option: str = ""
) -> Iterator[tuple[int, str, str, int]]:
    """Yield line, qid, docno and grade; a pair that is judged twice must have the same grade.

    `columns` maps our fields (qid, docno, grade) to a table's own column names; `option` is what takes them.
    """
    seen: dict[tuple[str, str], int] = {}
    named = kind(path) == CSV or bool(columns)
    cells = _named_judgements(path, report, columns or {}, option) if named else _judgements(path, report)
    for line, qid, docno, grade in cells:
        if not GRADE.fullmatch(grade):
            report(path, line, f"expected an integer grade, found {grade[:40]!r}")
        elif not is_key(qid) or not is_key(docno):
            report(path, line, "expected printable query and document keys")
        elif seen.setdefault((qid, docno), int(grade)) != int(grade):
            message = f"query {qid!r} and document {docno!r} were already judged {seen[qid, docno]}"
            report(path, line, message)
        else:
            yield line, qid, docno, int(grade)


def _named_judgements(
    path: Path, report: Report, columns: Mapping[str, str], option: str
) -> Iterator[tuple[int, str, str, str]]:
    if unknown := sorted(columns.keys() - QRELS_NAMES.keys()):
        raise ValueError(
            f"no field of qrels is called {unknown[0]!r}; the fields are {', '.join(QRELS_NAMES)}"
        )
    names = {name: (columns[name],) if name in columns else usual for name, usual in QRELS_NAMES.items()}
    for line, (qid, docno, grade) in named_cells(path, names, report, option=option):
        yield line, qid, docno, grade


def _judgements(path: Path, report: Report) -> Iterator[tuple[int, str, str, str]]:
    for position, (line, text) in enumerate(text_lines(path, report)):
        cells = text.split()
        if len(cells) not in (3, 4):
            message = f"expected `qid docno grade` or `qid 0 docno grade`, found {len(cells)} columns"
            report(path, line, message)
        elif position > 0 or cells[-1].lower() not in QRELS_NAMES["grade"]:  # else it is BEIR's header
            yield line, cells[0], cells[-2], cells[-1]


def read_run(path: Path, report: Report = refuse) -> dict[str, dict[str, float]]:
    """Read qid → docno → score from TREC's six columns or a CSV file with the columns qid, docno and score.

    The rank column is ignored, as trec_eval does: scores decide.
    """
    run: dict[str, dict[str, float]] = {}
    named = kind(path) == CSV
    for line, cells in named_cells(path, RUN_NAMES, report) if named else _split_lines(path, report):
        if len(cells) != (3 if named else 6):
            report(path, line, f"expected `qid Q0 docno rank score tag`, found {len(cells)} columns")
            continue
        qid, docno, score = cells if named else (cells[0], cells[2], cells[4])
        if not is_key(qid) or not is_key(docno):
            report(path, line, "expected printable query and document keys")
        elif (value := _number(score)) is None:
            report(path, line, f"expected a finite number as score, found {score[:40]!r}")
        elif docno in run.setdefault(qid, {}):
            report(path, line, f"document {docno!r} occurs twice for query {qid!r}")
        else:
            run[qid][docno] = value
    return run


def read_pairs(path: Path | None, report: Report = refuse) -> dict[str, set[str]]:
    """Read `qid docno` lines, or these columns of a CSV file, as qid → docnos: pairs to exclude.

    A header with usual names is no pair. Without a file there are no pairs.
    """
    pairs: dict[str, set[str]] = {}
    if path is None:
        return pairs
    names = {field: QRELS_NAMES[field] for field in ("qid", "docno")}
    named = kind(path) == CSV
    for line, cells in named_cells(path, names, report) if named else _split_lines(path, report):
        if len(cells) != 2:
            report(path, line, f"expected `qid docno`, found {len(cells)} columns")
        elif pairs or not all(cell in usual for cell, usual in zip(cells, names.values(), strict=True)):
            pairs.setdefault(cells[0], set()).add(cells[1])
    return pairs


def _split_lines(path: Path, report: Report) -> Iterator[tuple[int, list[str]]]:
    return ((line, text.split()) for line, text in text_lines(path, report))


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in text else None
