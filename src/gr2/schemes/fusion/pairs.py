"""A collection → the document-query pairs that a docid generator is trained on, and their batches.

A document's queries are those for which it has the highest grade. If the number of pairs is limited, the most
specific queries come first, because a query that hundreds of documents answer distinguishes none of them.
With few training queries, each document provides its own: its title or first sentence; the rest is its text.

Shapes: see `network`.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from gr2.bm25 import BM25
from gr2.data.collection import Collection, Document
from gr2.model.padding import padded
from gr2.schemes.fusion.network import PairBatch, with_end
from gr2.schemes.self_retrieval import SETTINGS
from gr2.text import sentences

FEW = 200
"""Number of training queries below which documents provide their own."""


@dataclass(frozen=True)
class Pairs:
    """Texts of documents and the queries to generate from them, row by row."""

    docnos: list[str]
    documents: list[str]
    queries: list[str]
    targets: str
    """What the queries are: `queries`, or `titles and leading sentences`."""

    def __len__(self) -> int:
        """Number of pairs."""
        return len(self.docnos)

    def with_questions(self, collection: Collection, questions: Mapping[str, Sequence[str]]) -> "Pairs":
        """These pairs, and further questions of documents (docno → questions), without what is there."""
        known = set(zip(self.docnos, self.queries, strict=True))
        rows = [
            (document.docno, document.contents, question)
            for document in sorted(collection.documents, key=lambda document: document.docno)
            for question in questions.get(document.docno, ())
            if (document.docno, question) not in known
        ]
        if not rows:
            return self
        docnos, documents, queries = (list(column) for column in zip(*rows, strict=True))
        return Pairs(
            self.docnos + docnos,
            self.documents + documents,
            self.queries + queries,
            f"{self.targets} and own questions",
        )

    def parted(self, share: float = 0.05, *, most: int = 200) -> tuple["Pairs", "Pairs"]:
        """Training pairs, and held-out pairs of at most `most` documents, drawn by a hash of the docno."""
        scores = {
            docno: int.from_bytes(blake2b(docno.encode(), digest_size=4).digest()) for docno in self.docnos
        }
        drawn = [docno for docno, score in scores.items() if score < share * 2**32]
        kept = set(sorted(drawn, key=lambda docno: (scores[docno], docno))[:most])
        held = {i for i, docno in enumerate(self.docnos) if docno in kept}
        if len(held) == len(self):
            held = set()
        return self._only(set(range(len(self))) - held), self._only(held)

    def _only(self, rows: set[int]) -> "Pairs":
        kept = sorted(rows)
        docnos, documents, queries = (
            [column[i] for i in kept] for column in (self.docnos, self.documents, self.queries)
        )
        return Pairs(docnos, documents, queries, self.targets)


def pairs_of(
    collection: Collection,
    *,
    split: str = "train",
    most: int | None = None,
    most_answers: int | None = None,
    seed: int = 0,
) -> Pairs:
    """Each training query with its documents of the highest grade; or documents with queries of their own.

    Args:
        collection: the documents that need docids.
        split: the judgements to train on.
        most: maximum number of pairs; each document's most specific query comes first, then the next.
        most_answers: leave out queries whose text more documents answer with the highest grade, and pairs
            whose document BM25 does not find among as many: such a query says little about this document.
        seed: breaks ties between equally specific queries.
    """
    judged = collection.split(split) if split in collection.qrels else {}
    best = {
        qid: sorted(docno for docno, grade in row.items() if grade == max(row.values()))
        for qid, row in judged.items()
        if any(grade > 0 for grade in row.values())
    }
    if most_answers is not None:
        answers: dict[str, set[str]] = defaultdict(set)  # several queries may have the same text
        for qid, docnos in best.items():
            answers[collection.queries[qid]].update(docnos)
        best = {
            q: docnos for q, docnos in best.items() if len(answers[collection.queries[q]]) <= most_answers
        }
        best = _found(collection, best, most_answers)
    if len(best) < FEW:
        rows = [row for document in collection.documents if (row := _own(document))]
        return _sampled(rows, "titles and leading sentences", most, seed)
    wanted = {docno for docnos in best.values() for docno in docnos}
    texts = {d.docno: d.contents for d in collection.documents if d.docno in wanted}
    rows = [
        (docno, texts[docno], collection.queries[qid])
        for qid, docnos in sorted(best.items())
        for docno in docnos
        if texts.get(docno)
    ]
    return _sampled(rows, "queries", most, seed)


def _found(collection: Collection, best: Mapping[str, list[str]], most: int) -> dict[str, list[str]]:
    """The documents (qid → docnos) that are among the first `most` when BM25 searches for their query."""
    if not best:
        return {}
    run = BM25.index(collection.documents, SETTINGS).search({q: collection.queries[q] for q in best}, most)
    kept = {qid: [docno for docno in docnos if docno in run.docnos(qid)] for qid, docnos in best.items()}
    return {qid: docnos for qid, docnos in kept.items() if docnos}


def _own(document: Document) -> tuple[str, str, str] | None:
    """A pair made from a document alone: the rest of it, and its title or first sentence as the query."""
    if document.title.strip() and document.text.strip():
        return document.docno, document.text, document.title
    parts = sentences(document.text)
    return (document.docno, " ".join(parts[1:]), parts[0]) if len(parts) > 1 else None


def _sampled(rows: list[tuple[str, str, str]], targets: str, most: int | None, seed: int) -> Pairs:
    rows = sorted(rows)
    if not rows:
        raise ValueError("there is nothing to learn docids from: no training query, no document of two parts")
    if most is not None and len(rows) > most:
        rows = sorted(_narrow_first(rows, seed)[:most])
    docnos, documents, queries = (list(column) for column in zip(*rows, strict=True))
    return Pairs(docnos, documents, queries, targets)


def _narrow_first(rows: list[tuple[str, str, str]], seed: int) -> list[tuple[str, str, str]]:
    """First each document's pair with the query that the fewest documents answer, then the next ones."""
    breadth = Counter(query for _, _, query in rows)
    chance = np.random.default_rng([seed, 7]).permutation(len(rows)).tolist()
    place = Counter[str]()
    order = []
    for index in sorted(range(len(rows)), key=lambda i: (breadth[rows[i][2]], chance[i])):
        docno = rows[index][0]
        order.append((place[docno], chance[index], index))
        place[docno] += 1
    return [rows[index] for _, _, index in sorted(order)]


@dataclass(frozen=True)
class PairRows:
    """Pairs as token ids."""

    documents: Sequence[Sequence[int]]
    queries: Sequence[Sequence[int]]
    targets: Sequence[Sequence[int]]
    """The queries in the decoder's own vocabulary, without END."""
    docnos: Sequence[str]

    def batch(self, rows: Sequence[int]) -> PairBatch:
        """These pairs as a padded batch."""
        documents, queries = (padded([column[i] for i in rows]) for column in (self.documents, self.queries))
        return PairBatch(*documents, *queries, *with_end([self.targets[i] for i in rows]))


class PairBatches:
    """The batches of a run, by step: no two rows of a batch share a document or a query.

    L_Div must not push identical texts apart; such a row waits for a later batch.
    """

    rank, ranks = 0, 1

    def __init__(self, rows: PairRows, size: int, *, seed: int = 0) -> None:
        """Batches of `size` pairs, or of all if there are fewer."""
        self.rows, self.size, self.seed = rows, size, seed
        self._epoch, self._orders = -1, list[list[int]]()

    def __getitem__(self, step: int) -> PairBatch:
        """The batch of a step: the same for the same seed, whichever batches were read before."""
        per_epoch = -(-len(self.rows.docnos) // self.size)
        epoch, place = divmod(step, per_epoch)
        if epoch != self._epoch:
            self._epoch, self._orders = epoch, self._order(epoch, per_epoch)
        return self.rows.batch(self._orders[place])

    def _order(self, epoch: int, per_epoch: int) -> list[list[int]]:
        """An epoch's batches: a row goes to the first one with room and without its document or query."""
        generator = np.random.default_rng([self.seed, 11, epoch])
        batches: list[list[int]] = [[] for _ in range(per_epoch)]
        inside: list[set[object]] = [set() for _ in range(per_epoch)]
        start = 0
        for row in generator.permutation(len(self.rows.docnos)).tolist():
            own = {self.rows.docnos[row], tuple(self.rows.targets[row])}
            while start < per_epoch and len(batches[start]) == self.size:
                start += 1
            for place in range(start, min(per_epoch, start + 50)):
                if len(batches[place]) < self.size and not own & inside[place]:
                    batches[place].append(row)
                    inside[place] |= own
                    break
        return [batch if batch else batches[0] for batch in batches]
