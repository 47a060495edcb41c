"""The best words of each document with 8-bit weights: BM25 in three to five bytes a word.

An index of all words has 8 bytes for each word of each document. Here a document keeps only the words with
the highest weights, each as the document's number in the list of that word (2 bytes, or 4 in collections of
more than 65,536 documents) and a weight in steps of one 255th of the largest.

Shapes: Q queries, N documents, T terms, P words of all documents.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from gr2.bm25 import BM25, BM25Config, query_terms
from gr2.store import atomic_folder, read_json, readable, steady, verify, write_json

STEPS = 255
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
    """[T + 1] the first entry of each term, then P."""
    documents: NDArray[np.uint16] | NDArray[np.uint32]
    """[P] places of documents, term by term."""
    weights: NDArray[np.uint8]
    """[P] in steps."""
    step: float

    @classmethod
    def of(cls, bm25: BM25, most: int) -> "WordWeights":
        """The `most` words of each document with the highest weights; equal ones in the order of terms."""
        if most < 1:
            raise ValueError(f"expected at least 1 word per document, found {most}")
        rows = bm25.weights()
        owner = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
        order = np.lexsort((rows.indices, -rows.data, owner))
        kept = order[np.arange(len(order)) - rows.indptr[owner] < most]
        kept = kept[np.lexsort((owner[kept], rows.indices[kept]))]  # term by term
        step = float(rows.data.max(initial=0.0)) / STEPS or 1.0
        counts = np.bincount(rows.indices[kept], minlength=rows.shape[1])
        used = np.flatnonzero(counts)
        names = {place: term for term, place in bm25.vocabulary.items()}
        return cls(
            bm25.config,
            tuple(bm25.docnos),
            {names[place]: row for row, place in enumerate(used.tolist())},
            np.cumsum([0, *counts[used]]).astype(np.int32),
            owner[kept].astype(np.uint16 if rows.shape[0] <= 1 << 16 else np.uint32),
            np.round(rows.data[kept] / step).astype(np.uint8),
            step,
        )

    def scores(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The sum of the weights of the query's words in every document, for each text [Q, N]."""
        found = np.zeros((len(texts), len(self.docnos)), np.float32)
        for row, terms in zip(found, query_terms(texts, self.config), strict=True):
            for place in (self.terms[term] for term in terms if term in self.terms):
                part = slice(self.starts[place], self.starts[place + 1])
                row[self.documents[part]] += self.weights[part]
        found *= np.float32(self.step)
        return found

    @property
    def nbytes(self) -> int:
        """The size of the entries in bytes; the terms are counted with the collection, not with documents."""
        return int(self.documents.nbytes + self.weights.nbytes + self.starts.nbytes)

    def save(self, folder: Path) -> None:
        """Write everything as a folder with a manifest."""
        arrays: dict[str, NDArray[Any]] = {"starts": self.starts, "weights": self.weights}
        with atomic_folder(folder) as temporary:
            save_file(arrays | {"documents": self.documents}, temporary / ARRAYS)
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
            starts, documents, weights = (stored[name] for name in ("starts", "documents", "weights"))
        terms = {term: place for place, term in enumerate(content["terms"])}
        return cls(content["config"], content["docnos"], terms, starts, documents, weights, content["step"])


class _Content(TypedDict):
    """What words.json holds."""

    config: BM25Config
    docnos: tuple[str, ...]
    terms: tuple[str, ...]
    step: float
