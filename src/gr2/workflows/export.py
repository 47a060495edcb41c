"""Runs, docids and document vectors → files that other tools read.

Rows are written as CSV or JSON lines, by the ending of the file. Vectors are written as a folder with
`vectors.npy` [N, W] and `docnos.txt`, one docno per line in the same order.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import orjson

from gr2.data.runs import Run
from gr2.docids.docids import Docids
from gr2.evaluate.tables import render
from gr2.model.look_ahead import LookAhead
from gr2.model.vector_storage import widened
from gr2.store import atomic_file, atomic_folder

RUN_HEADER = ("qid", "docno", "rank", "score")
DOCID_HEADER = ("docno", "docid", "tokens")
Value = str | int | float | list[int]


def run_rows(run: Run) -> Iterator[tuple[Value, ...]]:
    """Query, document, rank from 1 and score, as in the run."""
    for qid, ranking in run.rankings.items():
        for rank, (docno, score) in enumerate(ranking, start=1):
            yield qid, docno, rank, score


def docid_rows(docids: Docids) -> Iterator[tuple[Value, ...]]:
    """Document, docid and its tokens."""
    for docno, text, tokens in zip(docids.docnos, docids.texts, docids.tokens, strict=True):
        yield docno, text, [int(token) for token in tokens]


def write_rows(header: Sequence[str], rows: Iterable[tuple[Value, ...]], path: Path) -> int:
    """Write rows as .csv or .jsonl, whole or not at all; returns how many there are."""
    if path.suffix not in (".csv", ".jsonl"):
        raise ValueError(f"{path}: expected a file name that ends in .csv or .jsonl")
    found = list(rows)
    with atomic_file(path) as temporary:
        if path.suffix == ".csv":
            text = render(header, [[_cell(value) for value in row] for row in found], "csv") + "\n"
            temporary.write_text(text, encoding="utf-8")
        else:
            lines = (orjson.dumps(dict(zip(header, row, strict=True))) for row in found)
            temporary.write_bytes(b"".join(line + b"\n" for line in lines))
    return len(found)


def write_vectors(look_ahead: LookAhead, folder: Path) -> tuple[int, int]:
    """Write the vectors of the documents as a folder; returns N and W."""
    vectors = widened(look_ahead.vectors)
    with atomic_folder(folder) as temporary:
        np.save(temporary / "vectors.npy", vectors, allow_pickle=False)
        text = "".join(f"{docno}\n" for docno in look_ahead.docnos)
        (temporary / "docnos.txt").write_text(text, encoding="utf-8")
    return vectors.shape[0], vectors.shape[1]


def _cell(value: Value) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
