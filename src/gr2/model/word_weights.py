"""The best words of each document with 4-bit weights: BM25 in about one and a half bytes a word.

An index of all words has 8 bytes for each word of each document. Here a document keeps only its best words:
those with the highest BM25 weight, times the tenth root of the number of documents that have the word,
because a very rare word is hardly ever asked for. The list of a word with n documents of N is a string of
bits: n weights of 4 bits, in steps of a 16th of the largest; the k = ⌊log2(N / n)⌋ lowest bits of each
document's place; and the rest of the places, where bit p + i is set if the i-th document has the rest p. That
is the code of Elias and Fano: 2 + log2(N / n) bits a document.

Shapes: Q queries, N documents, T terms, P words of all documents.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from scipy import sparse

from gr2.bm25 import BM25, BM25Config, query_terms
from gr2.store import atomic_folder, read_json, readable, steady, verify, write_json

Ints = NDArray[np.int64]
BITS = 4
STEPS = 1 << BITS
COMMON = 0.1
"""Power of a word's number of documents by which its weight is multiplied when the best are chosen."""
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
    """[T + 1] the number of words in the lists before each term's, then P."""
    lists: NDArray[np.uint8]
    """The bits of the lists, term by term."""
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
        terms = {names[place]: row for row, place in enumerate(used.tolist())}
        starts = np.append(columns.indptr[used], columns.nnz)
        lists = _written(
            columns.indices.astype(np.int64), columns.data.astype(np.int64) - 1, starts, len(docnos)
        )
        return cls(config, tuple(docnos), terms, starts.astype(np.int32), lists, step)

    def entries(self, place: int) -> tuple[Ints, Ints]:
        """The documents of a term's list, and their weights in steps."""
        count, low = int(self.starts[place + 1] - self.starts[place]), int(self._low[place])
        first, last = int(self._bits[place]), int(self._bits[place + 1])
        bits = np.unpackbits(self.lists[first // 8 : -(-last // 8)])[first % 8 :][: last - first]
        weights, lowest, rest = np.split(bits, [BITS * count, (BITS + low) * count])
        high = np.flatnonzero(rest) - np.arange(count)
        return high << low | _number(lowest, count), _number(weights, count) + 1

    @cached_property
    def _low(self) -> Ints:
        """[T] k of each list."""
        return _low_bits(np.diff(self.starts), len(self.docnos))

    @cached_property
    def _bits(self) -> Ints:
        """[T + 1] where the list of each term starts in the bits."""
        return _ends(np.diff(self.starts), self._low, len(self.docnos))

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
        """The size of the lists in bytes, which grows with the documents."""
        return int(self.lists.nbytes)

    @property
    def vocabulary_bytes(self) -> int:
        """The size of the terms and of where their lists start, which grows ever more slowly."""
        return sum(len(term.encode()) + 1 for term in self.terms) + self.starts.nbytes

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


def _low_bits(counts: NDArray[np.integer], documents: int) -> Ints:
    """⌊log2(N / n)⌋ of each list, in integers."""
    low = np.zeros(len(counts), np.int64)
    while (wider := documents >= counts.astype(np.int64) << low + 1).any():
        low += wider
    return low


def _ends(counts: NDArray[np.integer], low: Ints, documents: int) -> Ints:
    """[T + 1] where each list starts in the bits, and the number of bits."""
    sizes = counts.astype(np.int64) * (BITS + low + 1) + (documents >> low) + 1
    return np.concatenate([[0], sizes.cumsum()]).astype(np.int64)


def _written(places: Ints, weights: Ints, starts: Ints, documents: int) -> NDArray[np.uint8]:
    """The bits of all lists, from the places and weights [P] of their documents, list by list."""
    counts = np.diff(starts)
    low = _low_bits(counts, documents)
    ends = _ends(counts, low, documents)
    bits = np.zeros(int(ends[-1]), np.uint8)
    own = np.repeat(np.arange(len(counts)), counts)
    order, first, own_low = np.arange(len(places)) - starts[own], ends[own], low[own]
    for bit in range(BITS):
        bits[first + BITS * order + bit] = weights >> BITS - 1 - bit & 1
    first = first + BITS * counts[own]
    for bit in range(int(low.max(initial=0))):
        here = own_low > bit
        at = (first + own_low * order + bit)[here]
        bits[at] = (places >> np.maximum(own_low - 1 - bit, 0) & 1)[here]
    bits[first + own_low * counts[own] + (places >> own_low) + order] = 1
    return np.packbits(bits)


def _number(bits: NDArray[np.uint8], count: int) -> Ints:
    """Bits of `count` numbers, highest first → the numbers."""
    each = len(bits) // max(1, count)
    found: Ints = bits.reshape(count, each).astype(np.int64) @ (1 << np.arange(each)[::-1])
    return found
