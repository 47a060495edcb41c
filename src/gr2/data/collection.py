"""A collection: documents, queries and graded judgements, whatever files they come from.

Documents are streamed, so a million of them are never all in memory; queries and judgements are held in
memory. Fingerprint, folds and subsets do not depend on the order of the corpus.

Terms: a *docno* is the collection's own key of a document; a *grade* is its relevance to a query (1 lowest,
L highest, 0 not relevant); *qrels* are the judgements ``{qid: {docno: grade}}``.
"""

import heapq
from collections.abc import Collection as Container
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import NamedTuple

Qrels = Mapping[str, Mapping[str, int]]


class Document(NamedTuple):
    """One document. Only the docno is required; the other fields may be empty."""

    docno: str
    title: str = ""
    text: str = ""
    url: str = ""

    @property
    def contents(self) -> str:
        """Title and text as one string, as a lexical index reads them."""
        return f"{self.title} {self.text}".strip()


class Scan:
    """The result of one pass over the documents: docnos in order, and an order-independent digest."""

    def __init__(self, documents: Iterable[Document] = ()) -> None:
        """Scan documents; a repeated docno is an error."""
        self.docnos: dict[str, int] = {}
        self.digest = 0
        for document in documents:
            if not self.add(document):
                raise ValueError(f"two documents have the docno {document.docno!r}")

    def add(self, document: Document) -> bool:
        """Add a document; returns False and adds nothing if its docno is already known."""
        position = len(self.docnos)
        if self.docnos.setdefault(document.docno, position) != position:
            return False
        self.digest += digest("document", *document)
        return True


@dataclass(frozen=True)
class FilteredDocuments:
    """The documents of a larger corpus with given docnos, streamed."""

    documents: Iterable[Document]
    docnos: Container[str]

    def __iter__(self) -> Iterator[Document]:
        """Yield these documents in the order of the corpus."""
        return (document for document in self.documents if document.docno in self.docnos)


@dataclass(frozen=True, kw_only=True)
class Collection:
    """Documents, queries and graded judgements.

    >>> pets = Collection(
    ...     name="pets",
    ...     documents=(Document("d1", "Cats"), Document("d2", "Dogs")),
    ...     queries={"q1": "purring animal"},
    ...     qrels={"test": {"q1": {"d1": 3, "d2": -2}}},
    ... )
    >>> len(pets.docnos), pets.grades, pets.split("test")["q1"]
    (2, 3, {'d1': 3, 'd2': 0})
    >>> pets.fingerprint[:12]
    '95f3cc406c3e'
    """

    name: str
    """The collection's name in tables and provenance."""
    documents: Iterable[Document]
    """Iterated over more than once, so a tuple or a streaming reader, not a generator."""
    queries: Mapping[str, str]
    """qid → text."""
    qrels: Mapping[str, Qrels]
    """split → qid → docno → grade. Negative grades (spam) become 0."""
    folds: tuple[tuple[str, ...], ...] = field(default=())
    """The qids of each cross-validation fold, if there are folds."""
    whole: str = field(default="", repr=False, compare=False)
    """The fingerprint of the collection that this is a fold of; docids made for that one serve this one."""
    scanned: Scan | None = field(default=None, repr=False, compare=False)
    """The scan that a reader has already made; without it the documents are scanned at first use."""

    def __post_init__(self) -> None:
        """Set negative grades to 0, so that no other code has to handle them."""
        clean = {
            split: {
                qid: {docno: max(0, grade) for docno, grade in judged.items()}
                for qid, judged in qrels.items()
            }
            for split, qrels in self.qrels.items()
        }
        object.__setattr__(self, "qrels", clean)

    @cached_property
    def scan(self) -> Scan:
        """The scan of the documents, made once."""
        return self.scanned or Scan(self.documents)

    @property
    def docnos(self) -> Mapping[str, int]:
        """Docno → position in the corpus; all that is kept in memory of each document."""
        return self.scan.docnos

    @cached_property
    def grades(self) -> int:
        """L, the highest grade of any judgement; 0 if nothing is judged relevant."""
        return max(
            (g for qrels in self.qrels.values() for judged in qrels.values() for g in judged.values()),
            default=0,
        )

    @cached_property
    def fingerprint(self) -> str:
        """32 hex digits that change with any document, query or judgement, but not with their order."""
        total = self.scan.digest
        total += sum(digest("query", qid, text) for qid, text in self.queries.items())
        total += sum(
            digest("qrel", split, qid, docno, str(grade))
            for split, qrels in self.qrels.items()
            for qid, judged in qrels.items()
            for docno, grade in judged.items()
        )
        return f"{total % (1 << 128):032x}"

    def split(self, name: str) -> Qrels:
        """The judgements of one split; an unknown name raises an error that lists the splits."""
        if name not in self.qrels:
            raise ValueError(f"{self.name} has no split {name!r}; it has: {', '.join(self.qrels) or 'none'}")
        return self.qrels[name]

    def with_folds(self, count: int = 5, *, split: str = "test", seed: int = 0) -> "Collection":
        """The same collection with the judged queries of a split divided into folds by a seeded shuffle."""
        qids = sorted(self.split(split), key=lambda qid: digest("fold", str(seed), qid))
        if not 2 <= count <= len(qids):
            raise ValueError(f"{self.name}: {len(qids)} queries of split {split!r} cannot make {count} folds")
        return replace(self, folds=tuple(tuple(sorted(qids[i::count])) for i in range(count)))

    def fold(self, index: int, *, split: str = "test") -> "Collection":
        """Cross-validation: `test` becomes the queries of one fold, `train` those of all the others."""
        if not 0 <= index < len(self.folds):
            raise ValueError(f"{self.name} has no fold {index}; it has {len(self.folds)} folds")
        qrels, held_out = self.split(split), set(self.folds[index])
        parts = {
            "train": {qid: judged for qid, judged in qrels.items() if qid not in held_out},
            "test": {qid: judged for qid, judged in qrels.items() if qid in held_out},
        }
        name = f"{self.name}-fold{index}"
        return replace(self, name=name, qrels=parts, folds=(), whole=self.fingerprint, scanned=self.scan)

    def subset(self, size: int, *, seed: int = 0) -> "Collection":
        """The paper's rule: every judged document, then random others up to `size`.

        The random choice depends on the seed and the docnos alone, not on the order of the corpus.
        """
        judged = {docno for qrels in self.qrels.values() for row in qrels.values() for docno in row}
        judged &= self.docnos.keys()
        if not len(judged) <= size <= len(self.docnos):
            raise ValueError(
                f"{self.name}: a subset takes between {len(judged)} (the judged documents) and "
                f"{len(self.docnos)} (all) documents, not {size}"
            )
        rest = (docno for docno in self.docnos if docno not in judged)
        fill = heapq.nsmallest(size - len(judged), rest, key=lambda docno: digest("fill", str(seed), docno))
        kept = FilteredDocuments(self.documents, judged.union(fill))
        return replace(self, name=f"{self.name}-{size}", documents=kept, scanned=None)


def digest(*parts: str) -> int:
    """A 128-bit hash of strings as a number; a sum of such hashes does not depend on their order."""
    content = "\0".join(parts)
    if content.count("\0") >= len(parts):  # a part contains the separator: add the lengths of all parts
        content = f"\0{[len(part) for part in parts]}\0{content}"
    return int.from_bytes(blake2b(content.encode("utf-8", "surrogatepass"), digest_size=16).digest())
