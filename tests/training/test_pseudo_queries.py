"""Pseudo-queries: what is sampled, and the weights that a teacher gives."""

from dataclasses import replace
from math import exp

import numpy as np
import pytest
from helpers import tiny

from gr2.bm25 import BM25Config
from gr2.data.collection import Document
from gr2.model.config import LookAheadConfig, VectorConfig
from gr2.model.document_vectors import Pieces, encoded_texts
from gr2.model.look_ahead import LookAhead
from gr2.model.vector_storage import FullVectors
from gr2.training.learner import Learner
from gr2.training.pseudo_queries import (
    PseudoQueries,
    PseudoQueryConfig,
    piece_queries,
    soft_graded,
    title_queries,
)
from gr2.training.regression import RegressionConfig

MADE = VectorConfig(words=3, pieces=4)
CONFIG = PseudoQueryConfig(nearest=3)
WIDTH = 8


class Fake:
    """A different unit vector for each text."""

    def __init__(self):
        self.read = []

    def encode(self, texts):
        self.read += texts
        rows = [np.random.default_rng(list(text.encode())).standard_normal(WIDTH) for text in texts]
        return np.array([row / np.linalg.norm(row) for row in rows], np.float32).reshape(-1, WIDTH)


def corpus(count=20):
    """Documents of up to four pieces; the first has no title, the last no word."""
    documents = [
        Document(f"d{i:02}", f"title{i}" if i else "", tiny.some_words(i, 3 * (1 + i % 4)))
        for i in range(count - 1)
    ]
    return [*documents, Document(f"d{count - 1:02}")]


def prepared():
    documents, encoder = corpus(), Fake()
    parts = [encoder.encode(encoded_texts(one, MADE)[1]) for one in documents]
    parts[-1][:] = 0
    pieces = Pieces(FullVectors(np.concatenate(parts)), np.cumsum([0, *map(len, parts)]), 0.5)
    vectors = encoder.encode([one.contents for one in documents])
    look = LookAhead.build(documents, vectors, LookAheadConfig(bm25=BM25Config(language="none")))
    return documents, look, pieces


def test_titles_are_sampled_and_only_the_sample_is_encoded():
    documents, _, _ = prepared()
    encoder = Fake()
    found = title_queries(documents, encoder, replace(CONFIG, most=7), skip={"d03", "d04"})
    assert len(found.texts) == 7 and encoder.read == found.texts and found.vectors.shape == (7, WIDTH)
    assert [documents[place].title for place in found.owners] == found.texts
    every = title_queries(documents, Fake(), CONFIG, skip={"d03", "d04"})
    assert sorted(every.owners) == [1, 2, *range(5, 19)], "all that have a title and are not skipped"
    again = title_queries(documents, Fake(), replace(CONFIG, most=7), skip={"d03", "d04"})
    assert again.texts == found.texts
    other = title_queries(documents, Fake(), replace(CONFIG, most=7, seed=1), skip={"d03", "d04"})
    assert other.texts != found.texts


def test_pieces_have_the_vectors_that_exist_and_documents_take_turns():
    documents, _, pieces = prepared()
    found = piece_queries(documents, pieces, MADE, replace(CONFIG, most=25), skip={"d05"})
    assert len(found.texts) == 25
    assert sorted(found.owners[:18]) == [i for i in range(19) if i != 5], "one of each document first"
    assert len(set(zip(found.texts, found.owners, strict=True))) == 25
    for text, vector, owner in zip(found.texts, found.vectors, found.owners, strict=True):
        assert text in encoded_texts(documents[owner], MADE)[1]
        np.testing.assert_array_equal(vector, Fake().encode([text])[0])
    every = piece_queries(documents, pieces, MADE, CONFIG)
    assert len(every.texts) == len(pieces.parts.rows) - 1, "all but that of the document without a word"


def test_pieces_of_another_configuration_are_refused():
    documents, _, pieces = prepared()
    with pytest.raises(ValueError, match="'d00' has 1 vectors of pieces, but 2 pieces"):
        piece_queries(documents, pieces, replace(MADE, words=2), CONFIG)


def test_a_teacher_grades_the_own_document_and_the_best_of_phi():
    documents, look, _ = prepared()
    queries = title_queries(documents, Fake(), CONFIG)
    asked = {}

    def teacher(query, texts):
        asked[query] = list(texts)
        return [0.0, *(-0.5 * place for place in range(1, len(texts)))]

    found = soft_graded(queries, look, documents, CONFIG, teacher=teacher)
    phi = look.scores(queries.texts, queries.vectors)
    for text, row, own, weights in zip(queries.texts, phi, queries.owners, found.judged, strict=True):
        best = [int(i) for i in np.argsort(-row, kind="stable")[:3] if i != own]
        assert asked[text] == [documents[i].contents for i in [own, *best]]
        expected = {look.docnos[i]: exp(-0.5 * place) for place, i in enumerate([own, *best])}
        assert weights == pytest.approx(expected) and all(type(w) is float for w in weights.values())
    assert found.texts == queries.texts and found.vectors is queries.vectors


def test_temperature_and_floor():
    documents, look, _ = prepared()
    queries = PseudoQueries(["bake"], Fake().encode(["bake"]), [4])

    def weights(**changes):
        config = replace(CONFIG, **changes)
        found = soft_graded(queries, look, documents, config, teacher=lambda q, texts: range(len(texts)))
        return sorted(found.judged[0].values(), reverse=True)

    assert weights() == pytest.approx([1, exp(-1), exp(-2), exp(-3)][: len(weights())])
    assert weights(floor=0.3) == pytest.approx([1, exp(-1)])
    assert weights(temperature=2.0, floor=0.3) == pytest.approx([1, exp(-0.5), exp(-1)])
    assert weights(floor=1.0) == [1.0]


def test_without_a_teacher_the_weights_are_those_of_phi():
    documents, look, pieces = prepared()
    queries = piece_queries(documents, pieces, MADE, CONFIG)
    config = replace(CONFIG, temperature=10.0, floor=1e-9)
    found = soft_graded(queries, look, documents, config)
    phi = look.scores(queries.texts, queries.vectors)
    for row, judged in zip(phi, found.judged, strict=True):
        places = [look.docnos.index(docno) for docno in judged]
        expected = np.exp((row[places] - row[places].max()) / 10)
        assert list(judged.values()) == pytest.approx(expected.tolist(), rel=1e-4)
        assert max(judged.values()) == 1.0 and int(row.argmax()) in places


@pytest.mark.parametrize("wrong", [[1.0], [float("nan")] * 4])
def test_a_teacher_without_a_score_for_each_text_is_refused(wrong):
    documents, look, _ = prepared()
    queries = PseudoQueries(["bake"], Fake().encode(["bake"]), [4])
    with pytest.raises(ValueError, match="finite scores from the teacher for 'bake'"):
        soft_graded(queries, look, documents, CONFIG, teacher=lambda q, texts: wrong)


def test_documents_in_another_order_are_refused():
    documents, look, _ = prepared()
    queries = PseudoQueries(["bake"], Fake().encode(["bake"]), [4])
    with pytest.raises(ValueError, match="not in the same order"):
        soft_graded(queries, look, documents[::-1], CONFIG)


def test_the_regression_learns_what_the_teacher_says():
    """The teacher likes the document after the one whose title it reads; nothing else knows of it."""
    documents, look, _ = prepared()
    queries = title_queries(documents, Fake(), CONFIG)
    after = {one.title: other.contents for one, other in zip(documents[:-2], documents[1:], strict=False)}
    after[documents[18].title] = documents[0].contents
    taught = soft_graded(
        queries,
        look,
        documents,
        replace(CONFIG, nearest=20),
        teacher=lambda query, texts: [9.0 * (text == after[query]) for text in texts],
    )
    assert [[*row] for row in taught.judged] == [[f"d{(own + 1) % 19:02}"] for own in queries.owners]
    learner = Learner(look)
    before = look.scores(taught.texts, taught.vectors)
    offsets = learner.offsets(taught, RegressionConfig(variant="soft", negatives="all"))
    centred = taught.vectors - taught.vectors.mean(0)
    scores = before + look.config.scale * offsets.dot(centred)
    means = [np.mean(learner.ndcg(one, taught.judged)) for one in (before, scores)]
    assert means[1] > means[0] + 0.2


@pytest.mark.parametrize("change", [{"floor": 0.0}, {"temperature": 0.0}, {"most": -1}])
def test_settings_without_sense_are_refused(change):
    with pytest.raises(ValueError, match="a floor above 0"):
        PseudoQueryConfig(**change)
