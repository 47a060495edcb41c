"""A collection → the document-query pairs that a docid model learns from, and their batches.

A document's queries are those that judge it most relevant; where not all pairs are wanted, the narrowest
come first, for what hundreds of documents answer tells none of them apart. Where there are few training
queries, the document itself says what might be asked: its title, and the text is what is left; or its leading
sentence. This file knows no network.

Shapes: see `fusion`.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from gr2.augment import sentences
from gr2.batches import padded
from gr2.data import Collection, Document
from gr2.docids.fusion import PairBatch, with_end

FEW = 200
"""Training queries below which documents speak for themselves."""
Read = Callable[[list[str]], list[list[int]]]


@dataclass(frozen=True)
class Pairs:
    """Texts of documents and the queries they shall lead to, row by row."""

    docnos: list[str]
    documents: list[str]
    queries: list[str]
    targets: str
    """What the queries are: `queries`, or `titles and leading sentences`."""

    def __len__(self) -> int:
        """How many."""
        return len(self.docnos)

    def parted(self, share: float = 0.05, *, most: int = 200) -> tuple["Pairs", "Pairs"]:
        """Those to learn from, and those of `most` documents or fewer, drawn by docno, to judge by."""
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
    collection: Collection, *, split: str = "train", most: int | None = None, seed: int = 0
) -> Pairs:
    """Each training query with the documents of its highest grade; or documents with their own words.

    Args:
        collection: whose documents need docids.
        split: the judgements to learn from; others are not looked at.
        most: pairs at most: of each document its narrowest query, then of each the next.
        seed: decides between queries with equally many documents, and who gets one more.
    """
    judged = collection.split(split) if split in collection.qrels else {}
    best = {
        qid: sorted(docno for docno, grade in row.items() if grade == max(row.values()))
        for qid, row in judged.items()
        if any(grade > 0 for grade in row.values())
    }
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


def _own(document: Document) -> tuple[str, str, str] | None:
    """A document as a pair with itself: what it is called, or how it begins, and the rest."""
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
    """Each document's pair with the query that fewest documents answer, then each one's next, and so on."""
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
    """The queries in the decoder's own tokens, without the end."""
    docnos: Sequence[str]

    def batch(self, rows: Sequence[int]) -> PairBatch:
        """Some of them, padded."""
        documents, queries = (padded([column[i] for i in rows]) for column in (self.documents, self.queries))
        return PairBatch(*documents, *queries, *with_end([self.targets[i] for i in rows]))


class PairBatches:
    """The batches of a run, by step: no two rows of a batch have one document or one query.

    What is the same must not be pushed apart by L_Div; such a row waits for the next batch.
    """

    rank, ranks = 0, 1

    def __init__(self, rows: PairRows, size: int, *, seed: int = 0) -> None:
        """Batches of so many pairs, or of all if there are fewer."""
        self.rows, self.size, self.seed = rows, size, seed
        self._epoch, self._orders = -1, list[list[int]]()

    def __getitem__(self, step: int) -> PairBatch:
        """The batch of a step: the same for the same seed, whatever was asked for before."""
        per_epoch = -(-len(self.rows.docnos) // self.size)
        epoch, place = divmod(step, per_epoch)
        if epoch != self._epoch:
            self._epoch, self._orders = epoch, self._order(epoch, per_epoch)
        return self.rows.batch(self._orders[place])

    def _order(self, epoch: int, per_epoch: int) -> list[list[int]]:
        """An epoch's batches: each row goes to the first batch with room that has none of its kind."""
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
