"""Vectors → product-quantised codes, by faiss: each part of a vector is replaced by its nearest centre.

faiss is deterministic only for a fixed number of threads; here it runs with one.

Shapes: N vectors, W width, M parts, K centres per part.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gr2.extras import extra

Floats = NDArray[np.float32]


def product_quantised(vectors: Floats, parts: int, bits: int) -> tuple[NDArray[np.uint8], Floats]:
    """Train on the vectors and quantise them; they are padded with zeros to a multiple of `parts`.

    Args:
        vectors: [N, W].
        parts: M.
        bits: log2 of K.

    Returns:
        The codes of each vector as a bit string [N, ⌈M·bits / 8⌉], and the centres [M, K, ⌈W / M⌉].
    """
    wide = np.ascontiguousarray(np.pad(vectors, ((0, 0), (0, -vectors.shape[1] % parts))))
    quantiser = faiss().ProductQuantizer(wide.shape[1], parts, bits)
    quantiser.cp.min_points_per_centroid = 1  # faiss would print a warning for small corpora
    with one_thread():
        quantiser.train(wide)
        codes = quantiser.compute_codes(wide)
    return codes, faiss().vector_to_array(quantiser.centroids).reshape(parts, 2**bits, -1)


@contextmanager
def one_thread() -> Iterator[None]:
    """The result of a float sum depends on the number of threads."""
    before = faiss().omp_get_max_threads()
    faiss().omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss().omp_set_num_threads(before)


def faiss() -> Any:
    """The library; an error names what to install."""
    with extra("docids", "codes from vectors need faiss"):
        import faiss as found
    return found
