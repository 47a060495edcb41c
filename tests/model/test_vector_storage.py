"""Every storage gives the dot products of the vectors that it stands for, and says its true size."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from gr2.data.collection import Document
from gr2.model.config import LookAheadConfig
from gr2.model.document_vectors import Pieces
from gr2.model.look_ahead import LookAhead
from gr2.model.look_ahead_io import load_look_ahead, save_look_ahead
from gr2.model.vector_storage import (
    FEW,
    FullVectors,
    Int8Vectors,
    ProductVectors,
    few_dots,
    many_dots,
    read_stored,
    stored_as,
)


def unit(count, width, seed=0):
    rows = np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def decoded(stored, width):
    """The vectors that a storage stands for, written out."""
    if isinstance(stored, Int8Vectors):
        return stored.codes.astype(np.float64) * stored.scales[:, None]
    parts = [stored.centres[m][stored.codes[:, m]] for m in range(stored.codes.shape[1])]
    return np.concatenate(parts, axis=1)[:, :width]


@pytest.mark.parametrize("count", [1, FEW, FEW + 1, 40])
@pytest.mark.parametrize(("storage", "width"), [("int8", 20), ("pq", 24), ("pq", 20)])
def test_products_are_those_of_the_vectors_that_are_stored(storage, width, count):
    rows, queries = unit(600, width), unit(count, width, 1)
    stored = stored_as(FullVectors(rows), storage)
    wanted = queries @ decoded(stored, width).T
    np.testing.assert_allclose(stored.dot(queries), wanted, atol=1e-5)
    np.testing.assert_allclose(stored.dot(queries, slice(7, 90)), wanted[:, 7:90], atol=1e-5)
    assert stored.dot(queries).dtype == np.float32


def test_8_bits_lose_at_most_half_a_step_and_keep_zero():
    rows = unit(50, 16) * np.linspace(0.01, 9, 50, dtype=np.float32)[:, None]
    rows[3] = 0
    stored = Int8Vectors.of(rows)
    steps = np.abs(rows).max(1) / 127
    assert (np.abs(decoded(stored, 16) - rows) <= steps[:, None] * 0.5001).all()
    assert np.abs(stored.codes).max(1)[np.arange(50) != 3].min() == 127, "the whole range is used"
    assert not stored.dot(unit(2, 16))[:, 3].any()


def test_both_ways_to_multiply_8_bits_agree():
    queries, codes = unit(5, 33), np.random.default_rng(2).integers(-127, 128, (1100, 33)).astype(np.int8)
    np.testing.assert_allclose(few_dots(queries, codes), many_dots(queries, codes), atol=1e-3)
    np.testing.assert_allclose(few_dots(queries, codes), queries @ codes.T.astype(np.float32), atol=1e-3)


def test_product_codes_are_the_nearest_centres_and_more_bytes_are_closer():
    rows = unit(700, 24)
    stored = ProductVectors.of(rows)
    assert stored.codes.shape == (700, 3) and stored.centres.shape == (3, 256, 8)
    for m in range(3):
        part = rows[:, m * 8 : m * 8 + 8]
        away = np.linalg.norm(part[:, None] - stored.centres[m], axis=2)
        np.testing.assert_allclose(away[np.arange(700), stored.codes[:, m]], away.min(1), atol=1e-5)
    wide = ProductVectors.of(rows, 12)
    assert wide.codes.shape == (700, 12)
    assert np.abs(decoded(wide, 24) - rows).mean() < np.abs(decoded(stored, 24) - rows).mean()


@pytest.mark.parametrize("storage", ["fp32", "int8", "pq"])
def test_the_same_vectors_give_the_same_bytes_and_survive_saving(storage):
    rows = unit(300, 20)
    one, same = (stored_as(FullVectors(rows.copy()), storage).arrays("x") for _ in range(2))
    assert {name: array.tobytes() for name, array in one.items()} == {
        name: array.tobytes() for name, array in same.items()
    }
    read = read_stored(one, "x")
    assert sum(array.nbytes for array in one.values()) == read.nbytes
    np.testing.assert_array_equal(
        read.dot(unit(3, 20, 1)), stored_as(FullVectors(rows), storage).dot(unit(3, 20, 1))
    )
    assert read_stored(one, "y") is None


def test_sizes_are_true():
    rows = unit(1000, 32)
    assert stored_as(FullVectors(rows), "fp32").nbytes == 1000 * 32 * 4
    assert stored_as(FullVectors(rows), "int8").nbytes == 1000 * (32 + 4)
    assert stored_as(FullVectors(rows), "pq").nbytes == 1000 * 4 + 4 * 256 * 8 * 4
    assert stored_as(FullVectors(rows), "pq", 16).nbytes == 1000 * 16 + 16 * 256 * 2 * 4


def test_what_cannot_be_stored_so_says_what_to_choose(monkeypatch):
    with pytest.raises(ValueError, match="at least as many documents, found 255: choose the storage int8"):
        stored_as(FullVectors(unit(255, 8)), "pq")
    small = stored_as(FullVectors(unit(256, 8)), "pq")
    with pytest.raises(ValueError, match="found ProductVectors"):
        stored_as(small, "int8")
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match=r"pip install 'gr2\[docids\]'"):
        stored_as(FullVectors(unit(256, 8)), "pq")
    assert small.dot(unit(1, 8)).shape == (1, 256), "search needs no faiss"


@pytest.fixture
def full():
    documents = [Document(f"d{i:03}", text=f"word{i % 7}") for i in range(300)]
    pieces = Pieces(FullVectors(unit(600, 16, 3)), np.arange(0, 601, 2), 0.4)
    plain = LookAhead.build(documents, unit(300, 16), LookAheadConfig(words=0.5), pieces=pieces)
    return replace(plain, offsets=FullVectors(unit(300, 16, 4)), centre=unit(1, 16, 5)[0])


def test_look_ahead_in_8_bits_is_close_and_in_codes_its_offsets_have_8_bits(full):
    texts, queries = ["word1", "word2"], unit(2, 16, 9)
    small, codes = full.stored("int8"), full.stored("pq")
    for each in (small.vectors, small.pieces.parts, small.offsets, codes.offsets):
        assert isinstance(each, Int8Vectors)
    assert isinstance(codes.vectors, ProductVectors) and isinstance(codes.pieces.parts, ProductVectors)
    wanted = full.scores(texts, queries)
    np.testing.assert_allclose(small.scores(texts, queries), wanted, atol=0.3)
    assert np.corrcoef(codes.scores(texts, queries)[0], wanted[0])[0, 1] > 0.9
    assert full.stored("fp32").vectors is full.vectors and full.stored("pq", 4).vectors.codes.shape[1] == 4
    assert small.nbytes["vectors"] == 900 * (16 + 4) + full.pieces.starts.nbytes
    assert small.nbytes["learned"] == 300 * (16 + 4) and small.nbytes["words"] == full.nbytes["words"]


@pytest.mark.parametrize("storage", ["int8", "pq"])
def test_a_stored_look_ahead_is_the_same_after_saving(full, storage, tmp_path):
    texts, queries = ["word1", "word2"], unit(2, 16, 9)
    stored = full.stored(storage)
    save_look_ahead(stored, tmp_path / "a")
    again = load_look_ahead(tmp_path / "a")
    np.testing.assert_array_equal(again.scores(texts, queries), stored.scores(texts, queries))
    assert again.nbytes == stored.nbytes
    save_look_ahead(again, tmp_path / "b")
    assert (tmp_path / "a" / "manifest.json").read_bytes() == (tmp_path / "b" / "manifest.json").read_bytes()
