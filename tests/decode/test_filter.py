"""Searches with a filter against brute force: scores of all docids, of which only the allowed ones count."""

import numpy as np
import pytest
import torch
from helpers import decoding_oracle as oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import T5Config, T5ForConditionalGeneration

from gr2.decode import NodePrior, beam, decoder_of, exact
from gr2.docids.trie import Trie
from gr2.model.node_prior import leaf_ranges

END, WIDTH, QUERIES = 1, 12, 2
docid_lists = st.lists(
    st.lists(st.integers(2, 6), max_size=4).map(tuple), min_size=1, max_size=20, unique=True
)


def make_model(seed=0):
    torch.manual_seed(seed)
    shape = {"d_model": WIDTH, "d_kv": 6, "d_ff": 16, "num_heads": 2, "num_layers": 1}
    model = T5ForConditionalGeneration(T5Config(**shape, vocab_size=8, decoder_start_token_id=0)).eval()
    with torch.no_grad():  # fresh weights hardly tell docids or queries apart
        model.decoder.block[0].layer[1].EncDecAttention.o.weight *= 4
        model.lm_head.weight *= 3
    return model


def make_query(seed=0):
    states = torch.randn(QUERIES, 4, WIDTH, generator=torch.Generator().manual_seed(seed))
    return states, torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])


def score_all(model, docids, normaliser, penalty, seed=0):
    rows = zip(*make_query(seed), strict=True)
    scores = [oracle.score_all(model, *row, docids, END, normaliser, length_penalty=penalty) for row in rows]
    return np.array(scores)


def assert_best(found, scores, allowed, k):
    """The k best allowed docids, with the scores they have among all; near-ties in either order."""
    for query in range(QUERIES):
        docids, ours = found[query]
        assert set(docids.tolist()) <= set(allowed) and len(set(docids.tolist())) == len(docids)
        np.testing.assert_allclose(ours, np.sort(scores[query, allowed])[::-1][:k], atol=2e-4)
        np.testing.assert_allclose(scores[query, docids], ours, atol=2e-4)


@settings(max_examples=60)
@given(
    docids=docid_lists,
    data=st.data(),
    k=st.integers(1, 8),
    normaliser=st.sampled_from(["vocabulary", "trie"]),
    penalty=st.sampled_from([0.0, 1.0]),
    seed=st.integers(0, 3),
)
def test_exact_finds_the_best_of_the_allowed_docids(docids, data, k, normaliser, penalty, seed):
    allowed = data.draw(st.lists(st.integers(0, len(docids) - 1), min_size=1, unique=True))
    model, trie = make_model(seed), Trie.from_sequences(docids, end=END)
    options = {"k": k, "normaliser": normaliser, "length_penalty": penalty, "allowed": allowed}
    found = exact(decoder_of(model), trie, *make_query(seed), **options)
    assert found.proven.all()
    assert_best(found, score_all(model, docids, normaliser, penalty, seed), allowed, k)


@settings(max_examples=40)
@given(
    docids=docid_lists,
    data=st.data(),
    k=st.integers(1, 3),
    budget=st.integers(1, 12),
    normaliser=st.sampled_from(["vocabulary", "trie"]),
    seed=st.integers(0, 3),
)
def test_proven_refers_to_the_allowed_docids(docids, data, k, budget, normaliser, seed):
    allowed = data.draw(st.lists(st.integers(0, len(docids) - 1), min_size=1, unique=True))
    model, trie = make_model(seed), Trie.from_sequences(docids, end=END)
    scores = score_all(model, docids, normaliser, 0.0, seed)
    options = {"k": k, "normaliser": normaliser, "allowed": allowed}
    for found in (
        exact(decoder_of(model), trie, *make_query(seed), budget=budget, **options),
        beam(decoder_of(model), trie, *make_query(seed), beams=3, **options),
    ):
        for query in range(QUERIES):
            docids_found, ours = found[query]
            assert set(docids_found.tolist()) <= set(allowed)
            np.testing.assert_allclose(scores[query, docids_found], ours, atol=2e-4)
            if found.proven[query]:
                np.testing.assert_allclose(ours, np.sort(scores[query, allowed])[::-1][:k], atol=2e-4)


DOCIDS = sorted(
    {(2 + a, 2 + b, 2 + c)[: 1 + (a + b) % 3] for a in range(5) for b in range(5) for c in range(5)}
)


@pytest.mark.parametrize("normaliser", ["vocabulary", "trie"])
def test_a_filter_changes_the_ranking_and_no_score(normaliser):
    model, trie = make_model(), Trie.from_sequences(DOCIDS, end=END)
    full = exact(decoder_of(model), trie, *make_query(), k=len(DOCIDS), normaliser=normaliser)
    allowed = full[0][0][10:20].tolist()  # none of the best
    for found in (
        exact(decoder_of(model), trie, *make_query(), k=5, normaliser=normaliser, allowed=allowed),
        beam(decoder_of(model), trie, *make_query(), beams=10, k=5, normaliser=normaliser, allowed=allowed),
    ):
        assert found[0][0].tolist() == allowed[:5]
        np.testing.assert_allclose(found[0][1], full[0][1][10:15], atol=1e-5)
        assert found.proven.all()


def test_with_a_prior_and_representations():
    model, trie = make_model(), Trie.from_sequences(DOCIDS, end=END)
    start, count = leaf_ranges(trie)
    scores = torch.randn(QUERIES, len(trie), generator=torch.Generator().manual_seed(0))
    prior = NodePrior(low=torch.from_numpy(start), high=torch.from_numpy(start + count), scores=scores)
    options = {"normaliser": "trie", "prior": prior, "project": torch.relu}
    allowed = list(range(0, len(DOCIDS), 3))
    full = exact(decoder_of(model), trie, *make_query(), k=len(DOCIDS), **options)
    found = exact(decoder_of(model), trie, *make_query(), k=6, allowed=allowed, **options)
    for query in range(QUERIES):
        place = {int(docid): full.offsets[query] + i for i, docid in enumerate(full[query][0])}
        assert found[query][0].tolist() == [d for d in full[query][0].tolist() if d in allowed][:6]
        for i, docid in enumerate(found[query][0], start=int(found.offsets[query])):
            torch.testing.assert_close(
                found.vectors[i], full.vectors[place[int(docid)]], atol=1e-5, rtol=1e-4
            )


@pytest.mark.parametrize("search", [beam, exact])
@pytest.mark.parametrize("normaliser", ["vocabulary", "trie"])
@pytest.mark.parametrize("docids", [[(3,)], [()], DOCIDS], ids=["one", "empty", "many"])
def test_a_filter_that_allows_nothing_finds_nothing(search, normaliser, docids):
    trie, decoder = Trie.from_sequences(docids, end=END), decoder_of(make_model())
    for allowed in ([], np.zeros(0, np.int64)):
        found = search(
            decoder, trie, *make_query(), normaliser=normaliser, allowed=allowed, project=torch.relu
        )
        assert len(found) == QUERIES and not len(found.docids) and found.vectors.shape == (0, WIDTH)
        assert found.proven.all() and not found.rows.any()  # nothing is read to know it


@pytest.mark.parametrize("search", [beam, exact])
def test_an_unknown_docid_is_named(search):
    trie, decoder = Trie.from_sequences(DOCIDS, end=END), decoder_of(make_model())
    with pytest.raises(ValueError, match="docid 1000 is not in this trie"):
        search(decoder, trie, *make_query(), allowed=[0, 1000])
