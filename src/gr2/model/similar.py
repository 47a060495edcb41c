"""A document → the documents nearest to it, by the vectors that look-ahead keeps; no query is involved."""

import numpy as np

from gr2.model.bounded_search import best_places
from gr2.model.look_ahead import LookAhead


def similar(look_ahead: LookAhead, place: int, k: int) -> list[tuple[int, float]]:
    """The k documents with the highest cosine to the one at a place, best first, without itself.

    A document without a word has no vector, so nothing is similar to it.
    """
    vectors = look_ahead.vectors
    unit = np.eye(vectors.width, dtype=np.float32)
    own = np.ascontiguousarray(vectors.dot(unit, slice(place, place + 1)).T)  # [1, W], in any storage
    length = float(np.linalg.norm(own))
    if not length:
        return []
    cosines = vectors.dot(own / np.float32(length))[0]
    best = [int(each) for each in best_places(cosines, k + 1) if each != place]
    return [(each, float(cosines[each])) for each in best[:k]]
