"""A few words of each document with 8-bit weights give BM25's scores, as far as those words go."""

from dataclasses import replace

import numpy as np
import pytest

from gr2.bm25 import BM25, BM25Config, query_terms
from gr2.data.collection import Document
from gr2.model.config import LookAheadConfig
from gr2.model.look_ahead import LookAhead
from gr2.model.look_ahead_io import load_look_ahead, save_look_ahead
from gr2.model.word_weights import STEPS, WordWeights

TEXTS = ["lemon tree sour", "yellow yellow banana", "lime and lemon and lime", "pepper", ""]
QUERIES = ["sour lemon", "lemon lemon banana lime", "nothing known", "", "yellow pepper tree"]


@pytest.fixture(scope="module")
def bm25():
    documents = [Document(f"d{place}", text=text) for place, text in enumerate(TEXTS)]
    return BM25.index(documents, BM25Config(b=0.75))


def by_hand(bm25, most):
    """The scores by a loop over documents and words."""
    names = {place: term for term, place in bm25.vocabulary.items()}
    rows = bm25.weights().toarray()
    step = rows.max() / STEPS
    found = np.zeros((len(QUERIES), len(TEXTS)))
    for document, row in enumerate(rows):
        best = sorted(np.flatnonzero(row), key=lambda place: (-row[place], place))[:most]
        kept = {names[place]: round(row[place] / step) * step for place in best}
        for query, terms in enumerate(query_terms(QUERIES, bm25.config)):
            found[query, document] = sum(kept.get(term, 0.0) for term in terms)
    return found


@pytest.mark.parametrize("most", [1, 2, 3, 100])
def test_scores_are_those_of_the_best_words_in_steps(bm25, most):
    words = WordWeights.of(bm25, most)
    np.testing.assert_allclose(words.scores(QUERIES), by_hand(bm25, most), rtol=1e-5, atol=1e-6)
    assert words.scores([]).shape == (0, len(TEXTS))


def test_all_words_lose_at_most_half_a_step_for_each_word_of_the_query(bm25):
    lost = np.abs(WordWeights.of(bm25, 100).scores(QUERIES) - bm25.scores(QUERIES))
    longest = max(len(terms) for terms in query_terms(QUERIES, bm25.config))
    assert 0 < lost.max() <= longest * 0.501 * bm25.weights().max() / STEPS


def test_three_bytes_for_each_word_and_none_for_words_that_no_document_keeps(bm25):
    words = WordWeights.of(bm25, 1)
    assert len(words.weights) == 4 and len(words.terms) == len(words.starts) - 1 <= 4
    assert words.nbytes == 3 * 4 + words.starts.nbytes
    with pytest.raises(ValueError, match="at least 1 word per document, found 0"):
        WordWeights.of(bm25, 0)


def test_a_look_ahead_with_few_words_survives_the_disk(bm25, tmp_path):
    documents = [Document(f"d{place}", text=text) for place, text in enumerate(TEXTS)]
    vectors, queries = np.eye(5, 4, dtype=np.float32), np.eye(5, 4, dtype=np.float32)
    full = LookAhead.build(documents, vectors, LookAheadConfig(words=0.5), bm25=bm25)
    small = full.stored("fp32", words=2)
    assert full.stored("fp32").bm25 is bm25 and small.nbytes["words"] < full.nbytes["words"]
    save_look_ahead(small, tmp_path / "small")
    again = load_look_ahead(tmp_path / "small")
    assert isinstance(again.bm25, WordWeights) and again.bm25.config == bm25.config
    np.testing.assert_array_equal(again.scores(QUERIES, queries), small.scores(QUERIES, queries))
    expected = 0.5 * by_hand(bm25, 2) + replace(full, bm25=None).scores(QUERIES, queries)
    np.testing.assert_allclose(again.scores(QUERIES, queries), expected, rtol=1e-5, atol=1e-6)
