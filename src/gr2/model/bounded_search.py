"""φ of every document → the best k, also where a decoder adds to φ what it computes document by document.

The decoder's part is w·sim(f_q, f_id) with the cosine of the paper's representations; ξ ends in a ReLU, so
the cosine lies between 0 and 1 and the part is at most w. A document whose φ lies more than w below the k-th
best score cannot enter the top k. So docids are read in the order of φ, some at a time, until no other can
enter: the result is that of reading all of them.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Places = NDArray[np.int64]
Similarity = Callable[[Places], Floats]
"""Places of documents → the similarity of each to a query, from 0 to 1."""
SLACK = 1e-3
"""By how much rounding may lift a score above its bound."""


def best_places(scores: Floats, k: int) -> NDArray[np.int64]:
    """The places of the k highest scores, best first; of equal scores the later place is first.

    Places follow docnos, so that is the tie rule of runs.

    >>> best_places(np.array([1.0, 3.0, 2.0, 3.0], np.float32), 3).tolist()
    [3, 1, 2]
    """
    found = np.arange(len(scores))
    if len(scores) > k:
        found = np.flatnonzero(scores >= np.partition(scores, -k)[-k])
    return found[np.lexsort((-found, -scores[found]))][:k]


def best_with_residual(
    phi: Floats,
    k: int,
    weight: float,
    similarity: Similarity,
    allowed: Sequence[int] | None = None,
    *,
    chunk: int = 32,
) -> tuple[Places, Floats]:
    """The k best documents by φ + weight·similarity, best first, and their similarities.

    Args:
        phi: [N] φ of every document.
        k: documents wanted.
        weight: w; similarities lie between 0 and 1.
        similarity: gives the similarity of documents, by their places.
        allowed: the places of the documents allowed; None allows all.
        chunk: documents read together.
    """
    known = np.arange(len(phi)) if allowed is None else np.asarray(allowed, np.int64)
    scores = phi[known]
    if len(known) > k:
        lowest = np.partition(scores, -k)[-k]
        known = known[scores >= lowest - weight - SLACK]
    known = known[np.lexsort((-known, -phi[known]))]
    near, total = np.zeros(0, np.float32), np.zeros(0, np.float32)
    for start in range(0, len(known), chunk):
        some = known[start : start + chunk]
        if start >= k and phi[some[0]] + weight + SLACK < np.partition(total, -k)[-k]:
            break
        near = np.concatenate([near, similarity(some)])
        total = (phi[known[: len(near)]] + np.float32(weight) * near).astype(np.float32)
    read = known[: len(near)]
    order = np.lexsort((-read, -total))[:k]
    return read[order], near[order]
