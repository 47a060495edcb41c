"""ANTIQUE's files → a collection of questions and answers of people.

Texts are `key<TAB>text` lines, judgements are TREC qrels with the grades 1 to 4.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from gr2.data.collection import Collection, Document
from gr2.data.formats.lines import FormatError
from gr2.data.formats.records import read_texts
from gr2.data.formats.trec import read_qrels


def read_antique(
    documents: Path, queries: Mapping[str, Path], qrels: Mapping[str, Path], train: Iterable[str]
) -> Collection:
    """The judged answers of all test questions and of some training questions; grades 1-4 become 0-3."""
    wanted = set(train)
    judged = {split: read_qrels(path) for split, path in qrels.items()}
    judged["train"] = {qid: row for qid, row in judged["train"].items() if qid in wanted}
    if missing := sorted(wanted - judged["train"].keys()):
        raise FormatError(qrels["train"], 0, f"expected judgements of the question {missing[0]!r}")
    graded = {
        split: {qid: {docno: g - 1 for docno, g in row.items()} for qid, row in rows.items()}
        for split, rows in judged.items()
    }
    texts = {qid: text for path in queries.values() for qid, text in read_texts(path).items()}
    asked = {docno for rows in graded.values() for row in rows.values() for docno in row}
    found = tuple(
        Document(docno, "", text) for docno, text in read_texts(documents).items() if docno in asked
    )
    return Collection(
        name="antique",
        documents=found,
        queries={qid: texts[qid] for rows in graded.values() for qid in rows},
        qrels=graded,
    )
