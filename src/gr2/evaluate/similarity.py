"""Short texts → how similar they are, by their stemmed words alone.

Jaccard similarity (shared words over all words) defines near-twins; TF-IDF cosine ranks neighbours. No model
is involved, so any system can exploit a leak found here.
"""

from collections import Counter
from collections.abc import Sequence
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from gr2.text import words

Floats = NDArray[np.float64]


def nearest_by_jaccard(texts: Sequence[str], others: Sequence[str]) -> list[tuple[int, float]]:
    """For each text, the index of the most similar other text and their Jaccard similarity.

    >>> nearest_by_jaccard(["cats purr"], ["dogs bark", "a cat purrs"])
    [(1, 0.6666666666666666)]
    """
    if not others:
        return [(-1, 0.0)] * len(texts)
    vocabulary: dict[str, int] = {}
    left, right = (_counts([set(words(text)) for text in rows], vocabulary) for rows in (texts, others))
    left.resize(len(texts), len(vocabulary))
    sizes_left, sizes_right = np.diff(left.indptr), np.diff(right.indptr)
    nearest = []
    for row in range(len(texts)):  # row by row: only one row of the product is in memory
        shared = np.asarray((left[row] @ right.T).todense(), dtype=np.float64).ravel()
        jaccard = shared / np.maximum(1.0, sizes_left[row] + sizes_right - shared)
        best = int(jaccard.argmax())
        nearest.append((best, float(jaccard[best])))
    return nearest


class TfIdf:
    """Unit-norm TF-IDF vectors of some texts, to find those nearest to another text."""

    def __init__(self, texts: Sequence[str]) -> None:
        """Weight each word by its inverse document frequency in the texts."""
        counts = [Counter(words(text)) for text in texts]
        frequency = Counter(word for row in counts for word in row)
        self._weights = {word: 1.0 + log((1 + len(texts)) / (1 + n)) for word, n in frequency.items()}
        self._vocabulary = {word: column for column, word in enumerate(self._weights)}
        self._vectors = self._matrix(counts)

    def cosines(self, text: str) -> Floats:
        """The cosine of a text with each of the indexed texts."""
        row: Floats = (self._vectors @ self._matrix([Counter(words(text))]).T).toarray().ravel()
        return row

    def _matrix(self, rows: Sequence[Counter[str]]) -> Any:
        known = [(line, w, n) for line, row in enumerate(rows) for w, n in row.items() if w in self._weights]
        lines, columns = [line for line, _, _ in known], [self._vocabulary[word] for _, word, _ in known]
        values = [count * self._weights[word] for _, word, count in known]
        shape = (len(rows), max(1, len(self._weights)))
        matrix = sparse.csr_matrix((values, (lines, columns)), shape=shape, dtype=np.float64)
        lengths = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
        return sparse.diags(1.0 / np.maximum(lengths, 1e-12)) @ matrix


def _counts(rows: Sequence[set[str]], vocabulary: dict[str, int]) -> Any:
    lines = [line for line, row in enumerate(rows) for _ in row]
    columns = [vocabulary.setdefault(word, len(vocabulary)) for row in rows for word in sorted(row)]
    shape = (len(rows), max(1, len(vocabulary)))
    return sparse.csr_matrix((np.ones(len(lines)), (lines, columns)), shape=shape)
