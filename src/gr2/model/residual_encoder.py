"""Vectors → residual codes, from the codebooks that a quantiser learned: no training, and no faiss.

The codes of `residual_codes` are made here too, so a document that comes later gets those that it would have
had. At each place the code is chosen whose vector is nearest to what the codes before it have left over. A
beam keeps several sequences until the end, because the nearest code may not begin the best sequence.
faiss gives the same codes for the same codebooks.

Shapes: N vectors, W width, M places, K codes at a place, B sequences in the beam.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
BEAM = 5
"""faiss' default; a wider beam changes little and its cost grows linearly."""
BLOCK = 1024
"""Vectors encoded at a time."""


def encode_residual(vectors: Floats, books: Floats, *, beam: int = BEAM) -> Ints:
    """The codes of vectors [N, W] by codebooks [M, K, W] → [N, M].

    >>> books = np.array([[[4.0], [8.0]], [[-1.0], [1.0]]], np.float32)
    >>> encode_residual(np.array([[3.0], [9.0]], np.float32), books).tolist()
    [[0, 0], [1, 1]]
    """
    starts = range(0, len(vectors), BLOCK)
    blocks = [_encoded(vectors[start : start + BLOCK], books, beam) for start in starts]
    return np.concatenate([np.zeros((0, len(books)), np.int64), *blocks])


def _encoded(vectors: Floats, books: Floats, beam: int) -> Ints:
    rest = vectors[:, None]  # [N, B, W] what is left over
    size = np.square(rest).sum(2)  # [N, B] its squared length
    codes = np.zeros((len(vectors), 1, 0), np.int64)  # [N, B, places so far]
    for book in books:
        count, width, choices = *rest.shape[:2], len(book)
        near = (rest.reshape(count * width, -1) @ book.T).reshape(count, width, choices)
        far = size[:, :, None] + np.square(book).sum(1) - 2 * near  # [N, B, K]
        far = far.reshape(count, width * choices)
        kept = min(beam, width * choices)
        best = np.argpartition(far, kept - 1, axis=1)[:, :kept]
        best = np.take_along_axis(best, np.take_along_axis(far, best, 1).argsort(1, kind="stable"), 1)
        row, code = best // choices, best % choices
        codes = np.concatenate([np.take_along_axis(codes, row[:, :, None], 1), code[:, :, None]], 2)
        rest = np.take_along_axis(rest, row[:, :, None], 1) - book[code]
        size = np.take_along_axis(far, best, 1)
    return codes[:, 0]
