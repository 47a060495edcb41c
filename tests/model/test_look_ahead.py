"""φ is the sum of its views, each as its formula says, and survives the disk."""

from dataclasses import replace

import numpy as np
import pytest

from gr2.bm25 import BM25
from gr2.data.collection import Document
from gr2.model.config import LookAheadConfig
from gr2.model.document_vectors import Pieces
from gr2.model.look_ahead import FLOOR, LookAhead, Memory
from gr2.model.look_ahead_io import load_look_ahead, save_look_ahead
from gr2.model.vector_storage import FullVectors

DOCUMENTS = [Document(f"d{i}", text=f"{word} fruit") for i, word in enumerate(["sour", "sweet", "hot"])]
TEXTS = ["sour fruit", "hot", ""]


def unit(rows):
    rows = np.asarray(rows, np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture
def parts():
    draw = np.random.default_rng(0)
    vectors, queries, known = (unit(draw.standard_normal((n, 4))) for n in (3, 3, 5))
    judged = [{"d0": 3, "d1": 1}, {"d1": 2}, {"d2": 1, "gone": 3}, {}, {"d0": 0}]
    memory = Memory.of(known, judged, {"d0": 0, "d1": 1, "d2": 2})
    return vectors, queries, known, memory, draw.standard_normal((3, 4)).astype(np.float32)


def test_without_learning_it_is_vectors_and_words(parts):
    vectors, queries, *_ = parts
    plain = LookAhead.build(DOCUMENTS, vectors, LookAheadConfig(scale=7.0, words=0.5))
    run = BM25.index(DOCUMENTS).search(dict(zip("abc", TEXTS, strict=True)), 3).to_dict()
    words = [[run[qid].get(document.docno, 0.0) for document in DOCUMENTS] for qid in "abc"]
    np.testing.assert_allclose(
        plain.scores(TEXTS, queries), 7 * queries @ vectors.T + 0.5 * np.array(words), rtol=1e-5, atol=1e-5
    )
    alone = LookAhead.build(DOCUMENTS, vectors, LookAheadConfig(words=0.0))
    assert set(alone.views(TEXTS, queries)) == {"vectors"} and alone.bm25 is None


def test_memory_is_the_log_of_what_neighbours_judged(parts):
    _, queries, known, memory, _ = parts
    gains = np.zeros((5, 3))
    gains[0] = [1.0, 1 / 7, 0]
    gains[1, 1], gains[2, 2] = 1.0, 1.0
    found = memory.scores(queries, 2, 0.05)
    for row, query in enumerate(queries):
        cosines = known @ query
        near = np.argsort(-cosines)[:2]
        weight = np.exp(cosines[near] / 0.05)
        expected = np.log(weight @ gains[near] / weight.sum() + FLOOR) - np.log(FLOOR)
        np.testing.assert_allclose(found[row], expected, rtol=1e-3, atol=1e-4)


def test_the_gate_trusts_what_was_learned_near_training_queries(parts):
    vectors, queries, known, memory, offsets = parts
    config = LookAheadConfig(words=0.0, gate=(0.2, 0.7), memory=0.5, neighbours=2)
    full = LookAhead(
        config, ("d0", "d1", "d2"), FullVectors(vectors), None, None, FullVectors(offsets), memory
    )
    views, highest = full.views(TEXTS, queries), (queries @ known.T).max(1)
    trust = np.clip((highest - 0.2) / 0.5, 0, 1)
    assert 0 < trust.min() < 1 or trust.max() > 0
    np.testing.assert_allclose(views["learned"], trust[:, None] * 20 * (queries @ offsets.T), rtol=1e-4)
    np.testing.assert_allclose(
        views["memory"], trust[:, None] * 0.5 * memory.scores(queries, 2, 0.05), rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(full.scores(TEXTS, queries), sum(views.values()), rtol=1e-5)
    assert (full.with_config(LookAheadConfig(gate=None)).trust(queries) == 1).all()
    far = full.trust(-queries * 0)
    assert (far == 0).all()


def test_it_is_read_as_it_was_written(parts, tmp_path):
    vectors, queries, _, memory, offsets = parts
    config = LookAheadConfig(gate=(0.4, 0.8), memory=0.2)
    plain = LookAhead.build(DOCUMENTS, vectors, config)
    pieces = Pieces(FullVectors(np.tile(vectors, (2, 1))), np.array([0, 1, 3, 6]), 0.3)
    full = LookAhead(
        config,
        plain.docnos,
        plain.vectors,
        pieces,
        plain.bm25,
        FullVectors(offsets),
        memory,
        centre=queries.mean(0),
    )
    for name, one in {"plain": plain, "full": full, "small": full.stored("int8")}.items():
        save_look_ahead(one, tmp_path / name)
        again = load_look_ahead(tmp_path / name)
        assert again.config == one.config and again.docnos == one.docnos
        np.testing.assert_array_equal(again.scores(TEXTS, queries), one.scores(TEXTS, queries))
    assert set(full.nbytes) == {"vectors", "words", "learned", "memory"} and min(full.nbytes.values()) > 0
    (tmp_path / "full" / "look_ahead.json").write_text("{}")
    with pytest.raises(ValueError, match="changed since it was written"):
        load_look_ahead(tmp_path / "full")


def test_the_best_piece_of_a_document_counts_beside_its_vector(parts):
    vectors, queries, *_ = parts
    draw = np.random.default_rng(4)
    parts = unit(draw.standard_normal((6, 4)))
    pieces = Pieces(FullVectors(parts), np.array([0, 1, 3, 6]), 0.3)
    full = LookAhead.build(DOCUMENTS, vectors, LookAheadConfig(scale=7.0, words=0.0), pieces=pieces)
    found = full.scores(TEXTS, queries)
    for row, query in enumerate(queries):
        for place, (a, b) in enumerate([(0, 1), (1, 3), (3, 6)]):
            expected = 7 * (0.3 * query @ vectors[place] + 0.7 * max(parts[a:b] @ query))
            assert found[row, place] == pytest.approx(expected, abs=1e-4)
    assert full.nbytes["vectors"] == vectors.nbytes + parts.nbytes + pieces.starts.nbytes


def test_ranks_are_those_of_the_softmax_and_filters_do_not_change_scores(parts):
    vectors, queries, _, memory, offsets = parts
    config = LookAheadConfig(gate=(0.0, 0.5), memory=0.3)
    full = LookAhead(
        config,
        ("d0", "d1", "d2"),
        FullVectors(vectors),
        None,
        BM25.index(DOCUMENTS),
        FullVectors(offsets),
        memory,
        queries.mean(0),
    )
    found = full.rank(TEXTS, queries, [3, 2, 3], [None, None, [0, 2]])
    phi = full.scores(TEXTS, queries).astype(float)
    for row, (places, scores, views) in enumerate(found):
        log_p = phi[row] - np.log(np.exp(phi[row]).sum())
        order = np.argsort(-phi[row])
        wanted = [i for i in order if row < 2 or i != 1][: [3, 2, 3][row]]
        assert list(places) == wanted
        np.testing.assert_allclose(scores, log_p[wanted], atol=1e-3)
        np.testing.assert_allclose([sum(each.values()) for each in views], phi[row][wanted], atol=1e-3)
        assert set(views[0]) == {"vectors", "words", "learned", "memory"}
    nothing = replace(full, offsets=None, memory=None).rank(
        ["", "hot"], np.zeros((2, 4), np.float32), [2, 2], [None, None]
    )
    assert nothing[0] == ((), (), ()) and nothing[1][0][0] == 2, "words alone are enough"
