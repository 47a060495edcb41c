"""Features that documents share, along which offsets carry over to documents without judgements.

Shapes: N documents, M features.
"""

from collections.abc import Sequence

import numpy as np
from scipy import sparse

from gr2.bm25 import BM25
from gr2.model.vector_storage import CodeVectors

MOST = 0.5
"""A term in more than this share of the documents tells none of them apart."""


def term_features(bm25: BM25) -> sparse.csr_matrix:
    """The BM25 weights of each document's terms, with rows of unit length [N, M].

    Terms of a single document are left out, because nothing is shared along them; so are terms of more than
    half of the documents.
    """
    weights = bm25.weights()
    frequency = np.diff(weights.tocsc().indptr)
    shared = (frequency > 1) & (frequency <= max(2.0, MOST * weights.shape[0]))
    return _unit_rows(weights[:, np.flatnonzero(shared)])


def prefix_features(tokens: Sequence[Sequence[int]]) -> sparse.csr_matrix:
    """The prefixes of each document's docid that other documents have too, with rows of unit length [N, M].

    >>> prefix_features([[1, 2], [1, 3], [4, 2]]).toarray().tolist()
    [[1.0], [1.0], [0.0]]
    """
    columns: dict[tuple[int, ...], list[int]] = {}
    for row, docid in enumerate(tokens):
        for end in range(1, len(docid) + 1):
            columns.setdefault(tuple(docid[:end]), []).append(row)
    common = [rows for rows in columns.values() if 1 < len(rows) < len(tokens)]
    places = [row for rows in common for row in rows]
    column = np.repeat(np.arange(len(common)), [len(rows) for rows in common])
    ones = np.ones(len(places), np.float32)
    return _unit_rows(sparse.csr_matrix((ones, (places, column)), shape=(len(tokens), len(common))))


def code_features(coded: CodeVectors) -> sparse.csr_matrix:
    """Which codes each document has, as ones [N, places · codes]."""
    count, places = coded.codes.shape
    codes = coded.vectors.shape[1]
    columns = (coded.codes.astype(np.int64) + codes * np.arange(places)).ravel()
    rows = np.repeat(np.arange(count), places)
    ones = np.ones(count * places, np.float32)
    return sparse.csr_matrix((ones, (rows, columns)), shape=(count, places * codes))


def _unit_rows(matrix: sparse.csr_matrix) -> sparse.csr_matrix:
    length = np.sqrt(np.asarray(matrix.multiply(matrix).sum(1))).ravel()
    scaled = sparse.diags(1 / np.where(length > 0, length, 1.0)) @ matrix
    return sparse.csr_matrix(scaled, dtype=np.float32)
