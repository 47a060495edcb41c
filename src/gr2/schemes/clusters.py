"""Document vectors → codes: a path through hierarchical k-means, product or residual quantisation.

Vectors come in the order of sorted docnos, so the order of the corpus does not matter. faiss is deterministic
only for a fixed seed and number of threads; here it runs with one thread.

Shapes: N documents, P vector width, M positions of a docid, K codes per position.
"""

import numpy as np
from numpy.typing import NDArray

from gr2.model.product_quantiser import faiss, one_thread, product_quantised
from gr2.model.residual_encoder import BEAM, encode_residual
from gr2.model.vector_storage import CodeVectors

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
SAMPLE = 1 << 15
"""Vectors from which a residual quantiser learns, at most: 128 for each code."""


def kmeans_paths(vectors: Floats, *, branches: int, leaf: int, seed: int = 0) -> list[list[int]]:
    """Each row's path: its cluster (of `branches`) at every level, then its number within the last cluster.

    A cluster of more than `leaf` rows is split again (DSI: 10 and 100; NCI: 30 and 30). A cluster that
    k-means cannot split, because its vectors are all equal, is cut into equal parts in row order.
    """
    paths: list[list[int]] = [[] for _ in vectors]
    waiting = [np.arange(len(vectors))]
    with one_thread():
        while waiting:
            rows = waiting.pop()
            if len(rows) <= leaf:
                for number, row in enumerate(rows):
                    paths[row].append(number)
                continue
            for code, part in enumerate(_split(vectors, rows, branches, seed)):
                for row in part:
                    paths[row].append(code)
                if len(part):
                    waiting.append(part)
    return paths


def _split(vectors: Floats, rows: Ints, branches: int, seed: int) -> list[Ints]:
    k = min(branches, len(rows))
    cluster = _kmeans(vectors[rows], k, seed)
    parts = [rows[cluster == code] for code in range(k)]
    if max(map(len, parts)) == len(rows):
        return list(np.array_split(rows, k))
    return parts


def _kmeans(vectors: Floats, k: int, seed: int) -> Ints:
    """The cluster of each row [N]."""
    means = faiss().Kmeans(
        vectors.shape[1], k, niter=20, nredo=1, seed=seed, min_points_per_centroid=1, verbose=False
    )
    means.train(np.ascontiguousarray(vectors))
    cluster: Ints = means.index.search(np.ascontiguousarray(vectors), 1)[1][:, 0]
    return cluster


def product_codes(vectors: Floats, *, places: int, codes: int) -> tuple[Ints, Floats]:
    """Product quantisation (Ultron: 24 × 256): codes [N, M], and the vector of each code [M·K, P].

    Vectors are padded with zeros to a multiple of `places`.
    """
    bits = _bits(len(vectors), codes)
    found, centres = product_quantised(_at_least_two(vectors), places, bits)
    each = centres.shape[2]
    rows = np.zeros((places, codes, places * each), np.float32)
    for place in range(places):
        rows[place, : 2**bits, place * each : (place + 1) * each] = centres[place]
    return _unpacked(found[: len(vectors)], places, bits), rows.reshape(places * codes, -1)[
        :, : vectors.shape[1]
    ]


def residual_codes(vectors: Floats, *, places: int, codes: int) -> tuple[Ints, Floats]:
    """Residual quantisation (RIPOR: 32 × 256): codes [N, M], and the vector of each code [M·K, P].

    Of more than `SAMPLE` vectors, the codebooks learn from so many, drawn evenly.
    """
    bits = _bits(len(vectors), codes)
    sample = vectors[np.linspace(0, len(vectors) - 1, min(len(vectors), SAMPLE)).astype(np.int64)]
    quantiser = faiss().ResidualQuantizer(vectors.shape[1], places, bits)
    quantiser.train_type = faiss().ResidualQuantizer.Train_default
    quantiser.max_beam_size = BEAM
    quantiser.cp.min_points_per_centroid = 1
    with one_thread():
        quantiser.train(_at_least_two(sample))
    books = faiss().vector_to_array(quantiser.codebooks).reshape(places, 2**bits, vectors.shape[1])
    rows = np.zeros((places, codes, vectors.shape[1]), np.float32)
    rows[:, : 2**bits] = books
    return encode_residual(vectors, books), rows.reshape(places * codes, -1)


def residual_vectors(vectors: Floats, places: int) -> CodeVectors:
    """Vectors as residual codes of a byte each, in a storage that look-ahead can use."""
    codes, rows = residual_codes(vectors, places=places, codes=256)
    return CodeVectors(codes.astype(np.uint8), rows.reshape(places, 256, -1))


def _bits(documents: int, codes: int) -> int:
    """Bits per code: log2 of `codes`, or fewer if there are fewer documents than codes."""
    if codes < 2 or codes & (codes - 1):
        raise ValueError(f"expected a power of 2 as the number of codes, found {codes}")
    return max(1, min(codes.bit_length() - 1, documents.bit_length() - 1))


def _at_least_two(vectors: Floats) -> Floats:
    """A quantiser has at least two codes and needs two rows to train; a single row is repeated."""
    return np.ascontiguousarray(np.repeat(vectors, 2, 0) if len(vectors) == 1 else vectors)


def _unpacked(packed: NDArray[np.uint8], places: int, bits: int) -> Ints:
    """Codes [N, M] from the bit string of each row, lowest bits first."""
    flat = np.unpackbits(packed, axis=1, bitorder="little")[:, : places * bits]
    weights = 1 << np.arange(bits)
    found: Ints = flat.reshape(len(packed), places, bits) @ weights
    return found
