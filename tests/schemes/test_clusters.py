"""Vectors become paths of clusters and codes of product or residual quantisers."""

from collections import Counter

import numpy as np
import pytest

from gr2.schemes.clusters import kmeans_paths, product_codes, residual_codes, residual_vectors


def some_vectors(number: int, width: int = 12, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((number, width)).astype(np.float32)


def assert_tree(paths: list[list[int]], branches: int, leaf: int) -> None:
    """All paths differ; what has more than `leaf` documents is split, what has not ends in a number."""
    assert len(set(map(tuple, paths))) == len(paths)
    sizes = Counter(tuple(path[:depth]) for path in paths for depth in range(len(path) + 1))
    for path in paths:
        for depth in range(len(path)):
            last = depth == len(path) - 1
            assert (sizes[tuple(path[:depth])] <= leaf) == last, "split exactly where there are too many"
            assert 0 <= path[depth] < (leaf if last else branches)
        assert sizes[tuple(path)] == 1


@pytest.mark.parametrize(
    ("number", "branches", "leaf"), [(1, 3, 5), (5, 3, 5), (6, 3, 5), (300, 4, 10), (200, 30, 1), (90, 2, 7)]
)
def test_clusters_larger_than_a_leaf_are_split(number, branches, leaf):
    vectors = some_vectors(number)
    paths = kmeans_paths(vectors, branches=branches, leaf=leaf)
    assert_tree(paths, branches, leaf)
    assert paths == kmeans_paths(vectors.copy(), branches=branches, leaf=leaf)


@pytest.mark.parametrize("others", [0, 1, 40])
def test_vectors_that_are_all_alike_are_split_too(others):
    vectors = np.concatenate([np.ones((200, 8), np.float32), some_vectors(others, 8)])
    paths = kmeans_paths(vectors, branches=3, leaf=5)
    assert_tree(paths, 3, 5)
    if not others:
        assert max(map(len, paths)) == 5, "200 → 67 → 23 → 8 → 3"
    assert_tree(kmeans_paths(np.zeros((50, 4), np.float32), branches=10, leaf=1), 10, 1)


def test_paths_of_neighbours_begin_alike():
    near = np.concatenate([some_vectors(20, 6, seed=i) + 50 * sign for i, sign in enumerate((-1, 1))])
    paths = kmeans_paths(near, branches=2, leaf=20)
    assert {path[0] for path in paths[:20]} != {path[0] for path in paths[20:]}
    assert all(path[0] == paths[0][0] for path in paths[:20]) and len({path[0] for path in paths}) == 2


def decoded(codes: np.ndarray, rows: np.ndarray, size: int) -> np.ndarray:
    """The sum of the vectors of each row's codes."""
    tokens = codes + np.arange(codes.shape[1]) * size
    return rows[tokens].sum(1)


@pytest.mark.parametrize("width", [12, 13])
@pytest.mark.parametrize("quantise", [product_codes, residual_codes])
def test_codes_are_what_vectors_are_made_of(quantise, width):
    vectors = some_vectors(500, width)
    errors = []
    for places in (1, 2, 4, 6):
        codes, rows = quantise(vectors, places=places, codes=16)
        assert codes.shape == (500, places) and rows.shape == (places * 16, width)
        assert rows.dtype == np.float32 and codes.min() >= 0 and codes.max() < 16
        errors.append(float(((decoded(codes, rows, 16) - vectors) ** 2).sum(1).mean()))
        chance = np.random.default_rng(places).integers(0, 16, codes.shape)
        wrong = float(((decoded(chance, rows, 16) - vectors) ** 2).sum(1).mean())
        assert errors[-1] < 0.8 * wrong, "any code would do as well"
    assert errors == sorted(errors, reverse=True) and errors[-1] < errors[0] / 2
    more = quantise(vectors, places=4, codes=64)
    assert float(((decoded(*more, 64) - vectors) ** 2).sum(1).mean()) < errors[2]


def test_of_many_vectors_a_sample_teaches_the_codebooks(monkeypatch):
    monkeypatch.setattr("gr2.schemes.clusters.SAMPLE", 100)
    vectors = some_vectors(500)
    codes, rows = residual_codes(vectors, places=2, codes=16)
    sample = vectors[np.linspace(0, 499, 100).astype(int)]
    few, expected = residual_codes(sample, places=2, codes=16)
    assert codes.shape == (500, 2) and np.array_equal(rows, expected)
    assert np.array_equal(codes[np.linspace(0, 499, 100).astype(int)], few)


def test_vectors_as_codes_are_what_look_ahead_multiplies():
    vectors = some_vectors(300)
    found, (codes, rows) = residual_vectors(vectors, 3), residual_codes(vectors, places=3, codes=256)
    assert np.array_equal(found.codes, codes) and found.codes.dtype == np.uint8
    queries = some_vectors(4, seed=1)
    np.testing.assert_allclose(
        found.dot(queries), queries @ decoded(codes, rows, 256).T, rtol=1e-4, atol=1e-4
    )


def test_product_codes_are_the_nearest_of_each_part():
    vectors = some_vectors(300, 8)
    codes, rows = product_codes(vectors, places=2, codes=8)
    for place in range(2):
        part = slice(4 * place, 4 * place + 4)
        book = rows[8 * place : 8 * place + 8]
        assert not np.delete(book, np.arange(4 * place, 4 * place + 4), axis=1).any()
        distance = ((vectors[:, None, part] - book[None, :, part]) ** 2).sum(-1)
        assert np.array_equal(distance.argmin(1), codes[:, place])


@pytest.mark.parametrize("quantise", [product_codes, residual_codes])
@pytest.mark.parametrize("number", [1, 2, 3, 7])
def test_fewer_documents_than_codes(quantise, number):
    vectors = some_vectors(number, 6)
    codes, rows = quantise(vectors, places=3, codes=256)
    assert codes.shape == (number, 3) and rows.shape == (768, 6)
    assert np.isfinite(rows).all() and codes.max() < max(2, number)
    again = quantise(vectors, places=3, codes=256)
    assert np.array_equal(codes, again[0]) and np.array_equal(rows, again[1])
    if number == 1:
        assert np.allclose(decoded(codes, rows, 256), vectors, atol=1e-4)


@pytest.mark.parametrize("codes", [0, 1, 3, 100])
def test_a_number_of_codes_that_is_no_power_of_two_is_refused(codes):
    for quantise in (product_codes, residual_codes):
        with pytest.raises(ValueError, match=f"power of 2 as the number of codes, found {codes}"):
            quantise(some_vectors(20), places=2, codes=codes)
