"""NFCorpus's files, and BEIR's form of its test questions → a collection of medical abstracts.

Texts are `key<TAB>text` lines, judgements are TREC qrels with the grades 1 to 3.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from gr2.data.collection import Collection, Document, Qrels
from gr2.data.formats.records import read_queries, read_texts
from gr2.data.formats.trec import read_qrels


def read_nfcorpus(
    documents: Iterable[Path],
    queries: Mapping[str, Path],
    qrels: Mapping[str, Path],
    plain_queries: Path,
    plain_qrels: Path,
) -> Collection:
    """The documents of some files, and the judgements of these documents.

    The publisher's texts are without stop words and punctuation. `plain_queries` (BEIR's queries.jsonl) has
    the test questions as people wrote them; `plain_qrels` are BEIR's judgements of them, the split
    `test_beir`.
    """
    texts = {docno: text for path in documents for docno, text in read_texts(path).items()}
    splits: dict[str, Qrels] = {
        split: _of(read_qrels(path), texts) for split, path in [*qrels.items(), ("test_beir", plain_qrels)]
    }
    asked = {qid: text for path in queries.values() for qid, text in read_texts(path).items()}
    plain = read_queries(plain_queries)
    asked |= {qid: plain[qid] for qid in splits["test"] if qid in plain}
    return Collection(
        name="nfcorpus",
        documents=tuple(Document(docno, "", text) for docno, text in texts.items()),
        queries={qid: text for qid, text in asked.items() if any(qid in rows for rows in splits.values())},
        qrels=splits,
    )


def _of(qrels: Qrels, known: Mapping[str, str]) -> Qrels:
    """The judgements of known documents; a query that has none left is dropped."""
    kept = {qid: {docno: g for docno, g in row.items() if docno in known} for qid, row in qrels.items()}
    return {qid: row for qid, row in kept.items() if row}
