"""The node prior against plain sums over documents, in training and in search."""

import numpy as np
import pytest
import torch
from helpers import tiny

from gr2.docids.trie import Trie
from gr2.model.config import NetworkConfig
from gr2.model.network import END, Network
from gr2.model.node_prior import Prior, leaf_ranges
from gr2.model.padding import pooled_query
from gr2.model.word_prior import word_space
from gr2.training import likelihoods


def docids_and_vectors(count=40, seed=0):
    draw = np.random.default_rng(seed)
    docids = sorted({tuple(draw.integers(2, 6, draw.integers(1, 6)).tolist()) for _ in range(count)})
    docids = [docids[i] for i in draw.permutation(len(docids))]
    vectors = draw.normal(size=(len(docids), 8))
    return docids, (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def states_of(batch=3, seed=0):
    states = torch.randn(batch, 4, 8, generator=torch.Generator().manual_seed(seed))
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]])[:batch]
    return states, mask


@pytest.mark.parametrize("seed", range(5))
def test_leaf_ranges_are_the_docids_in_sorted_order(seed):
    docids, _ = docids_and_vectors(seed=seed)
    trie = Trie.from_sequences(docids, end=END)
    start, count = leaf_ranges(trie)
    ordered = sorted((*docid, END) for docid in docids)
    for path in {whole[:n] for whole in ordered for n in range(len(whole) + 1)}:
        below = [i for i, other in enumerate(ordered) if other[: len(path)] == path]
        node = trie.find(path)
        assert (start[node], count[node]) == (below[0], len(below))


@pytest.mark.parametrize("seed", range(5))
def test_cut_at_the_leaves_the_children_multiply_to_a_softmax_over_documents(seed):
    docids, vectors = docids_and_vectors(seed=seed)
    trie = Trie.from_sequences(docids, end=END)
    prior = Prior.build(trie, vectors, scale=7.0)
    states, mask = states_of()
    expected = (7.0 * pooled_query(states, mask) @ torch.from_numpy(vectors).T).log_softmax(1)
    scores = prior(states, mask)
    for docid, tokens in enumerate(docids):
        for query in range(3):
            total, path = 0.0, []
            for token in (*tokens, END):
                _, names, child = map(torch.from_numpy, trie.children(np.array([trie.find(path)])))
                logp = scores.score(torch.full_like(child, query), child).log_softmax(0)
                total += float(logp[names == token].detach())
                path.append(token)
            assert total == pytest.approx(float(expected[query, docid]), abs=1e-4)


@pytest.mark.parametrize("most", [6, 12, 25])
def test_a_cap_is_kept_and_every_document_lies_below_one_vector(most):
    docids, vectors = docids_and_vectors(60, seed=1)
    trie = Trie.from_sequences(docids, end=END)
    prior = Prior.build(trie, vectors, most=most)
    assert 1 < len(prior.vectors) <= most < len(docids)
    assert prior.nbytes == sum(t.nbytes for t in (prior.low, prior.high, prior.weight, prior.vectors))
    assert prior.weight.exp().sum() == pytest.approx(len(docids), rel=1e-5)
    assert (prior.low[0], prior.high[0]) == (0, len(prior.vectors))
    branching = np.flatnonzero(np.diff(trie.first) > 1)
    for node in branching:
        row, _, child = trie.children(np.array([node]))
        sizes = (prior.high - prior.low)[child]
        assert (sizes > 0).all() or (sizes == 0).all(), "a prior for some children of a node only"
        if (sizes > 0).all():
            assert sizes.sum() == prior.high[node] - prior.low[node]


def test_a_cap_that_is_no_number_of_vectors_is_refused():
    docids, vectors = docids_and_vectors()
    with pytest.raises(ValueError, match="at least 1"):
        Prior.build(Trie.from_sequences(docids, end=END), vectors, most=0)


def test_gradients_reach_vectors_scale_and_encoder():
    docids, vectors = docids_and_vectors()
    trie = Trie.from_sequences(docids, end=END)
    prior = Prior.build(trie, vectors)
    states, mask = states_of()
    states.requires_grad_()
    position, token, child = map(torch.from_numpy, trie.children(np.zeros(3, np.int64)))
    extra = prior(states, mask).score(position, child)
    target = token[[int((position == q).nonzero()[0]) for q in range(3)]]
    steps = likelihoods.trie_log_likelihood(torch.zeros(3, 9), position, token, target, prior=extra)
    plain = likelihoods.trie_log_likelihood(torch.zeros(3, 9), position, token, target)
    assert not torch.allclose(steps, plain)
    steps.sum().backward()
    for gradient in (prior.vectors.grad, prior.scale.grad, states.grad):
        assert gradient is not None and gradient.isfinite().all() and gradient.abs().sum() > 0


def test_stored_weights_bring_their_prior_with_them():
    docids, vectors = docids_and_vectors()
    trie = Trie.from_sequences(docids, end=END)
    head = torch.nn.Linear(8, 6, bias=False)
    shape = type("Config", (), {"hidden_size": 8})()

    def network():
        encoder = torch.nn.Linear(8, 8)
        encoder.config = shape
        return Network("encoder", encoder, torch.nn.Identity(), head, NetworkConfig(representation=4))

    one, two = network(), network()
    one.attach_prior(Prior.build(trie, vectors))
    two.load(one.weights())
    states, mask = states_of()
    assert torch.equal(one.prior(states, mask).scores, two.prior(states, mask).scores)
    assert torch.equal(two.prior.low, one.prior.low)


def test_the_space_of_words_evens_out_directions_and_keeps_an_empty_document_at_zero():
    draw = np.random.default_rng(0)
    table = (draw.standard_normal((40, 6)) * [9, 3, 1, 1, 0.5, 0.2] + 2).astype(np.float32)
    texts = [draw.integers(0, 40, 12).tolist() for _ in range(60)]
    owners = [i % 29 for i in range(60)]
    space = word_space(table, texts, owners, 30)
    assert not space.vectors[29].any()
    assert np.allclose(np.linalg.norm(space.vectors[:29], axis=1), 1, atol=1e-5)
    sums = np.stack([table[[t for text, o in zip(texts, owners, strict=True) if o == i for t in text]].sum(0)
                     for i in range(29)])  # fmt: skip
    units = sums / np.linalg.norm(sums, axis=1, keepdims=True)
    before = np.linalg.svd(units - units.mean(0))[1]
    after = np.linalg.svd((units - units.mean(0)) @ space.turn)[1]
    assert after[0] / after[-1] == pytest.approx((before[0] / before[-1]) ** 0.5, rel=1e-2)
    each = np.stack([table[text].mean(0) for text in texts])
    wanted = (each / np.linalg.norm(each, axis=1, keepdims=True)).mean(0)
    assert np.allclose(space.centre, wanted, atol=1e-5)


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_an_untrained_encoder_decoder_ranks_by_words_saves_them_and_learns(family, tmp_path):
    from gr2.data.collection import Collection, Document
    from gr2.model.gr2 import GR2
    from gr2.schemes.config import SchemeConfig
    from gr2.schemes.registry import SchemeContext, build
    from gr2.training.fit import fit

    backbone = str(tiny.save_checkpoint(tmp_path / family, family))
    draw = np.random.default_rng(1)
    texts = [" ".join(draw.choice(tiny.WORDS, 6, replace=False)) for _ in range(20)]
    documents = tuple(Document(f"d{n:02}", "", text) for n, text in enumerate(texts))
    data = Collection(name="c", documents=documents, queries={}, qrels={})
    docids = build(
        SchemeContext(
            collection=data, backbone=backbone, folder=tmp_path, config=SchemeConfig(scheme="title", words=12)
        )
    )
    model = fit(data, docids, backbone, tmp_path / "m", tiny.training({"schedule.steps": 0}))
    assert model.network.prior.reads_words
    with torch.no_grad():
        model.network.head.weight.zero_()
    for document in documents:
        assert model.search(document.text, 1)[0].docno == document.docno
    before = model.network.prior.centre.detach().clone()
    how = tiny.training({"schedule.steps": 3, "batches.texts": 4, "optimiser.learning_rate": 1e-2})
    fit(data, docids, backbone, tmp_path / "m2", how)
    again = GR2.from_pretrained(tmp_path / "m2")
    assert again.network.prior.reads_words and not torch.equal(again.network.prior.centre, before)
    assert torch.equal(again.network.prior.turn, model.network.prior.turn)
