"""Decoding against transformers' generate, brute force over all docids, and its own edge cases."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import decoding_oracle as oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from transformers import BartConfig, BartForConditionalGeneration, T5Config, T5ForConditionalGeneration
from transformers.models.t5.modeling_t5 import T5Stack

from gr2.decode import NodePrior, beam, decoder_of, exact, t5_decoder
from gr2.docids.trie import Trie
from gr2.model.node_prior import leaf_ranges

VOCABULARY, END = 40, 1


def make_t5(*, gated=True, tied=True, seed=0, layers=2, width=16, vocabulary=VOCABULARY, spread=1.0):
    torch.manual_seed(seed)
    config = T5Config(
        vocab_size=vocabulary,
        d_model=width,
        d_kv=8,
        d_ff=24,
        num_layers=layers,  # as many as the decoder: transformers sizes its cache by these
        num_decoder_layers=layers,
        num_heads=3,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=12,
        feed_forward_proj="gated-gelu" if gated else "relu",
        decoder_start_token_id=0,
    )
    model = T5ForConditionalGeneration(config).eval()
    if not tied:
        config.tie_word_embeddings = config.scale_decoder_outputs = False
        model.lm_head.weight = torch.nn.Parameter(torch.randn(vocabulary, width) * width**-0.5)
    with torch.no_grad():  # fresh weights score all docids alike; stronger ones make the searches differ
        model.lm_head.weight *= spread
        for block in model.decoder.block:
            block.layer[0].SelfAttention.o.weight *= 3
            block.layer[1].EncDecAttention.o.weight *= 3
        bias = model.decoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight
        bias += torch.randn_like(bias)
    return model


def make_bart(seed=0):
    torch.manual_seed(seed)
    config = BartConfig(
        vocab_size=VOCABULARY,
        d_model=24,
        encoder_layers=1,
        decoder_layers=2,
        encoder_attention_heads=3,
        decoder_attention_heads=3,
        encoder_ffn_dim=24,
        decoder_ffn_dim=40,
        max_position_embeddings=32,
        scale_embedding=True,
        eos_token_id=END,
        bos_token_id=0,
        pad_token_id=2,
        decoder_start_token_id=1,
        forced_eos_token_id=None,
        init_std=0.3,
    )
    model = BartForConditionalGeneration(config).eval()
    with torch.no_grad():
        model.final_logits_bias += torch.randn(1, VOCABULARY)
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter += 0.1 * torch.randn_like(parameter)
    return model


def make_states(batch, width, seed=0, source=7):
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(batch, source, width, generator=generator)
    mask = torch.ones(batch, source, dtype=torch.long)
    for row in range(1, batch):
        mask[row, source - row % source :] = 0  # unequal queries; what lies behind the mask must not matter
        mask[row, 0] = 1
    return states, mask


def make_docids(number, seed=0, longest=6, vocabulary=VOCABULARY):
    """Unique docids of unequal length; some are prefixes of others, many share their beginning."""
    generator = np.random.default_rng(seed)
    found = {}
    while len(found) < number:
        length = int(generator.integers(1, longest + 1))
        # squared: few tokens are frequent, so that the trie branches deep down as well
        tokens = (generator.random(length) ** 2 * (vocabulary - 3)).astype(int) + 3
        found[tuple(tokens.tolist())] = None
    return list(found)


MODELS = {
    "t5-gated-tied": lambda: make_t5(gated=True, tied=True),
    "t5-gated-untied": lambda: make_t5(gated=True, tied=False, spread=2.0),
    "t5-plain-tied": lambda: make_t5(gated=False, tied=True),
    "t5-plain-untied": lambda: make_t5(gated=False, tied=False, spread=2.0),
    "bart": make_bart,
}


@pytest.mark.parametrize("batch", [1, 6])
@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
@pytest.mark.parametrize("normaliser", ["vocabulary", "trie"])
@pytest.mark.parametrize("name", MODELS)
def test_beam_equals_generate(name, normaliser, length_penalty, batch):
    model = MODELS[name]()
    docids = make_docids(150, seed=3)
    states, mask = make_states(batch, model.config.d_model, seed=4)
    theirs, their_scores = oracle.generate(
        model, states, mask, docids, END, beams=8, normaliser=normaliser, length_penalty=length_penalty
    )
    trie = Trie.from_sequences(docids, end=END)
    found = beam(
        decoder_of(model), trie, states, mask, beams=8, normaliser=normaliser, length_penalty=length_penalty
    )
    for query in range(batch):
        ours, scores = found[query]
        assert ours.tolist() == theirs[query].tolist()
        np.testing.assert_allclose(scores, their_scores[query], atol=1e-4)


def test_generate_differs_between_settings():
    """The equality above means something only if the settings lead to different results."""
    model, docids = MODELS["t5-gated-untied"](), make_docids(150, seed=3)
    states, mask = make_states(6, model.config.d_model, seed=4)
    results = [
        oracle.generate(
            model, states, mask, docids, END, beams=8, normaliser=normaliser, length_penalty=penalty
        )
        for normaliser in ("vocabulary", "trie")
        for penalty in (0.0, 1.0)
    ]
    lists = [docids.tolist() for docids, _ in results]
    assert all(lists[i] != lists[j] for i in range(4) for j in range(i))
    assert len({tuple(row) for row in lists[0]}) > 1  # and the queries differ


def brute(model, states, mask, docids, normaliser, **options):
    return [
        np.array(oracle.score_all(model, s, m, docids, END, normaliser, **options))
        for s, m in zip(states, mask, strict=True)
    ]


def check_exact(found, expected, k):
    """Each list is the true top k; near-ties may stand in either order."""
    for query, scores in enumerate(expected):
        docids, ours = found[query]
        best = np.sort(scores)[::-1][:k]
        assert len(set(docids.tolist())) == len(docids) == len(best)
        np.testing.assert_allclose(ours, best, atol=2e-4)
        np.testing.assert_allclose(scores[docids], ours, atol=2e-4)


tries = st.lists(
    st.lists(st.integers(2, 7), min_size=0, max_size=4).map(tuple), min_size=1, max_size=25, unique=True
)


@settings(max_examples=60, deadline=None)
@given(
    docids=tries,
    k=st.integers(1, 12),
    normaliser=st.sampled_from(["vocabulary", "trie"]),
    length_penalty=st.sampled_from([0.0, 1.0]),
    seed=st.integers(0, 3),
)
def test_exact_equals_brute_force(docids, k, normaliser, length_penalty, seed):
    model = make_t5(layers=1, seed=seed, tied=False, spread=3.0, vocabulary=9)
    states, mask = make_states(2, model.config.d_model, seed=seed)
    expected = brute(model, states, mask, docids, normaliser, length_penalty=length_penalty)
    trie = Trie.from_sequences(docids, end=END)
    found = exact(
        decoder_of(model), trie, states, mask, k=k, normaliser=normaliser, length_penalty=length_penalty
    )
    assert found.proven.all()
    check_exact(found, expected, k)


@settings(max_examples=40, deadline=None)
@given(
    docids=tries,
    k=st.integers(1, 4),
    beams=st.integers(4, 6),
    budget=st.integers(1, 40),
    normaliser=st.sampled_from(["vocabulary", "trie"]),
    length_penalty=st.sampled_from([0.0, 1.0]),
    seed=st.integers(0, 3),
)
def test_proven_is_truthful(docids, k, beams, budget, normaliser, length_penalty, seed):
    model = make_t5(layers=1, seed=seed, tied=False, spread=3.0, vocabulary=9)
    states, mask = make_states(3, model.config.d_model, seed=seed)
    expected = brute(model, states, mask, docids, normaliser, length_penalty=length_penalty)
    trie, decoder = Trie.from_sequences(docids, end=END), decoder_of(model)
    options = {"k": k, "normaliser": normaliser, "length_penalty": length_penalty}
    for found in (
        exact(decoder, trie, states, mask, budget=budget, **options),
        beam(decoder, trie, states, mask, beams=beams, **options),
    ):
        for query, scores in enumerate(expected):
            ours = found[query][1]
            best = np.sort(scores)[::-1][:k]
            if found.proven[query]:
                np.testing.assert_allclose(ours, best, atol=2e-4)
            np.testing.assert_allclose(scores[found[query][0]], ours, atol=2e-4)
    assert (exact(decoder, trie, states, mask, budget=budget, **options).rows <= budget).all()


def test_small_budget_is_not_proven_and_large_one_is():
    model, docids = make_t5(tied=False, spread=2.0), make_docids(300, seed=5)
    states, mask = make_states(4, model.config.d_model)
    trie, decoder = Trie.from_sequences(docids, end=END), decoder_of(model)
    small = exact(decoder, trie, states, mask, budget=10)
    large = exact(decoder, trie, states, mask, budget=10_000)
    assert not small.proven.any() and large.proven.all()
    assert (small.rows <= 10).all()
    check_exact(large, brute(model, states, mask, docids, "vocabulary"), 20)


def test_beam_wide_enough_for_everything_is_proven_and_exact():
    model, docids = make_t5(), make_docids(60, seed=6)
    states, mask = make_states(3, model.config.d_model)
    found = beam(decoder_of(model), Trie.from_sequences(docids, end=END), states, mask, beams=200, k=10)
    assert found.proven.all()
    check_exact(found, brute(model, states, mask, docids, "vocabulary"), 10)


def test_hundred_thousand_beams_no_invalid_docid_and_the_same_bytes_twice():
    model, docids = make_t5(layers=1, tied=False, spread=2.0), make_docids(4000, seed=7)
    known = set(range(len(docids)))
    trie, decoder = Trie.from_sequences(docids, end=END), decoder_of(model)
    decoded = 0
    for part in range(11):
        states, mask = make_states(500, model.config.d_model, seed=part, source=3)
        found = beam(decoder, trie, states, mask, normaliser="trie" if part % 2 else "vocabulary")
        decoded += len(found.docids)
        assert known.issuperset(found.docids.tolist())
        assert all(len(set(ids.tolist())) == len(ids) == 20 for ids, _ in found)
        assert np.isfinite(found.scores).all() and (found.scores <= 0).all()
        if part < 2:
            again = beam(decoder, trie, states, mask, normaliser="trie" if part % 2 else "vocabulary")
            assert again.docids.tobytes() == found.docids.tobytes()
            assert again.scores.tobytes() == found.scores.tobytes()
            assert again.rows.tobytes() == found.rows.tobytes()
    assert decoded >= 100_000


@pytest.mark.parametrize("search", [beam, exact])
@pytest.mark.parametrize("name", ["t5-gated-untied", "bart"])
def test_int8_is_close_to_fp32(name, search):
    model, docids = MODELS[name](), make_docids(200, seed=8)
    states, mask = make_states(6, model.config.d_model)
    trie = Trie.from_sequences(docids, end=END)
    full = search(decoder_of(model), trie, states, mask)
    small = search(decoder_of(model, precision="int8"), trie, states, mask)
    overlap = [len(set(full[q][0].tolist()) & set(small[q][0].tolist())) / 20 for q in range(6)]
    assert np.mean(overlap) > 0.8
    assert not np.array_equal(full.scores, small.scores)  # it is really another arithmetic
    for query in range(6):
        mine = dict(zip(full[query][0].tolist(), full[query][1], strict=True))
        for docid, score in zip(*small[query], strict=True):
            assert docid not in mine or abs(mine[docid] - score) < 0.1 - 0.05 * score


def test_stack_behind_any_encoder_equals_the_whole_model():
    model, docids = make_t5(gated=True, tied=False, spread=2.0), make_docids(100)
    config = replace_config(model.decoder.config)
    stack = T5Stack(config).eval()
    stack.load_state_dict(model.decoder.state_dict())
    head = torch.nn.Linear(config.d_model, VOCABULARY, bias=False)
    head.weight = model.lm_head.weight
    states, mask = make_states(4, model.config.d_model)
    trie = Trie.from_sequences(docids, end=END)
    whole = beam(decoder_of(model), trie, states, mask)
    part = beam(t5_decoder(stack, head, start=0), trie, states, mask)
    assert whole.docids.tobytes() == part.docids.tobytes()
    assert whole.scores.tobytes() == part.scores.tobytes()
    with pytest.raises(ValueError, match="is an encoder"):
        t5_decoder(model.encoder, head, start=0)


def replace_config(config):
    return T5Config.from_dict(config.to_dict())


def make_prior(trie, batch, seed=0, below=()):
    """Random scores of the leaves; nodes above sum them up, the children of the nodes `below` get none."""
    start, count = leaf_ranges(trie)
    low, high = torch.from_numpy(start), torch.from_numpy(start + count)
    for node in below:
        children = trie.children(np.array([node]))[2]
        high[children] = low[children]
    scores = torch.randn(batch, len(trie), generator=torch.Generator().manual_seed(seed))
    return NodePrior(low=low, high=high, scores=scores)


def test_node_prior_equals_brute_force():
    model, docids = make_t5(), make_docids(80, seed=9)
    states, mask = make_states(3, model.config.d_model)
    trie = Trie.from_sequences(docids, end=END)
    cut = int(np.flatnonzero((np.diff(trie.first) > 1) & (np.arange(trie.nodes) > 0))[0])
    prior = make_prior(trie, 3, below=[cut])
    expected = []
    for query in range(3):

        def of_child(prefix, token, query=query):
            if trie.find(prefix) == cut:
                return 0.0
            path = (*prefix, token)
            leaves = [
                prior.low[trie.leaf_of([i])[0]]
                for i, docid in enumerate(docids)
                if (*docid, END)[: len(path)] == path
            ]
            return float(prior.scores[query, leaves].exp().sum().log())

        scores = oracle.score_all(
            model, states[query], mask[query], docids, END, "trie", child_prior=of_child
        )
        expected.append(np.array(scores))
    decoder = decoder_of(model)
    check_exact(exact(decoder, trie, states, mask, k=15, normaliser="trie", prior=prior), expected, 15)
    found = beam(decoder, trie, states, mask, beams=100, k=15, normaliser="trie", prior=prior)
    check_exact(found, expected, 15)
    plain = exact(decoder, trie, states, mask, k=15, normaliser="trie")
    assert plain.docids.tolist() != found.docids.tolist()  # the prior decides something


@pytest.mark.parametrize("search", [beam, exact])
@pytest.mark.parametrize("normaliser", ["vocabulary", "trie"])
@pytest.mark.parametrize("name", ["t5-gated-untied", "bart"])
def test_representations_equal_teacher_forced_ones(name, normaliser, search):
    model, docids = MODELS[name](), [*make_docids(60, seed=10, longest=9), ()]
    width = model.config.d_model
    states, mask = make_states(3, width)
    weight, bias = torch.randn(11, width), torch.randn(11)

    def project(v):
        return F.relu(F.linear(v, weight, bias))

    trie = Trie.from_sequences(docids, end=END)
    found = search(decoder_of(model), trie, states, mask, k=20, normaliser=normaliser, project=project)
    plain = search(decoder_of(model), trie, states, mask, k=20, normaliser=normaliser)
    assert plain.docids.tolist() == found.docids.tolist() and plain.vectors is None
    assert found.vectors.shape == (len(found.docids), 11)
    at = 0
    for query in range(3):
        for docid in found[query][0]:
            read = oracle.docid_states(model, states[query], mask[query], docids[docid], END)
            expected = project(read).mean(0) if len(read) else torch.zeros(11)
            torch.testing.assert_close(found.vectors[at], expected, atol=1e-4, rtol=1e-4)
            at += 1
    assert at == len(found.docids)


def test_trie_normaliser_reads_fewer_tokens():
    """Forced tails are skipped: where docids differ in their first token, one token per query is read."""
    model = make_t5()
    docids = [(first, 3, 4, 5, 6, 7) for first in range(3, 33)]
    states, mask = make_states(2, model.config.d_model)
    trie, decoder = Trie.from_sequences(docids, end=END), decoder_of(model)
    assert beam(decoder, trie, states, mask, normaliser="trie").rows.tolist() == [1, 1]
    assert exact(decoder, trie, states, mask, normaliser="trie").rows.tolist() == [1, 1]
    assert beam(decoder, trie, states, mask).rows.tolist() == [
        121,
        121,
    ]  # the root, then 20 beams of 6 tokens


@pytest.mark.parametrize("search", [beam, exact])
@pytest.mark.parametrize("normaliser", ["vocabulary", "trie"])
def test_fewer_docids_than_places(search, normaliser):
    model = make_t5()
    states, mask = make_states(2, model.config.d_model)
    for docids in ([(5,)], [()], [(5,), (5, 6), (5, 6, 7)], [(5, 6), (7,), ()]):
        trie = Trie.from_sequences(docids, end=END)
        found = search(decoder_of(model), trie, states, mask, normaliser=normaliser)
        expected = brute(model, states, mask, docids, normaliser)
        for query in range(2):
            assert sorted(found[query][0].tolist()) == list(range(len(docids)))
        check_exact(found, expected, 20)
        assert found.proven.all()


def test_restricted_trie_keeps_indices():
    model, docids = make_t5(), make_docids(50)
    states, mask = make_states(2, model.config.d_model)
    allowed = [3, 8, 21, 34]
    trie = Trie.from_sequences(docids, end=END).restrict(np.array(allowed))
    found = beam(decoder_of(model), trie, states, mask)
    assert all(sorted(ids.tolist()) == allowed for ids, _ in found)


def test_impossible_children_are_dropped():
    model, docids = make_t5(), [(5, 6), (5, 7), (8,), (9, 3), (9, 4)]
    states, mask = make_states(2, model.config.d_model)
    trie = Trie.from_sequences(docids, end=END)
    prior = make_prior(trie, 2)
    prior.scores[:, prior.low[trie.leaf_of([2, 3, 4])]] = -torch.inf  # one of the root, both of another
    for search in (beam, exact):
        found = search(decoder_of(model), trie, states, mask, normaliser="trie", prior=prior)
        assert all(sorted(ids.tolist()) == [0, 1] for ids, _ in found)
        assert np.isfinite(found.scores).all()


def test_what_lies_behind_the_mask_does_not_matter():
    model, docids = make_t5(), make_docids(80)
    states, mask = make_states(4, model.config.d_model)
    trie, decoder = Trie.from_sequences(docids, end=END), decoder_of(model)
    together = beam(decoder, trie, states, mask)
    noisy = beam(decoder, trie, states + 9.0 * (1 - mask)[:, :, None], mask)
    assert together.docids.tolist() == noisy.docids.tolist()
    for query in range(4):
        real = mask[query].bool()
        alone = beam(decoder, trie, states[query : query + 1, real], mask[query : query + 1, real])
        assert alone[0][0].tolist() == together[query][0].tolist()
        np.testing.assert_allclose(alone[0][1], together[query][1], atol=1e-4)


def test_ties_are_ordered_by_docid_index():
    model = make_t5()
    with torch.no_grad():
        model.lm_head.weight.zero_()  # every token is equally likely
    docids = [(9,), (4,), (7,), (3,), (8,), (5,)]
    states, mask = make_states(1, model.config.d_model)
    trie = Trie.from_sequences(docids, end=END)
    for normaliser in ("vocabulary", "trie"):
        found = exact(decoder_of(model), trie, states, mask, k=3, normaliser=normaliser)
        assert found[0][0].tolist() == [0, 1, 2]
        assert beam(decoder_of(model), trie, states, mask, normaliser=normaliser)[0][0].tolist() == list(
            range(6)
        )


def test_clear_errors():
    model, docids = make_t5(), make_docids(10)
    decoder, trie = decoder_of(model), Trie.from_sequences(docids, end=END)
    states, mask = make_states(2, model.config.d_model)
    with pytest.raises(ValueError, match="holds no docid"):
        beam(decoder, Trie.from_sequences([], end=END), states, mask)
    with pytest.raises(ValueError, match="k must lie between 1 and the number of beams"):
        beam(decoder, trie, states, mask, beams=5, k=6)
    with pytest.raises(ValueError, match="at least 1"):
        exact(decoder, trie, states, mask, k=0)
    mask[1] = 0
    with pytest.raises(ValueError, match="query 1 .* has no token"):
        beam(decoder, trie, states, mask)
    with pytest.raises(ValueError, match="mask"):
        beam(decoder, trie, states, mask[:1])
    mask[1] = 1
    with pytest.raises(ValueError, match="normaliser must be"):
        beam(decoder, trie, states, mask, normaliser="softmax")
    with pytest.raises(ValueError, match="needs normaliser='trie'"):
        beam(decoder, trie, states, mask, prior=make_prior(trie, 2))
    with pytest.raises(ValueError, match="scores of 3 queries for 2 queries"):
        beam(decoder, trie, states, mask, normaliser="trie", prior=make_prior(trie, 3))
    prior = make_prior(trie, 2)
    with pytest.raises(ValueError, match="nodes; the trie has"):
        beam(decoder, trie, states, mask, normaliser="trie", prior=replace(prior, low=prior.low[:-1]))
    with pytest.raises(ValueError, match="3 scores of a query"):
        beam(decoder, trie, states, mask, normaliser="trie", prior=replace(prior, scores=prior.scores[:, :3]))
    with pytest.raises(ValueError, match="precision"):
        decoder_of(model, precision="int4")
    with pytest.raises(ValueError, match="neither of the T5 nor of the BART"):
        decoder_of(model.encoder)
    bart = make_bart()
    long = Trie.from_sequences([tuple([3] * 40)], end=END)
    states, mask = make_states(1, 24)
    with pytest.raises(ValueError, match="decoder positions"):
        beam(decoder_of(bart), long, states, mask)


def test_no_queries():
    decoder, trie = decoder_of(make_t5()), Trie.from_sequences([(5,)], end=END)
    nothing = torch.zeros(0, 3, 16), torch.zeros(0, 3)
    assert len(beam(decoder, trie, *nothing)) == len(exact(decoder, trie, *nothing)) == 0


@pytest.mark.parametrize("name", ["t5-gated-untied", "bart"])
def test_without_compiled_kernels_and_prepared_weights_the_results_are_the_same(name, monkeypatch):
    """What a GPU would run: torch alone. Equal on a CPU, where it can be tested."""
    model, docids = MODELS[name](), make_docids(150, seed=11)
    states, mask = make_states(4, model.config.d_model)
    trie = Trie.from_sequences(docids, end=END)
    prior = make_prior(trie, 4)

    def results():
        decoder = decoder_of(model)
        return [
            beam(decoder, trie, states, mask),
            exact(decoder, trie, states, mask, k=9),
            beam(decoder, trie, states, mask, normaliser="trie", prior=prior),
        ]

    fast = results()
    monkeypatch.setattr("gr2.decode.kernels.compiled", lambda x: False)
    monkeypatch.setattr("gr2.decode.linear._packed", lambda weight, bias: None)
    plain = results()
    for one, other in zip(fast, plain, strict=True):
        assert one.docids.tolist() == other.docids.tolist()
        np.testing.assert_allclose(one.scores, other.scores, atol=1e-4)
