"""A few words of each document with 4-bit weights give BM25's scores, as far as those words go."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from gr2.bm25 import BM25, BM25Config, query_terms
from gr2.data.collection import Document
from gr2.model.config import LookAheadConfig
from gr2.model.look_ahead import LookAhead
from gr2.model.look_ahead_io import load_look_ahead, save_look_ahead
from gr2.model.word_weights import STEPS, WordWeights

TEXTS = ["lemon tree sour", "yellow yellow banana", "lime and lemon and lime", "pepper", "", "lemon tree"]
QUERIES = ["sour lemon", "lemon lemon banana lime", "nothing known", "", "yellow pepper tree"]


@pytest.fixture(scope="module")
def documents():
    return [Document(f"d{place}", text=text) for place, text in enumerate(TEXTS)]


@pytest.fixture(scope="module")
def bm25(documents):
    return BM25.index(documents, BM25Config(b=0.75))


def by_hand(bm25, most):
    """The scores by a loop over documents and words."""
    names = {place: term for term, place in bm25.vocabulary.items()}
    rows = bm25.weights().toarray()
    step, frequency = rows.max() / STEPS, (rows > 0).sum(0)
    found = np.zeros((len(QUERIES), len(TEXTS)))
    for document, row in enumerate(rows):
        worth = row * frequency**0.1
        best = sorted(np.flatnonzero(row), key=lambda place: (-worth[place], place))[:most]
        kept = {names[place]: max(1, round(row[place] / step)) * step for place in best}
        for query, terms in enumerate(query_terms(QUERIES, bm25.config)):
            found[query, document] = sum(kept.get(term, 0.0) for term in terms)
    return found


@pytest.mark.parametrize("most", [1, 2, 3, 100])
def test_scores_are_those_of_the_best_words_in_steps(bm25, most):
    words = WordWeights.of(bm25, most)
    np.testing.assert_allclose(words.scores(QUERIES), by_hand(bm25, most), rtol=1e-5, atol=1e-6)
    assert words.scores([]).shape == (0, len(TEXTS))


def test_a_word_that_some_documents_have_is_kept_before_a_rare_one():
    """Of 2,000 documents, 16 have `sour` and 80 `tree`, which has the lower weight."""
    texts = ["sour tree tree", *["sour"] * 15, *["tree"] * 79, *(f"word{place}" for place in range(1905))]
    bm25 = BM25.index([Document(str(place), text=text) for place, text in enumerate(texts)])
    weights, vocabulary = bm25.weights().toarray()[0], bm25.vocabulary
    assert weights[vocabulary["sour"]] > weights[vocabulary["tree"]] > 0
    words = WordWeights.of(bm25, 1)
    assert words.scores(["tree", "sour"])[:, :2].astype(bool).tolist() == [[True, False], [False, True]]


def test_all_words_lose_at_most_half_a_step_for_each_word_of_the_query(bm25):
    lost = np.abs(WordWeights.of(bm25, 100).scores(QUERIES) - bm25.scores(QUERIES))
    longest = max(len(terms) for terms in query_terms(QUERIES, bm25.config))
    assert 0 < lost.max() <= longest * 0.501 * bm25.weights().max() / STEPS


def test_the_lists_take_the_bits_of_elias_and_fano(bm25):
    words = WordWeights.of(bm25, 1)
    with pytest.raises(ValueError, match="at least 1 word per document, found 0"):
        WordWeights.of(bm25, 0)
    counts = np.diff(words.starts)
    assert counts.sum() == 5 and len(words.terms) == len(counts)
    low = [int(np.log2(6 // count)) for count in counts]
    bits = sum(n * (4 + k + 1) + (6 >> k) + 1 for n, k in zip(counts, low, strict=True))
    assert words.nbytes == len(words.lists) == -(-bits // 8)
    assert words.vocabulary_bytes == sum(map(len, words.terms)) + len(counts) + words.starts.nbytes


LISTS = st.lists(st.sets(st.integers(0, 40), min_size=1), min_size=1, max_size=8)


@given(LISTS, st.integers(41, 3000), st.randoms())
def test_lists_are_read_as_they_were_written(lists, count, draw):
    """Whatever the number of documents, and so of low bits: also lists that all documents are in."""
    lists = [*map(sorted, lists), list(range(count))]
    steps = [[draw.randint(1, STEPS) for _ in row] for row in lists]
    matrix = sparse.lil_matrix((count, len(lists)))
    for column, (row, own) in enumerate(zip(lists, steps, strict=True)):
        matrix[row, column] = np.array(own)[:, None]
    docnos = [str(place) for place in range(count)]
    names = {place: f"term{place}" for place in range(len(lists))}
    found = WordWeights._of_steps(BM25Config(), docnos, names, matrix.tocsr(), 0.5)
    for place, (row, own) in enumerate(zip(lists, steps, strict=True)):
        documents, weights = found.entries(found.terms[f"term{place}"])
        assert documents.tolist() == row and weights.tolist() == own


def test_words_of_other_documents_join_and_ours_stay(documents, bm25):
    """The others are weighed by an index of all; a document that both have keeps its words."""
    first = BM25.index(documents[:3], bm25.config)
    ours, others = WordWeights.of(first, 2), WordWeights.of(bm25, 2)
    docnos = ["d4", "d0", "d3", "d1", "d5", "d2"]
    found = ours.joined(others, docnos)
    assert found.docnos == tuple(docnos) and found.step == ours.step
    old, new, place = ours.scores(QUERIES), others.scores(QUERIES), list(docnos).index
    for row in range(3):
        np.testing.assert_allclose(found.scores(QUERIES)[:, place(f"d{row}")], old[:, row], rtol=1e-6)
    lost = found.scores(QUERIES)[:, place("d5")] - new[:, 5]
    assert np.abs(lost).max() <= 3 * 0.501 * ours.step, "half a step for each word"
    assert found.scores(["pepper"])[0, place("d3")] == pytest.approx(STEPS * ours.step), "no weight is larger"
    assert not found.scores(QUERIES)[:, place("d4")].any()


def test_a_look_ahead_with_few_words_survives_the_disk(documents, bm25, tmp_path):
    vectors = queries = np.eye(6, 4, dtype=np.float32)
    full = LookAhead.build(documents, vectors, LookAheadConfig(words=0.5), bm25=bm25)
    small = full.stored("fp32", words=2)
    assert full.stored("fp32").bm25 is bm25 and small.nbytes["words"] < full.nbytes["words"]
    save_look_ahead(small, tmp_path / "small")
    again = load_look_ahead(tmp_path / "small")
    assert isinstance(again.bm25, WordWeights) and again.bm25.config == bm25.config
    some = queries[: len(QUERIES)]
    np.testing.assert_array_equal(again.scores(QUERIES, some), small.scores(QUERIES, some))
    expected = 0.5 * by_hand(bm25, 2) + replace(full, bm25=None).scores(QUERIES, some)
    np.testing.assert_allclose(again.scores(QUERIES, some), expected, rtol=1e-5, atol=1e-6)
