"""Beam search without a trie, against transformers' `generate` and against every sequence there is."""

from itertools import product

import pytest
import torch
from helpers import tiny
from safetensors.torch import load_file, save_file
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    LogitsProcessor,
    LogitsProcessorList,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.modeling_outputs import BaseModelOutput

from gr2.decode import decoder_of
from gr2.decode.free import Written, free_beam
from gr2.model.network import END, Network
from gr2.model.padding import padded

VOCABULARY, PAD = 30, 0
TEXTS = [[7, 9, 12, 5, 1], [4, 1], [20, 21, 22, 23, 24, 25, 26, 27, 1], [13, 13, 8, 1], [29, 1]]


def make_t5(*, tied: bool, vocabulary: int = VOCABULARY, seed: int = 0) -> T5ForConditionalGeneration:
    torch.manual_seed(seed)
    shape = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2}
    special = {"decoder_start_token_id": PAD, "eos_token_id": END, "pad_token_id": PAD}
    model = T5ForConditionalGeneration(T5Config(**shape, **special, vocab_size=vocabulary)).eval()
    if not tied:
        model.config.tie_word_embeddings = model.config.scale_decoder_outputs = False
        model.lm_head.weight = torch.nn.Parameter(torch.randn(vocabulary, 16) * 0.4)
    return sharpened(model)


def make_bart(*, vocabulary: int = VOCABULARY, seed: int = 0) -> BartForConditionalGeneration:
    torch.manual_seed(seed)
    layers = {"encoder_layers": 1, "decoder_layers": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 32}
    special = {"decoder_start_token_id": 3, "eos_token_id": END, "pad_token_id": PAD, "bos_token_id": 3}
    other = {"d_model": 16, "init_std": 0.3, "forced_eos_token_id": None, "scale_embedding": True}
    config = BartConfig(vocab_size=vocabulary, **layers, **heads, **special, **other)
    return sharpened(BartForConditionalGeneration(config).eval())


def sharpened(model):
    """What a fresh model says hardly depends on what it reads; a stronger attention lets texts differ."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("EncDecAttention.o.weight", "SelfAttention.o.weight", "out_proj.weight")):
                weight *= 3
    return model


def tilted(model, towards_end: float):
    """Fresh models seldom end by themselves."""
    bias = torch.zeros(model.config.vocab_size)
    bias[END] = towards_end
    if model.config.model_type == "bart":
        model.final_logits_bias += bias
    else:
        model.lm_head.bias = torch.nn.Parameter(bias)
    return model


MODELS = {
    "t5-tied": lambda: make_t5(tied=True),
    "t5-untied": lambda: make_t5(tied=False),
    "bart": make_bart,
}


class OnlyTheEnd(LogitsProcessor):
    """All that may follow the longest sequence; `generate` would cut it instead, whatever follows."""

    def __init__(self, longest: int) -> None:
        self.longest = longest

    def __call__(self, input_ids, scores):
        if input_ids.shape[1] - 1 < self.longest:
            return scores
        only = torch.full_like(scores, -torch.inf)
        only[:, END] = scores[:, END]
        return only


def generated(model, ids, mask, *, beams, longest, length_penalty) -> list[list[Written]]:
    """What `generate` finds: sequences without start and end, and their scores."""
    out = model.generate(
        input_ids=ids,
        attention_mask=mask,
        num_beams=beams,
        num_return_sequences=beams,
        early_stopping="never",
        do_sample=False,
        length_penalty=length_penalty,
        max_new_tokens=longest + 1,
        logits_processor=LogitsProcessorList([OnlyTheEnd(longest)]),
        return_dict_in_generate=True,
        output_scores=True,
    )
    found: list[list[Written]] = [[] for _ in ids]
    rows = zip(out.sequences.tolist(), out.sequences_scores.tolist(), strict=True)
    for place, (row, score) in enumerate(rows):
        if score > -1e6:  # transformers fills up with -1e9 where there is nothing
            found[place // beams].append(Written(tuple(row[1 : row.index(END, 1)]), score))
    return found


def read(model, ids, mask) -> torch.Tensor:
    """The encoder's states, with noise behind the end of each text: it must not matter."""
    states = model.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state.detach()
    return torch.where(mask.bool().unsqueeze(-1), states, torch.full_like(states, 7.0))


def written(model, ids, mask, **options) -> list[list[Written]]:
    return free_beam(decoder_of(model), read(model, ids, mask), mask, end=END, **options)


def assert_same(ours: list[list[Written]], theirs: list[list[Written]]) -> None:
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert [one.tokens for one in mine] == [one.tokens for one in other]
        assert [one.score for one in mine] == pytest.approx([one.score for one in other], abs=1e-4)


@pytest.mark.parametrize("towards_end", [0.0, 3.0])
@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
@pytest.mark.parametrize(("beams", "longest"), [(4, 6), (9, 14)])
@pytest.mark.parametrize("name", MODELS)
def test_free_beam_equals_generate(name, beams, longest, length_penalty, towards_end):
    model, (ids, mask) = tilted(MODELS[name](), towards_end), padded(TEXTS)
    options = {"beams": beams, "longest": longest, "length_penalty": length_penalty}
    ours = written(model, ids, mask, **options)
    assert_same(ours, generated(model, ids, mask, **options))
    assert all(len(row) == beams for row in ours)
    assert len({tuple(one.tokens for one in row) for row in ours}) > 1, "all texts alike show little"
    lengths = {len(one.tokens) for row in ours for one in row}
    assert len(lengths) > 1 if towards_end else max(lengths) == longest, "both ways to end are seen"


@pytest.mark.parametrize("length_penalty", [-1.0, 0.5, 2.0])
def test_other_length_penalties(length_penalty):
    model, (ids, mask) = tilted(make_t5(tied=False), 3.0), padded(TEXTS)
    options = {"beams": 5, "longest": 8, "length_penalty": length_penalty}
    assert_same(written(model, ids, mask, **options), generated(model, ids, mask, **options))


def test_a_row_goes_on_while_a_longer_sequence_could_overtake():
    """Where that happens: a search that judged rows by their present length would miss what it finds."""
    model, (ids, mask) = tilted(make_t5(tied=False, seed=3), 6.0), padded(TEXTS)
    options = {"beams": 2, "longest": 14, "length_penalty": 2.0}
    assert_same(written(model, ids, mask, **options), generated(model, ids, mask, **options))


def test_a_text_is_answered_alike_alone_and_in_company():
    model, (ids, mask) = tilted(make_bart(), 2.0), padded(TEXTS)
    together = written(model, ids, mask, beams=4, longest=6)
    alone = [written(model, *padded([text]), beams=4, longest=6)[0] for text in TEXTS]
    assert_same(together, alone)


def test_one_beam_is_the_greedy_choice():
    """Without a penalty: what is left behind an end is less likely than what ended."""
    model, (ids, mask) = tilted(make_t5(tied=True), 2.5), padded(TEXTS)
    ours = written(model, ids, mask, beams=1, longest=10, length_penalty=0.0)
    out = model.generate(
        input_ids=ids,
        attention_mask=mask,
        num_beams=1,
        do_sample=False,
        max_new_tokens=11,
        logits_processor=LogitsProcessorList([OnlyTheEnd(10)]),
    )
    rows = [row[1 : row.index(END, 1)] for row in out.tolist()]
    assert [list(row[0].tokens) for row in ours] == rows
    assert [len(row) for row in ours] == [1] * len(TEXTS)
    assert len(set(map(len, rows))) > 1


def scored(model, states, mask, sequences) -> list[float]:
    """The log-probability of each sequence with its end, by teacher forcing, one by one."""
    found = []
    for tokens in sequences:
        target = torch.tensor([[*tokens, END]])
        reads = torch.tensor([[model.config.decoder_start_token_id, *tokens]])
        known = BaseModelOutput(last_hidden_state=states)
        logits = model(
            encoder_outputs=known, attention_mask=mask, decoder_input_ids=reads, use_cache=False
        ).logits
        each = logits.double().log_softmax(-1).gather(2, target.unsqueeze(-1))
        found.append(float(each.sum()))
    return found


@pytest.mark.parametrize("name", ["t5", "bart"])
@pytest.mark.parametrize(("longest", "length_penalty"), [(1, 0.0), (1, 1.0), (3, 0.0), (3, 1.0)])
def test_more_beams_than_sequences_find_every_one(name, longest, length_penalty):
    """Of 5 tokens 4 do not end: 1 + 4 + ... sequences, each with the score that teacher forcing gives."""
    model = make_t5(tied=True, vocabulary=5) if name == "t5" else make_bart(vocabulary=5)
    texts = [[2, 3, 4, 1], [4, 1]]
    (ids, mask) = padded(texts)
    others = [token for token in range(5) if token != END]
    sequences = [row for size in range(longest + 1) for row in product(others, repeat=size)]
    found = written(model, ids, mask, beams=100, longest=longest, length_penalty=length_penalty)
    with torch.no_grad():
        for text, row in zip(texts, found, strict=True):
            own, own_mask = padded([text])
            sums = scored(model, read(model, own, own_mask), own_mask, sequences)
            expected = {t: s / (len(t) + 1) ** length_penalty for t, s in zip(sequences, sums, strict=True)}
            assert len(row) == len(sequences)
            assert {one.tokens: one.score for one in row} == pytest.approx(expected, abs=1e-4)
            assert [one.score for one in row] == sorted((one.score for one in row), reverse=True)


def test_more_beams_than_the_vocabulary_equal_generate():
    """With 20 tokens and 12 beams the best 24 continuations cannot come from the start alone."""
    model, (ids, mask) = tilted(make_t5(tied=True, vocabulary=20), 1.0), padded([[7, 9, 1], [4, 5, 6, 7, 1]])
    options = {"beams": 12, "longest": 5, "length_penalty": 0.0}
    assert_same(written(model, ids, mask, **options), generated(model, ids, mask, **options))


def test_the_longest_sequence_of_one_token():
    model, (ids, mask) = make_bart(), padded(TEXTS)
    options = {"beams": 6, "longest": 1, "length_penalty": 1.0}
    ours = written(model, ids, mask, **options)
    assert_same(ours, generated(model, ids, mask, **options))
    assert {len(one.tokens) for row in ours for one in row} <= {0, 1}


@pytest.mark.parametrize("family", ["t5", "t5-untied", "bart"])
def test_a_network_of_the_whole_vocabulary_writes_as_its_checkpoint(tmp_path, family):
    """Its decoder has tokens of its own: start, end, then all others."""
    folder = tiny.save_checkpoint(tmp_path, family.partition("-")[0])
    kind = BartForConditionalGeneration if family == "bart" else T5ForConditionalGeneration
    changed = {"decoder_start_token_id": 3} if family == "bart" else {}
    if family == "t5-untied":
        torch.manual_seed(5)
        stored = load_file(folder / "model.safetensors")
        stored["lm_head.weight"] = torch.randn(stored["shared.weight"].shape) * 0.3
        save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
        changed = {"tie_word_embeddings": False, "scale_decoder_outputs": False}
    model = kind.from_pretrained(folder, **changed).eval()
    model.generation_config.forced_eos_token_id = None
    if changed:
        model.config.save_pretrained(folder)
        model.generation_config.decoder_start_token_id = model.config.decoder_start_token_id
    if family == "t5-untied":
        model.encoder.embed_tokens.weight = model.decoder.embed_tokens.weight = model.shared.weight
    start = model.config.decoder_start_token_id
    others = [token for token in range(tiny.SIZE) if token not in (start, END)]
    network = Network.build(folder, others).eval()
    ids, mask = padded(TEXTS)
    with torch.no_grad():
        states = network.encode(ids, mask)
    found = free_beam(
        network.decoder_for_search(), states, mask, end=END, beams=5, longest=6, length_penalty=1.0
    )
    back = [start, END, *others]
    named = [[Written(tuple(back[t] for t in one.tokens), one.score) for one in row] for row in found]
    assert_same(named, generated(model, ids, mask, beams=5, longest=6, length_penalty=1.0))


@pytest.mark.parametrize(("beams", "longest"), [(0, 5), (-1, 5), (3, 0)])
def test_what_cannot_be_meant_is_refused(beams, longest):
    model, (ids, mask) = make_t5(tied=True), padded(TEXTS)
    with pytest.raises(ValueError, match=f"at least 1 beam and 1 token, found {beams} and {longest}"):
        written(model, ids, mask, beams=beams, longest=longest)


def test_more_tokens_than_the_model_has_positions_are_refused():
    model, (ids, mask) = make_bart(), padded(TEXTS)
    assert written(model, ids, mask, beams=2, longest=31)
    with pytest.raises(ValueError, match="33 decoder positions; the model has 32"):
        written(model, ids, mask, beams=2, longest=32)
