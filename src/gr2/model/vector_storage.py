"""How the vectors of look-ahead are stored: in 32 bits, in 8 bits, product-quantised, or as codes.

Every storage computes dot products with 32-bit queries. `Int8Vectors` has one scale per vector;
`ProductVectors` looks up each part's dot product in a table (asymmetric distance computation), and so does
`CodeVectors`, whose codes have vectors of full width that can be learned (`training/distil.py`). Learning and
selection use `FullVectors`; `stored_as` is applied to what they return.

Shapes: N vectors, Q queries, W width, M parts of a vector, K = 256 centres per part.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gr2.model.config import VectorStorage
from gr2.model.product_quantiser import faiss, product_quantised

Floats = NDArray[np.float32]
Arrays = dict[str, NDArray[Any]]
ALL = slice(None)
BITS = 8
PART = 8
"""Dimensions of a part, unless told otherwise: 48 bytes for 384 dimensions."""
FEW = 8
"""Queries up to which 8-bit vectors are multiplied as they are; for more, blocks are first widened."""
BLOCK = 512
"""Vectors widened at a time."""


class Stored(Protocol):
    """Vectors that can be multiplied by queries."""

    @property
    def nbytes(self) -> int:
        """The size in bytes, with scales and centres."""

    @property
    def width(self) -> int:
        """W, the dimensions of a query that they are multiplied by."""

    def dot(self, queries: Floats, rows: slice = ALL) -> Floats:
        """The dot products of queries [Q, W] with these vectors [Q, rows]."""

    def arrays(self, name: str) -> Arrays:
        """What is saved under this name; `read_stored` reads it."""


@dataclass(frozen=True)
class FullVectors:
    """Vectors of 32 bits per dimension."""

    rows: Floats
    """[N, W]"""

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return self.rows.nbytes

    @property
    def width(self) -> int:
        """W, the dimensions of a query that they are multiplied by."""
        return int(self.rows.shape[1])

    def dot(self, queries: Floats, rows: slice = ALL) -> Floats:
        """The dot products of queries [Q, W] with these vectors [Q, rows]."""
        found: Floats = queries @ self.rows[rows].T
        return found

    def arrays(self, name: str) -> Arrays:
        """What is saved under this name."""
        return {name: np.ascontiguousarray(self.rows)}


@dataclass(frozen=True)
class Int8Vectors:
    """Vectors of 8 bits per dimension: integers from −127 to 127, times the scale of each vector."""

    codes: NDArray[np.int8]
    """[N, W]"""
    scales: Floats
    """[N]"""

    @classmethod
    def of(cls, rows: Floats) -> "Int8Vectors":
        """Quantise vectors [N, W]; no dimension moves by more than half a scale."""
        scales = np.maximum(np.abs(rows).max(1, initial=0.0), 1e-12) / np.float32(127)
        return cls(np.round(rows / scales[:, None]).astype(np.int8), scales.astype(np.float32))

    @property
    def nbytes(self) -> int:
        """The size in bytes, with the scales."""
        return self.codes.nbytes + self.scales.nbytes

    @property
    def width(self) -> int:
        """W, the dimensions of a query that they are multiplied by."""
        return int(self.codes.shape[1])

    def dot(self, queries: Floats, rows: slice = ALL) -> Floats:
        """The dot products of queries [Q, W] with these vectors [Q, rows]."""
        codes = self.codes[rows]
        found = few_dots(queries, codes) if len(queries) <= FEW else many_dots(queries, codes)
        found *= self.scales[rows]
        return found

    def arrays(self, name: str) -> Arrays:
        """What is saved under this name."""
        return {f"{name}.int8": self.codes, f"{name}.scales": self.scales}


@dataclass(frozen=True)
class ProductVectors:
    """Product-quantised vectors: each part of a vector is the number of a centre, in one byte."""

    codes: NDArray[np.uint8]
    """[N, M]"""
    centres: Floats
    """[M, K, ⌈W / M⌉]; the last part is padded with zeros."""

    @classmethod
    def of(cls, rows: Floats, parts: int | None = None) -> "ProductVectors":
        """Train on vectors [N, W] and quantise them; None makes a part of every 8 dimensions."""
        check_storage("pq", len(rows))
        return cls(*product_quantised(rows, parts or -(-rows.shape[1] // PART), BITS))

    @property
    def nbytes(self) -> int:
        """The size in bytes, with the centres."""
        return self.codes.nbytes + self.centres.nbytes

    @property
    def width(self) -> int:
        """W, the dimensions of a query that they are multiplied by."""
        return int(self.centres.shape[0] * self.centres.shape[2])

    def dot(self, queries: Floats, rows: slice = ALL) -> Floats:
        """The dot products of queries [Q, W] with these vectors [Q, rows]."""
        parts, _, each = self.centres.shape
        wide = np.pad(queries, ((0, 0), (0, parts * each - queries.shape[1])))
        split = wide.reshape(len(queries), parts, each).transpose(1, 0, 2)  # [M, Q, ⌈W / M⌉]
        tables = np.matmul(split, self.centres.transpose(0, 2, 1)).transpose(1, 0, 2)  # [Q, M, K]
        found = np.empty((len(queries), len(self.codes[rows])), np.float32)
        _look_up(np.ascontiguousarray(tables, np.float32), self.codes[rows], found)
        return found

    def arrays(self, name: str) -> Arrays:
        """What is saved under this name."""
        return {f"{name}.codes": self.codes, f"{name}.centres": self.centres}


@dataclass(frozen=True)
class CodeVectors:
    """Documents as sequences of codes, each with a vector; a document's vector is the sum of its codes'.

    ⟨q̂, v_d⟩ is then the sum of ⟨q̂, e⟩ over the codes of the document: what a linear decoder would give its
    tokens as logits. Nothing is kept per document but its codes.
    """

    codes: NDArray[np.uint8]
    """[N, M]"""
    vectors: Floats
    """[M, K, W]"""

    @property
    def nbytes(self) -> int:
        """The size in bytes, with the vectors of the codes."""
        return self.codes.nbytes + self.vectors.nbytes

    @property
    def width(self) -> int:
        """W, the dimensions of a query that they are multiplied by."""
        return int(self.vectors.shape[2])

    def dot(self, queries: Floats, rows: slice = ALL) -> Floats:
        """The dot products of queries [Q, W] with these vectors [Q, rows]."""
        places, codes, width = self.vectors.shape
        tables = (queries @ self.vectors.reshape(places * codes, width).T).reshape(-1, places, codes)
        found = np.empty((len(queries), len(self.codes[rows])), np.float32)
        _look_up(np.ascontiguousarray(tables, np.float32), self.codes[rows], found)
        return found

    def arrays(self, name: str) -> Arrays:
        """What is saved under this name."""
        return {f"{name}.sequences": self.codes, f"{name}.code_vectors": self.vectors}


def stored_as(vectors: Stored, storage: VectorStorage, parts: int | None = None) -> Stored:
    """Vectors of 32 bits in a storage; `parts` is the number of bytes of a product-quantised vector.

    Codes are a storage of their own, and stay as they are.
    """
    if isinstance(vectors, CodeVectors):
        return vectors
    if not isinstance(vectors, FullVectors):
        raise ValueError(
            f"expected vectors of 32 bits, found {type(vectors).__name__}: they lost bits before"
        )
    if storage == "fp32":
        return vectors
    return Int8Vectors.of(vectors.rows) if storage == "int8" else ProductVectors.of(vectors.rows, parts)


def read_stored(arrays: Mapping[str, NDArray[Any]], name: str) -> Stored | None:
    """What `arrays(name)` returned, in whichever storage; None if there is nothing under this name."""
    if name in arrays:
        return FullVectors(arrays[name])
    if f"{name}.int8" in arrays:
        return Int8Vectors(arrays[f"{name}.int8"], arrays[f"{name}.scales"])
    if f"{name}.sequences" in arrays:
        return CodeVectors(arrays[f"{name}.sequences"], arrays[f"{name}.code_vectors"])
    if f"{name}.codes" in arrays:
        return ProductVectors(arrays[f"{name}.codes"], arrays[f"{name}.centres"])
    return None


def widened(vectors: Stored) -> Floats:
    """The vectors as 32-bit floats [N, W], whatever they are stored in."""
    rows: Floats = np.ascontiguousarray(vectors.dot(np.eye(vectors.width, dtype=np.float32)).T)
    return rows


def check_storage(storage: VectorStorage, count: int) -> None:
    """Check that so many vectors can be stored so, before any of them is computed."""
    if storage != "pq":
        return
    faiss()
    if count < 2**BITS:
        raise ValueError(
            f"product quantisation learns {2**BITS} centres from at least as many documents, found {count}: "
            "choose the storage int8 or fp32"
        )


def few_dots(queries: Floats, codes: NDArray[np.int8]) -> Floats:
    """Queries [Q, W] times 8-bit vectors [N, W], read once for all queries → [Q, N]."""
    found = np.empty((len(queries), len(codes)), np.float32)
    _few_dots(np.ascontiguousarray(queries, np.float32), codes, found)
    return found


def many_dots(queries: Floats, codes: NDArray[np.int8]) -> Floats:
    """`few_dots` by matrix products: faster for many queries, because blocks are widened once for all."""
    found = np.empty((len(queries), len(codes)), np.float32)
    for start in range(0, len(codes), BLOCK):
        part = slice(start, start + BLOCK)
        found[:, part] = queries @ codes[part].astype(np.float32).T
    return found


@njit(cache=True, nogil=True, fastmath=True)  # type: ignore[untyped-decorator, unused-ignore]
def _few_dots(queries: Floats, codes: NDArray[np.int8], out: Floats) -> None:
    for n in range(len(codes)):
        row = codes[n]
        for q in range(len(queries)):
            total = np.float32(0)
            for d in range(queries.shape[1]):
                total += queries[q, d] * np.float32(row[d])
            out[q, n] = total


@njit(cache=True, nogil=True, fastmath=True)  # type: ignore[untyped-decorator, unused-ignore]
def _look_up(tables: Floats, codes: NDArray[np.uint8], out: Floats) -> None:
    for q in range(len(tables)):
        table = tables[q]
        for n in range(len(codes)):
            total = np.float32(0)
            for m in range(codes.shape[1]):
                total += table[m, codes[n, m]]
            out[q, n] = total
