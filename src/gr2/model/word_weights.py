"""The best words of each document with 4-bit weights: BM25 in about two bytes a word.

An index of all words has 8 bytes for each word of each document. Here a document keeps only its best words:
those with the highest BM25 weight, times the fifth root of the number of documents that have the word,
because a very rare word is hardly ever asked for. The list of a word is a string of bytes. Each of its
documents is one number there, of variable length (7 bits in a byte): the distance from the document before,
and the weight in steps of a 16th of the largest.

Shapes: Q queries, N documents, T terms, P words of all documents.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from scipy import sparse

from gr2.bm25 import BM25, BM25Config, query_terms
from gr2.store import atomic_folder, read_json, readable, steady, verify, write_json

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
BITS = 4
STEPS = 1 << BITS
COMMON = 0.2
"""Power of a word's number of documents by which its weight is multiplied when the best are chosen."""
PLACES = 6
"""Bytes of the largest number: 42 bits, for 2^38 documents."""
ARRAYS, CONTENT = "words.safetensors", "words.json"


@dataclass(frozen=True)
class WordWeights:
    """An inverted index of a few words per document."""

    config: BM25Config
    """Of the index that the weights come from."""
    docnos: tuple[str, ...]
    terms: dict[str, int]
    """term → its place."""
    starts: NDArray[np.int32]
    """[T + 1] where the list of each term starts, then their length in all."""
    lists: Bytes
    """Documents and weights, term by term."""
    step: float

    @classmethod
    def of(cls, bm25: BM25, most: int) -> "WordWeights":
        """The `most` best words of each document; equally good ones in the order of terms."""
        if most < 1:
            raise ValueError(f"expected at least 1 word per document, found {most}")
        rows = bm25.weights()
        step = float(rows.data.max(initial=0.0)) / STEPS or 1.0
        kept = _best(rows, most)
        kept.data = np.clip(np.round(kept.data / step), 1, STEPS)
        names = {place: term for term, place in bm25.vocabulary.items()}
        return cls._of_steps(bm25.config, bm25.docnos, names, kept, step)

    @classmethod
    def _of_steps(
        cls,
        config: BM25Config,
        docnos: Sequence[str],
        names: Mapping[int, str],
        steps: sparse.csr_matrix,
        step: float,
    ) -> "WordWeights":
        """The lists of a matrix of weights in steps [N, names]; terms of no document are left out."""
        columns = steps.tocsc()
        columns.sort_indices()
        used = np.flatnonzero(np.diff(columns.indptr))
        first = columns.indptr[used]
        before = np.concatenate([[0], columns.indices[:-1]]).astype(np.int64)
        before[first] = -1  # the distance of a list's first document is from before all documents
        numbers = (columns.indices - before - 1) * STEPS + columns.data.astype(np.int64) - 1
        lists, ends = written(numbers)
        starts = np.concatenate([[0], ends])[np.append(first, len(numbers))]
        terms = {names[place]: row for row, place in enumerate(used.tolist())}
        return cls(config, tuple(docnos), terms, starts.astype(np.int32), lists, step)

    def entries(self, place: int) -> tuple[Ints, Ints]:
        """The documents of a term's list, and their weights in steps."""
        numbers = read(self.lists[self.starts[place] : self.starts[place + 1]])
        return (numbers // STEPS + 1).cumsum() - 1, numbers % STEPS + 1

    def scores(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The sum of the weights of the query's words in every document, for each text [Q, N]."""
        found = np.zeros((len(texts), len(self.docnos)), np.float32)
        for row, terms in zip(found, query_terms(texts, self.config), strict=True):
            for place in (self.terms[term] for term in terms if term in self.terms):
                documents, steps = self.entries(place)
                row[documents] += steps
        found *= np.float32(self.step)
        return found

    def joined(self, other: "WordWeights", docnos: Sequence[str]) -> "WordWeights":
        """The words of these documents: as here if they are here, else as in `other`, in steps of ours."""
        names = sorted({*self.terms, *other.terms})
        place = {docno: len(self.docnos) + row for row, docno in enumerate(other.docnos)}
        place |= {docno: row for row, docno in enumerate(self.docnos)}
        theirs = other._steps(names)
        theirs.data = np.clip(np.round(theirs.data * (other.step / self.step)), 1, STEPS)
        both = sparse.vstack([self._steps(names), theirs]).tocsr()
        rows = both[[place[docno] for docno in docnos]]
        return self._of_steps(self.config, docnos, dict(enumerate(names)), rows, self.step)

    def _steps(self, names: Sequence[str]) -> sparse.csr_matrix:
        """The weights in steps [N, names]."""
        column = {name: place for place, name in enumerate(names)}
        lists = [(column[term], *self.entries(place)) for term, place in self.terms.items()]
        columns = np.repeat([place for place, _, _ in lists], [len(rows) for _, rows, _ in lists]).astype(int)
        rows = np.concatenate([np.zeros(0, np.int64), *(rows for _, rows, _ in lists)])
        steps = np.concatenate([np.zeros(0, np.int64), *(steps for _, _, steps in lists)])
        return sparse.csr_matrix((steps, (rows, columns)), shape=(len(self.docnos), len(names)))

    @property
    def nbytes(self) -> int:
        """The size of the lists in bytes; the terms are counted with the collection, not with documents."""
        return int(self.lists.nbytes + self.starts.nbytes)

    def save(self, folder: Path) -> None:
        """Write everything as a folder with a manifest."""
        arrays: dict[str, NDArray[Any]] = {"starts": self.starts, "lists": self.lists}
        with atomic_folder(folder) as temporary:
            save_file(arrays, temporary / ARRAYS)
            content = {"config": asdict(self.config), "docnos": self.docnos, "terms": list(self.terms)}
            write_json(temporary / CONTENT, content | {"step": self.step})

    @classmethod
    def load(cls, folder: Path) -> "WordWeights":
        """Read what `save` wrote; a changed byte is refused."""
        return steady(folder, cls._read)

    @classmethod
    def _read(cls, folder: Path) -> "WordWeights":
        verify(folder, CONTENT, ARRAYS)
        content = read_json(folder / CONTENT, _Content)
        with readable(folder / ARRAYS):
            stored = load_file(folder / ARRAYS)
            starts, lists = stored["starts"], stored["lists"]
        terms = {term: place for place, term in enumerate(content["terms"])}
        return cls(content["config"], content["docnos"], terms, starts, lists, content["step"])


class _Content(TypedDict):
    """What words.json holds."""

    config: BM25Config
    docnos: tuple[str, ...]
    terms: tuple[str, ...]
    step: float


def _best(rows: sparse.csr_matrix, most: int) -> sparse.csr_matrix:
    """The `most` best weights of each row; see `COMMON`."""
    owner = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    frequency = np.bincount(rows.indices, minlength=rows.shape[1])
    order = np.lexsort((rows.indices, -rows.data * frequency[rows.indices] ** COMMON, owner))
    kept = order[np.arange(len(order)) - rows.indptr[owner] < most]
    return sparse.csr_matrix((rows.data[kept], (owner[kept], rows.indices[kept])), shape=rows.shape)


def written(numbers: Ints) -> tuple[Bytes, Ints]:
    """Numbers from 0 as bytes of 7 bits each, lowest first, and where each number ends.

    A byte of 128 or more has another byte behind it.

    >>> [part.tolist() for part in written(np.array([5, 300]))]
    [[5, 172, 2], [1, 3]]
    """
    lengths = np.ones(len(numbers), np.int64)
    for place in range(1, PLACES):
        lengths += numbers >> 7 * place > 0
    ends = lengths.cumsum()
    found = np.empty(int(lengths.sum()), np.uint8)
    for place in range(PLACES):
        here = lengths > place
        digits = numbers[here] >> 7 * place & 127
        found[(ends - lengths)[here] + place] = digits + 128 * (lengths[here] > place + 1)
    return found, ends


def read(written: Bytes) -> Ints:
    """The numbers that were written.

    >>> read(np.array([5, 172, 2], np.uint8)).tolist()
    [5, 300]
    """
    if not len(written):
        return np.zeros(0, np.int64)
    first = np.append(True, written[:-1] < 128)
    starts = np.flatnonzero(first)
    place = np.arange(len(written)) - starts[first.cumsum() - 1]
    found: Ints = np.add.reduceat((written & 127).astype(np.int64) << 7 * place, starts)
    return found
