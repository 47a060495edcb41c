"""Merged judgements → a folder in TREC's or BEIR's form, whole or not at all.

    TREC    topics.txt      qid and text       qrels.txt       qid 0 docno grade
    BEIR    queries.jsonl   {"_id", "text"}    qrels/NAME.tsv  query-id, corpus-id, score

Each folder is read back before it gets its name, so what is written can be read.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import orjson

from gr2.data.collection import Qrels
from gr2.data.formats.folder import read_query_file
from gr2.data.formats.lines import FormatError
from gr2.data.formats.trec import read_qrels
from gr2.store import atomic_folder

Form = Literal["trec", "beir"]


def export(queries: Mapping[str, str], qrels: Qrels, out: Path, form: Form, split: str = "train") -> None:
    """Write the judged queries and their grades into a new folder.

    Args:
        queries: qid → text; those without a judgement are left out.
        qrels: qid → docno → grade.
        out: The folder; one that gr2 wrote is replaced, any other is left alone and refused.
        form: TREC's files or BEIR's.
        split: The name of BEIR's qrels file.
    """
    if not qrels:
        raise ValueError("there is no judgement to export")
    if not split or "/" in split:
        raise ValueError(f"the split {split!r} cannot be used as a file name")
    texts = {qid: queries[qid] for qid in qrels}
    with atomic_folder(out) as folder:
        write = write_beir if form == "beir" else write_trec
        query_file, qrels_file = write(folder, texts, qrels, split)
        try:
            same = read_query_file(query_file) == texts and read_qrels(qrels_file) == qrels
        except FormatError as error:
            raise ValueError(f"cannot be written as {form}: {error.message}") from None
        if not same:
            raise ValueError(f"cannot be written as {form}: some qid or docno is read back as another")


def write_trec(folder: Path, queries: Mapping[str, str], qrels: Qrels, split: str) -> tuple[Path, Path]:
    """Write topics in two columns and qrels in four; TREC's names know no split. Returns the two files."""
    topics, judged = folder / "topics.txt", folder / "qrels.txt"
    _write(topics, (f"{qid}\t{text}" for qid, text in queries.items()))
    rows = ((qid, docno, grade) for qid, row in qrels.items() for docno, grade in row.items())
    _write(judged, (f"{qid} 0 {docno} {grade}" for qid, docno, grade in rows))
    return topics, judged


def write_beir(folder: Path, queries: Mapping[str, str], qrels: Qrels, split: str) -> tuple[Path, Path]:
    """Write queries.jsonl and the qrels of one split, with BEIR's header. Returns the two files."""
    texts, judged = folder / "queries.jsonl", folder / "qrels" / f"{split}.tsv"
    judged.parent.mkdir()
    _write(texts, (orjson.dumps({"_id": qid, "text": text}).decode() for qid, text in queries.items()))
    rows = (f"{qid}\t{docno}\t{grade}" for qid, row in qrels.items() for docno, grade in row.items())
    _write(judged, ("query-id\tcorpus-id\tscore", *rows))
    return texts, judged


def _write(path: Path, lines: Iterable[str]) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        stream.writelines(f"{line}\n" for line in lines)
