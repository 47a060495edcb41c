"""Residual codes from codebooks: those of faiss, and with a wide beam the best of all sequences."""

from itertools import product

import numpy as np
import pytest

from gr2.model.product_quantiser import one_thread
from gr2.model.residual_encoder import BLOCK, encode_residual


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def rebuilt(codes, books):
    return books[np.arange(len(books)), codes].sum(1)


def test_codes_are_those_of_faiss():
    faiss = pytest.importorskip("faiss", reason="faiss is not installed: pip install 'gr2[docids]'")
    vectors = drawn(BLOCK + 300, 12)
    quantiser = faiss.ResidualQuantizer(12, 3, 8)
    quantiser.cp.min_points_per_centroid = 1
    with one_thread():
        quantiser.train(vectors)
        expected = quantiser.compute_codes(vectors)  # 8 bits a code
    books = faiss.vector_to_array(quantiser.codebooks).reshape(3, 256, 12)
    found = encode_residual(vectors, books)
    assert (found == expected).all(1).mean() > 0.99, "sums may round differently"
    errors = [float(np.square(rebuilt(codes, books) - vectors).sum()) for codes in (found, expected)]
    assert errors[0] == pytest.approx(errors[1], rel=1e-4)


def test_a_wide_beam_finds_the_best_of_all_sequences():
    books, vectors = drawn(3, 4, 5), drawn(30, 5, seed=1)
    every = np.array(list(product(range(4), repeat=3)))
    far = np.square(vectors[:, None] - rebuilt(every, books)).sum(2)
    np.testing.assert_array_equal(encode_residual(vectors, books, beam=64), every[far.argmin(1)])
    greedy = np.square(vectors - rebuilt(encode_residual(vectors, books, beam=1), books)).sum()
    assert greedy > far.min(1).sum() + 1, "the nearest code is not always the best start"


def test_a_beam_of_one_takes_the_nearest_code_at_each_place():
    books, vectors = drawn(3, 4, 5), drawn(30, 5, seed=1)
    for vector, codes in zip(vectors, encode_residual(vectors, books, beam=1), strict=True):
        rest = vector
        for book, code in zip(books, codes, strict=True):
            assert code == np.square(rest - book).sum(1).argmin()
            rest = rest - book[code]


def test_nothing_to_encode():
    assert encode_residual(np.zeros((0, 5), np.float32), drawn(3, 4, 5)).shape == (0, 3)
