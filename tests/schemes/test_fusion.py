"""Regularised fusion: its losses by plain loops, its two models, learning that resumes, writing by shards."""

import math
import random
import shutil
from collections import Counter
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers import tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from gr2.data.collection import Collection, Document
from gr2.decode.free import free_beam
from gr2.model.network import END, FIRST
from gr2.model.padding import padded
from gr2.schemes.config import FusionConfig, GeneratorConfig
from gr2.schemes.fusion import generator as writing
from gr2.schemes.fusion import latent, pairs
from gr2.schemes.fusion.generator import DocidGenerator
from gr2.schemes.fusion.network import Fusion, FusionObjective, PairBatch, with_end
from gr2.schemes.fusion.pairs import PairBatches, PairRows, Pairs, pairs_of
from gr2.training.config import OptimiserConfig
from gr2.training.loop import LoopConfig

SMALL = FusionConfig(width=8, slots=3)
OPTIMISER = OptimiserConfig(learning_rate=1e-2, average=0.0)
FAST = GeneratorConfig(fusion=SMALL, steps=4, batch=8, optimiser=OPTIMISER, radius=0.5, beams=4)


@pytest.fixture(scope="module", params=tiny.FAMILIES)
def backbone(request, checkpoints) -> Path:
    return checkpoints[request.param]


def named_pairs(docnos: list[str]) -> Pairs:
    return Pairs(docnos, [f"text of {d}" for d in docnos], [str(i) for i in range(len(docnos))], "queries")


def docnos_that_are(held: bool, count: int) -> list[str]:
    """Docnos that `Pairs.parted` holds out, or that it does not."""
    names = (f"{'h' if held else 'd'}{i:03}" for i in range(10**6))
    found = (name for name in names if bool(len(named_pairs([name, "x"]).parted()[1])) == held)
    return list(islice(found, count))


def toys(count: int = 15, *, held: int = 0) -> Collection:
    """Documents of random words that begin with their title; so many are held out to judge by."""
    draw = random.Random(0)
    documents = []
    for docno in [*docnos_that_are(True, held), *docnos_that_are(False, count - held)]:
        words = draw.sample(tiny.WORDS, 6)
        documents.append(Document(docno, " ".join(words[:3]), " ".join(words)))
    return Collection(name="toys", documents=tuple(documents), queries={}, qrels={})


def texts_of(data: Collection) -> dict[str, str]:
    return {document.docno: document.contents for document in data.documents}


def learned(
    data: Collection, backbone: Path, folder: Path, config: GeneratorConfig, **options
) -> DocidGenerator:
    writer = DocidGenerator.of(data, str(backbone), config)
    writer.fit(folder, **options)
    return writer


# The losses, from the paper's formulas, a term at a time.


def plain_sim(a: torch.Tensor, b: torch.Tensor, kind: str) -> torch.Tensor:
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    if kind == "dot":
        return dot
    return dot / (sum(x * x for x in a).sqrt() * sum(y * y for y in b).sqrt())


def plain_relevance(e_d, e_q, kind, temperature, log) -> torch.Tensor:
    total = 0.0
    for d, document in enumerate(e_d):
        own, others = 0.0, 0.0
        for q, query in enumerate(e_q):
            value = torch.exp(plain_sim(document, query, kind) / temperature)
            own, others = (value, others) if q == d else (own, others + value)
        ratio = own / (own + others)
        total = total + (torch.log(ratio) if log else ratio)
    return -total / len(e_d)


def plain_distinctness(e_d, e_q, kind) -> torch.Tensor:
    count, total = len(e_d), 0.0
    for i in range(count):
        for j in range(count):
            if i != j:
                near = plain_sim(e_d[i], e_d[j], kind) + plain_sim(e_q[i], e_q[j], kind)
                total = total + near / (count * (count - 1))
        total = total - plain_sim(e_d[i], e_q[i], kind) / count
    return total


def latents(count: int = 5, width: int = 4, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    made = torch.tanh(torch.randn(2, count, width, generator=generator, dtype=torch.double))
    return made[0].clone().requires_grad_(), made[1].clone().requires_grad_()


def assert_same_with_gradients(function, plain, rows) -> None:
    value, expected = function(*rows), plain(*rows)
    torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(
        torch.autograd.grad(value, rows), torch.autograd.grad(expected, rows), rtol=1e-8, atol=1e-10
    )
    assert torch.autograd.gradcheck(function, rows)


@pytest.mark.parametrize("temperature", [1.0, 0.1])
@pytest.mark.parametrize("log", [True, False])
@pytest.mark.parametrize("kind", ["cosine", "dot"])
def test_relevance_is_the_paper_s(kind, log, temperature):
    assert_same_with_gradients(
        partial(latent.relevance, kind=kind, log=log, temperature=temperature),
        lambda e_d, e_q: plain_relevance(e_d, e_q, kind, temperature, log),
        latents(),
    )


@pytest.mark.parametrize("kind", ["cosine", "dot"])
def test_distinctness_is_the_paper_s(kind):
    assert_same_with_gradients(
        partial(latent.distinctness, kind=kind),
        lambda e_d, e_q: plain_distinctness(e_d, e_q, kind),
        latents(seed=1),
    )


def test_losses_of_two_pairs_by_hand():
    """Documents apart by a right angle; the first query is its document, the second points away from its."""
    e_d, e_q = torch.tensor([[2.0, 0], [0, 1]]), torch.tensor([[1.0, 0], [0, -1]])
    first, second = math.e / (math.e + 1), math.exp(-1) / (math.exp(-1) + 1)
    assert float(latent.relevance(e_d, e_q)) == pytest.approx(-(math.log(first) + math.log(second)) / 2)
    assert float(latent.relevance(e_d, e_q, log=False)) == pytest.approx(-(first + second) / 2)
    twice = math.exp(2) / (math.exp(2) + 1)
    assert float(latent.relevance(e_d, e_q, kind="dot", log=False)) == pytest.approx(-(twice + second) / 2)
    assert float(latent.distinctness(e_d, e_q)) == pytest.approx(0 + 0 - (1 - 1) / 2)
    assert float(latent.distinctness(e_d, e_q, kind="dot")) == pytest.approx(0 + 0 - (2 - 1) / 2)
    assert float(latent.distinctness(e_d, e_d[[0, 0]])) == pytest.approx(0 + 1 - (1 + 0) / 2)


def test_one_pair_alone_has_nobody_to_be_apart_from():
    e_d, e_q = (rows.detach() for rows in latents(1))
    assert float(latent.relevance(e_d, e_q)) == pytest.approx(0)
    assert float(latent.distinctness(e_d, e_q)) == pytest.approx(-float(plain_sim(e_d[0], e_q[0], "cosine")))


def test_the_loss_is_the_weighted_sum():
    parts = torch.tensor([1.0, 20.0, 300.0, 4000.0])
    assert float(latent.docid_loss(*parts)) == 1 + 20 + 300 + 30 * 4000
    assert float(latent.docid_loss(*parts, alpha=0.5, beta=2.0)) == 1 + 20 + 150 + 8000


# Vectors on the sphere.


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.floats(0.01, 0.5), st.integers(2, 64))
def test_z_is_on_the_sphere_where_nothing_was_clamped(seed, radius, width):
    generator = torch.Generator().manual_seed(seed)
    e_d = torch.rand(20, width, generator=generator) - 0.5  # |coordinates| ≤ 1/2, so no sum passes 1
    noise = torch.randn(20, width, generator=generator) * 10 ** (seed % 5 - 2)
    z = latent.on_sphere(e_d, noise, radius)
    assert torch.allclose((z - e_d).norm(dim=1), torch.full((20,), radius), rtol=1e-4)
    towards = torch.cosine_similarity(z - e_d, noise, dim=1)
    assert torch.allclose(towards, torch.ones(20), atol=1e-3)


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.floats(0.0, 30.0))
def test_z_stays_inside_the_bounds(seed, radius):
    generator = torch.Generator().manual_seed(seed)
    e_d = torch.tanh(3 * torch.randn(10, 6, generator=generator))
    noise = torch.randn(10, 6, generator=generator)
    z = latent.on_sphere(e_d, noise, radius)
    assert float(z.abs().max()) <= 1
    free = e_d + radius * noise / noise.norm(dim=1, keepdim=True)
    inside = free.abs() <= 1
    assert torch.allclose(z[inside], free[inside], atol=1e-5)
    assert (z[~inside] == free[~inside].sign()).all()


def test_no_radius_is_the_document_itself():
    e_d = torch.tensor([[0.3, -0.9], [1.0, -1.0]])
    assert torch.equal(latent.on_sphere(e_d, torch.randn(2, 2), 0.0), e_d)


def noise_of(docnos, *, width=6, seed=0, attempt=0) -> torch.Tensor:
    config = GeneratorConfig(fusion=FusionConfig(width=width))
    device = SimpleNamespace(device=torch.device("cpu"))
    writer = SimpleNamespace(seed=seed, config=config, fusion=device)
    return DocidGenerator.noise(writer, [(d, []) for d in docnos], attempt)


def test_directions_are_uniform():
    """Of n unit vectors in Z dimensions: mean 0 ± 1/√(nZ), covariance I/Z, every orthant equally often."""
    count, width = 4000, 4
    r = latent.on_sphere(torch.zeros(count, width), noise_of(map(str, range(count)), width=width), 1.0)
    assert r.mean(0).abs().max() < 4 / math.sqrt(count * width)
    assert torch.allclose(r.T @ r / count, torch.eye(width) / width, atol=0.02)
    orthants = np.bincount(((r > 0).long() @ torch.tensor([8, 4, 2, 1])).numpy(), minlength=16)
    assert abs(orthants / count * 16 - 1).max() < 0.3  # a standard deviation is 0.06


def test_noise_is_of_seed_docno_and_try_alone():
    some = noise_of(["a", "b", "c"])
    assert torch.equal(some[[2, 0]], noise_of(["c", "a"]))
    for other in (noise_of(["a", "b", "c"], seed=1), noise_of(["a", "b", "c"], attempt=1)):
        assert (other - some).abs().min() > 0
    assert len({tuple(row) for row in some.tolist()}) == 3


# The network.


def small_fusion(backbone: Path, **options) -> Fusion:
    tokens = list(range(len(tiny.SPECIAL), tiny.SIZE))
    return Fusion.build(backbone, tokens, replace(SMALL, **options), seed=3)


def some_batch(seed: int = 0) -> PairBatch:
    """Of pairs of unequal length."""
    draw = random.Random(seed)
    documents, queries, targets = (
        [draw.choices(range(len(tiny.SPECIAL), tiny.SIZE), k=draw.randint(2, most)) for _ in range(5)]
        for most in (9, 5, 5)
    )
    return PairBatch(*padded(documents), *padded(queries), *with_end([[t - 2 for t in r] for r in targets]))


def parts_of(fusion: Fusion, batch: PairBatch) -> dict[str, float]:
    with torch.no_grad():
        return {name: float(value) for name, value in FusionObjective(fusion.config)(fusion, batch).items()}


def choosy(fusion: Fusion) -> Fusion:
    """A fresh decoder looks at all states alike, that is at their mean; this one has preferences."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in fusion.generator.decoder.named_parameters():
            if ("EncDecAttention" in name or "encoder_attn." in name) and weight.ndim == 2:
                weight.normal_(std=0.3, generator=generator)
    return fusion.eval()


def stirred(module: torch.nn.Module):
    """Let an encoder give other states of the real tokens, with the same mean."""

    def hook(_, args, kwargs, output):
        for states, mask in zip(output.last_hidden_state, kwargs["attention_mask"], strict=True):
            real = int(mask.sum())
            states[:real] = states[:real] + 3 * (states[:real].flip(0) - states[:real])

    return module.register_forward_hook(hook, with_kwargs=True)


@pytest.mark.parametrize("latent_only", [False, True])
def test_the_autoencoder_s_decoder_sees_the_slots_alone(backbone, latent_only):
    fusion, batch = choosy(small_fusion(backbone, latent_only=latent_only)), some_batch()
    before = parts_of(fusion, batch)
    with torch.no_grad():
        e_d = fusion.read_documents(batch.documents, batch.document_mask)[1]
        e_q = fusion.read_queries(batch.queries, batch.query_mask)
    stirring = stirred(fusion.autoencoder)
    with torch.no_grad():
        assert torch.allclose(fusion.read_queries(batch.queries, batch.query_mask), e_q, atol=1e-5)
    after = parts_of(fusion, batch)
    stirring.remove()
    assert after == pytest.approx(before, abs=1e-4)
    stirring = stirred(fusion.generator.encoder)
    with torch.no_grad():
        assert torch.allclose(fusion.read_documents(batch.documents, batch.document_mask)[1], e_d, atol=1e-5)
    after = parts_of(fusion, batch)
    stirring.remove()
    assert after["autoencoder"] == pytest.approx(before["autoencoder"], abs=1e-4)
    if latent_only:  # then the generator's sees no more than that either
        assert after["generator"] == pytest.approx(before["generator"], abs=1e-4)
    else:
        assert abs(after["generator"] - before["generator"]) > 1e-3


def test_memory_is_slots_then_states(backbone):
    fusion, batch = small_fusion(backbone).eval(), some_batch()
    with torch.no_grad():
        states, e_d = fusion.read_documents(batch.documents, batch.document_mask)
    assert e_d is not None
    assert e_d.shape == (5, SMALL.width) and float(e_d.abs().max()) < 1
    both, mask = fusion.memory(e_d, states, batch.document_mask)
    assert both.shape[1] == SMALL.slots + states.shape[1]
    assert torch.equal(both[:, SMALL.slots :], states)
    assert torch.equal(mask[:, SMALL.slots :], batch.document_mask) and bool(mask[:, : SMALL.slots].all())
    alone, mask = fusion.memory(e_d, None, None)
    assert torch.equal(alone, both[:, : SMALL.slots]) and mask.shape == (5, SMALL.slots)
    narrow = small_fusion(backbone, latent_only=True)
    assert narrow.memory(e_d, states, batch.document_mask)[0].shape[1] == SMALL.slots


def test_e_d_and_e_q_are_the_tanh_of_the_mapped_mean_of_real_states(backbone):
    fusion, batch = small_fusion(backbone).eval(), some_batch()
    with torch.no_grad():
        states, e_d = fusion.read_documents(batch.documents, batch.document_mask)
        e_q = fusion.read_queries(batch.queries, batch.query_mask)
        for row in range(5):
            real = int(batch.document_mask[row].sum())
            mean = sum(states[row, place] for place in range(real)) / real
            torch.testing.assert_close(e_d[row], torch.tanh(fusion.into["document"](mean)))
            own = batch.queries[row, : int(batch.query_mask[row].sum())][None]
            alone = fusion.autoencoder(input_ids=own, attention_mask=torch.ones_like(own)).last_hidden_state
            mean = fusion.generator.bridge(alone)[0].mean(0)
            torch.testing.assert_close(e_q[row], torch.tanh(fusion.into["query"](mean)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("count", [200, 3, 1])
def test_maps_that_fill_the_space_centre_each_kind_and_make_directions_equally_strong(count):
    draw = torch.Generator().manual_seed(0)
    strengths = torch.linspace(5, 0.1, 20)
    documents, queries = (torch.randn(count, 20, generator=draw) * strengths for _ in range(2))
    documents, queries = documents + 40, queries - 7  # what all of a kind have in common
    weights, *biases = latent.filling(documents, queries, 8, spread=0.3)
    assert len(weights) == {200: 8, 3: 4, 1: 0}[count]
    found = [rows @ weights.T + bias for rows, bias in zip((documents, queries), biases, strict=True)]
    for rows in found:
        torch.testing.assert_close(rows.mean(0), torch.zeros(len(weights)), atol=1e-4, rtol=0)
    together = torch.cat(found)
    wanted = 0.09 * torch.eye(len(weights))
    torch.testing.assert_close(together.T @ together / len(together), wanted, atol=1e-4, rtol=0)


def test_a_filled_space_keeps_documents_apart_that_a_random_one_does_not(backbone):
    fusion, batch = small_fusion(backbone).eval(), some_batch()
    with torch.inference_mode():
        before = fusion.read_documents(batch.documents, batch.document_mask)[1]
        fusion.fill_space(batch)
        after = fusion.read_documents(batch.documents, batch.document_mask)[1]
        queries = fusion.read_queries(batch.queries, batch.query_mask)
    apart = [float(latent.similarity(rows, rows).mean()) for rows in (before, after, queries)]
    assert max(apart[1:]) < min(0.5, apart[0])  # 0.2 is the diagonal alone


def test_both_models_have_one_decoder_and_encoders_of_their_own(backbone):
    fusion, batch = small_fusion(backbone), some_batch()
    calls = []
    fusion.generator.decoder.register_forward_hook(lambda *_: calls.append(1))
    parts = FusionObjective(fusion.config)(fusion, batch)
    assert len(calls) == 2, "the decoder writes for the generator and for the autoencoder"
    decoder = {
        name: parameter
        for name, parameter in fusion.named_parameters()
        if name.startswith(("generator.decoder.", "generator.head."))
    }
    known = ("generator.", "autoencoder.", "into.", "slots.")
    assert all(name.startswith(known) for name, _ in fusion.named_parameters())
    reached = {}
    for part in ("generator", "autoencoder"):
        fusion.zero_grad()
        parts[part].backward(retain_graph=True)
        reached[part] = {name for name, p in decoder.items() if p.grad is not None and p.grad.any()}
    assert reached["generator"] == reached["autoencoder"]
    assert {"generator.head.weight", "generator.decoder.embed_tokens.weight"} <= reached["generator"]
    readers = [set(fusion.generator.encoder.parameters()), set(fusion.autoencoder.parameters())]
    assert not readers[0] & readers[1] and len(readers[0]) == len(readers[1])
    assert not (readers[0] | readers[1]) & set(fusion.generator.decoder.parameters())
    stored = fusion.weights()
    assert not any(name.startswith("autoencoder.decoder") for name in stored)


@pytest.mark.parametrize(
    ("kind", "log", "smoothing"), [("cosine", True, 0.0), ("cosine", False, 0.2), ("dot", True, 1.0)]
)
def test_the_objective_is_the_sum_of_its_parts(backbone, kind, log, smoothing):
    options = {"alpha": 0.7, "beta": 3.0, "temperature": 0.5}
    options |= {"similarity": kind, "log": log, "smoothing": smoothing}
    fusion, batch = small_fusion(backbone, **options).eval(), some_batch()
    parts = parts_of(fusion, batch)
    with torch.no_grad():
        states, e_d = fusion.read_documents(batch.documents, batch.document_mask)
        e_q = fusion.read_queries(batch.queries, batch.query_mask)
        rel = plain_relevance(e_d, e_q, kind, 0.5, log=log)
        div = plain_distinctness(e_d, e_q, kind)
        likelihoods = {"generator": [], "autoencoder": []}
        for row in range(5):
            alone = {
                "generator": fusion.memory(e_d[[row]], states[[row]], batch.document_mask[[row]]),
                "autoencoder": fusion.memory(e_q[[row]], None, None),
            }
            tokens = batch.targets[row, : int(batch.real[row].sum())].tolist()
            assert tokens[-1] == END
            for name, memory in alone.items():
                hidden = fusion.generator.decode(*memory, torch.tensor([[0, *tokens[:-1]]]))
                logp = fusion.generator.head(hidden)[0].log_softmax(-1)
                likelihoods[name].append(
                    sum(
                        (1 - smoothing) * float(logp[i, t]) + smoothing * float(logp[i].mean())
                        for i, t in enumerate(tokens)
                    )
                )
    for name, values in likelihoods.items():
        assert parts[name] == pytest.approx(-sum(values) / 5, rel=1e-4)
    assert parts["relevance"] == pytest.approx(float(rel), rel=1e-4)
    assert parts["distinctness"] == pytest.approx(float(div), abs=1e-5)
    total = parts["generator"] + parts["autoencoder"] + 0.7 * float(rel) + 3 * float(div)
    assert parts["total"] == pytest.approx(total, rel=1e-4)


def test_without_regularisation_it_is_the_plain_generator(backbone):
    fusion, batch = small_fusion(backbone, regularised=False).eval(), some_batch()
    assert not hasattr(fusion, "autoencoder") and not hasattr(fusion, "slots")
    states, e_d = fusion.read_documents(batch.documents, batch.document_mask)
    assert e_d is None
    assert torch.equal(fusion.memory(None, states, batch.document_mask)[0], states)
    parts = parts_of(fusion, batch)
    assert parts.keys() == {"generator", "total"} and parts["generator"] == parts["total"]


def test_weights_are_taken_whole_or_refused(backbone):
    one, two = small_fusion(backbone), Fusion.build(backbone, list(range(4, tiny.SIZE)), SMALL, seed=8)
    batch = some_batch()
    assert parts_of(one.eval(), batch) != parts_of(two.eval(), batch)
    two.load(one.weights())
    assert parts_of(one, batch) == parts_of(two, batch)
    fewer = dict(one.weights())
    del fewer["slots.weight"]
    with pytest.raises(ValueError, match=r"missing \['slots.weight'\]"):
        two.load(fewer)
    with pytest.raises(ValueError, match="unknown"):
        small_fusion(backbone, regularised=False).load(one.weights())


# Learning.


def interrupted(data, backbone, folder, config, stops) -> DocidGenerator:
    """Learn, leaving the loop at each of these steps, as a kill between a step and its checkpoint."""

    class Stopped(BaseException):
        pass

    def leave_at(stop):
        def leave(now):
            if now.step == stop:
                raise Stopped

        return leave

    for stop in stops:
        writer = DocidGenerator.of(data, str(backbone), config)
        with pytest.raises(Stopped):  # else it is stopped too late to show anything
            writer.fit(folder, resume=True, progress=leave_at(stop))
        assert 0 < int(writing_step(folder)) == stop - 1
    return learned(data, backbone, folder, config, resume=True)


def writing_step(folder: Path) -> str:
    (only,) = folder.glob("checkpoint-*")
    return only.name.rpartition("-")[2]


@pytest.fixture
def checkpoint_each_step(monkeypatch):
    """`GeneratorConfig` does not say how often a checkpoint is written; five minutes are long for a test."""
    often = partial(LoopConfig, checkpoint_minutes=-1.0, log_every=1)
    monkeypatch.setattr(writing, "LoopConfig", often)


@pytest.mark.parametrize(("family", "judged"), [("t5", 3), ("encoder", 0)])
def test_interrupted_and_resumed_it_ends_with_the_same_bytes(
    checkpoints, tmp_path, checkpoint_each_step, family, judged
):
    data, backbone, config = toys(15, held=judged), checkpoints[family], replace(FAST, steps=8)
    whole = learned(data, backbone, tmp_path / "whole", config)
    again = interrupted(data, backbone, tmp_path / "again", config, [3, 8])
    assert ("validation" in (tmp_path / "whole" / "metrics.jsonl").read_text()) == bool(judged)
    weights = [writer.fusion.weights() for writer in (whole, again)]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    files = {path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole").rglob("*")}
    assert files == {path.relative_to(tmp_path / "again") for path in (tmp_path / "again").rglob("*")}
    for name in files:
        if (tmp_path / "whole" / name).is_file():
            assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name
    proposals = [
        writer.propose(texts_of(data), tmp_path / f"written-{index}")
        for index, writer in enumerate((whole, again))
    ]
    assert proposals[0] == proposals[1]


def test_a_run_that_is_over_gives_its_result_again(t5, tmp_path):
    data = toys(15)
    one = learned(data, t5, tmp_path, FAST)
    two = learned(data, t5, tmp_path, FAST, resume=True)
    assert all(torch.equal(value, two.fusion.weights()[name]) for name, value in one.fusion.weights().items())
    with pytest.raises(ValueError, match="resume"):
        learned(data, t5, tmp_path, FAST)


def by_heart(backbone: Path, folder: Path, **options) -> tuple[DocidGenerator, dict[str, str], list]:
    """Learn fifteen documents, each with a query of words that are not in it."""
    data, draw = toys(15), random.Random(4)
    queries = {f"q{d.docno}": " ".join(draw.sample(tiny.WORDS, 3)) for d in data.documents}
    qrels = {"train": {f"q{d.docno}": {d.docno: 1} for d in data.documents}}
    data = replace(data, queries=queries, qrels=qrels)
    fusion = replace(FusionConfig(width=16, slots=2, smoothing=0.0), **options)
    config = replace(FAST, fusion=fusion, steps=100, batch=15, radius=0.0)
    writer = DocidGenerator.of(data, str(backbone), config)
    run = []
    writer.fit(folder, progress=run.append)
    assert writer.pairs.targets == "queries"
    return writer, {d.docno: queries[f"q{d.docno}"] for d in data.documents}, run


@pytest.mark.parametrize("regularised", [True, False])
def test_it_learns_to_write_the_right_query(backbone, tmp_path, monkeypatch, regularised):
    monkeypatch.setattr(pairs, "FEW", 1)
    writer, wanted, run = by_heart(backbone, tmp_path, regularised=regularised)
    first, last = run[0].parts, run[-1].parts
    assert last["generator"] < first["generator"] / 4
    if regularised:
        assert last["autoencoder"] < first["autoencoder"] / 2 and last["relevance"] < first["relevance"]
        assert last["distinctness"] < -0.9, "nothing but what belongs together is alike"
    found = writer.propose(texts_of(toys(15)), tmp_path)
    assert sum(found[docno][0][0] == query for docno, query in wanted.items()) >= 12


def test_what_is_written_from_z_alone_changes_with_the_radius(t5, tmp_path, monkeypatch):
    """`latent_only`: at its own e_d a document gets its query; far from it, what is written there."""
    monkeypatch.setattr(pairs, "FEW", 1)
    writer, wanted, _ = by_heart(t5, tmp_path, latent_only=True)
    right = []
    for radius in (0.0, 0.2, 4.0):
        found = writer.with_radius(radius).propose(texts_of(toys(15)), tmp_path / str(radius))
        right.append(sum(found[docno][0][0] == query for docno, query in wanted.items()))
    assert right[0] >= 12 and right[1] >= 10 and right[2] <= 10, right


# Writing.


@pytest.fixture(scope="module")
def writer(t5, tmp_path_factory) -> DocidGenerator:
    config = replace(FAST, steps=60, optimiser=replace(OPTIMISER, learning_rate=5e-3))
    return learned(toys(50), t5, tmp_path_factory.mktemp("writer"), config)


def by_hand(writer: DocidGenerator, chunk, z_of) -> list:
    """Read, make memory, search: what `write` promises for z = z_of(e_d)."""
    fusion = writer.fusion
    ids, mask = padded([row for _, row in chunk])
    with torch.no_grad():
        states, e_d = fusion.read_documents(ids, mask)
        memory = fusion.memory(z_of(e_d), states, mask)
    found = free_beam(
        fusion.generator.decoder_for_search(),
        *memory,
        end=END,
        beams=writer.config.beams,
        longest=writer.config.query_tokens,
        length_penalty=writer.config.length_penalty,
    )
    rows = []
    for written in found:
        texts: dict[str, float] = {}
        for one in written:
            words = [
                writer.tokenizer.decode([writer.vocabulary[t - FIRST]]) for t in one.tokens if t >= FIRST
            ]
            texts.setdefault(" ".join(words), one.score)
        rows.append({text: score for text, score in texts.items() if text})
    return rows


def test_no_radius_is_plain_beam_search_from_the_document(writer):
    chunk = writer.chunks(texts_of(toys(50)))[1]
    plain = writer.with_radius(0.0)
    found = plain.write(chunk)
    for attempt in (1, 2):
        assert plain.write(chunk, attempt=attempt) == found, "without r, another try changes nothing"
    expected = by_hand(writer, chunk, lambda e_d: e_d)
    assert any(expected)
    for (docno, _), row in zip(chunk, expected, strict=True):
        assert [text for text, _ in found[docno]] == list(row)
        assert [score for _, score in found[docno]] == pytest.approx(list(row.values()), abs=1e-5)


@pytest.mark.parametrize(("attempt", "length"), [(0, 0.6), (1, 1.2), (2, 2.4)])
def test_a_radius_moves_z_by_that_much_and_every_other_try_twice_as_far(writer, attempt, length):
    chunk, far = writer.chunks(texts_of(toys(50)))[0], writer.with_radius(0.6)

    def z_of(e_d):
        noise = far.noise(chunk, attempt)
        return (e_d + length * noise / noise.norm(dim=1, keepdim=True)).clamp(-1, 1)

    found, expected = far.write(chunk, attempt=attempt), by_hand(far, chunk, z_of)
    assert [list(dict(found[docno])) for docno, _ in chunk] == [list(row) for row in expected]
    assert found != far.write(chunk, attempt=attempt + 1)


def test_proposals_depend_neither_on_shards_nor_on_order(writer, tmp_path, monkeypatch):
    texts = texts_of(toys(50))
    whole = writer.propose(texts, tmp_path / "one")
    assert set(whole) == set(texts) and all(whole.values())
    (only,) = (tmp_path / "one").glob("proposals-*")
    monkeypatch.setattr(writing, "SHARD", 1)
    assert writer.propose(texts, tmp_path / "four") == whole
    files = sorted((tmp_path / "four").glob("proposals-*"))
    assert len(files) == 4
    assert b"".join(path.read_bytes() for path in files) == only.read_bytes()
    content = {path.name: path.read_bytes() for path in files}

    chunks = writer.chunks(texts)  # one shard at a time, the last one first
    for number in (3, 1, 0, 2):
        writer.write_shard([chunks[number]], tmp_path / "turned" / files[number].name, texts)
    assert {path.name: path.read_bytes() for path in (tmp_path / "turned").iterdir()} == content

    shutil.copytree(tmp_path / "four", tmp_path / "lost")  # some were lost
    for number in (0, 2):
        (tmp_path / "lost" / files[number].name).unlink()
    assert writer.propose(texts, tmp_path / "lost") == whole
    assert {path.name: path.read_bytes() for path in (tmp_path / "lost").iterdir()} == content

    shuffled = list(texts.items())
    random.Random(1).shuffle(shuffled)
    assert writer.propose(dict(shuffled), tmp_path / "shuffled") == whole
    assert {path.name: path.read_bytes() for path in (tmp_path / "shuffled").iterdir()} == content


def test_a_shard_that_is_there_is_not_written_again(writer, tmp_path, monkeypatch):
    texts = texts_of(toys(50))
    monkeypatch.setattr(writing, "SHARD", 1)
    whole = writer.propose(texts, tmp_path)
    asked = []
    write = writer.write
    monkeypatch.setattr(writer, "write", lambda chunk, **o: asked.append(len(chunk)) or write(chunk, **o))
    assert writer.propose(texts, tmp_path) == whole and not asked
    (tmp_path / "proposals-0-00003-of-00004.jsonl").unlink()
    assert writer.propose(texts, tmp_path) == whole and asked == [2]


def test_proposals_are_best_first_and_each_text_once(writer, tmp_path):
    for row in writer.propose(texts_of(toys(50)), tmp_path).values():
        scores = [score for _, score in row]
        assert scores == sorted(scores, reverse=True)
        assert len({text for text, _ in row}) == len(row) <= writer.config.beams


def test_a_document_without_words_gets_a_proposal(writer, tmp_path):
    found = writer.propose({"d1": "", "d2": "    ", "d3": "日本語"}, tmp_path)
    assert all(row and row[0][0].strip() for row in found.values())


def test_every_word_of_queries_can_be_written(t5):
    """The decoder's own tokens ↔ the tokenizer's, there and back."""
    writer = DocidGenerator.fresh(str(t5), ["baka beke", "duku 12"], FAST)
    rows = writer._plain(["duku baka", "12 beke"])
    assert [writer.text(writer.compact(row)) for row in rows] == ["duku baka", "1 2 beke"]
    assert writer.compact(rows[0])[0] == FIRST + list(writer.vocabulary).index(rows[0][0])


# Pairs and their batches.


def graded(count: int) -> Collection:
    """Queries of two grades, of which the upper one counts, and judgements of splits that do not."""
    data = toys(20)
    docnos = [d.docno for d in data.documents]
    queries = {f"q{i:03}": f"query {i}" for i in range(count + 2)}
    train = {
        f"q{i:03}": {docnos[i % 20]: 3, docnos[(i + 7) % 20]: 3, docnos[(i + 1) % 20]: 1}
        for i in range(count)
    }
    train[f"q{count:03}"] = {docnos[0]: 0}
    return replace(
        data, queries=queries, qrels={"train": train, "test": {f"q{count + 1:03}": {docnos[1]: 5}}}
    )


def test_pairs_are_queries_with_the_documents_of_their_highest_grade():
    data = graded(200)
    found, texts = pairs_of(data), texts_of(data)
    assert found.targets == "queries"
    docnos = list(texts)
    expected = {(docnos[(i + shift) % 20], f"query {i}") for i in range(200) for shift in (0, 7)}
    assert set(zip(found.docnos, found.queries, strict=True)) == expected and len(found) == len(expected)
    assert [texts[docno] for docno in found.docnos] == found.documents


def test_with_few_queries_documents_speak_for_themselves():
    documents = (
        Document("a", "a title", "and text"),
        Document("b", "", "First sentence. Second one. Third."),
        Document("c", "a title alone"),
        Document("d", "", "one sentence"),
        Document("e"),
        Document("f", "  ", "Blank title. More."),
    )
    found = pairs_of(replace(graded(199), documents=documents))
    assert found.targets == "titles and leading sentences"
    assert list(zip(found.docnos, found.documents, found.queries, strict=True)) == [
        ("a", "and text", "a title"),
        ("b", "Second one. Third.", "First sentence."),
        ("f", "More.", "Blank title."),
    ]
    with pytest.raises(ValueError, match="nothing to learn docids from"):
        pairs_of(replace(graded(0), documents=documents[2:5]))


def test_a_sample_of_pairs_is_seeded_and_of_no_order():
    data = graded(200)
    shuffled = list(data.documents)
    random.Random(0).shuffle(shuffled)
    judged = dict(reversed(data.split("train").items()))
    turned = replace(data, documents=tuple(shuffled), qrels={"train": judged})
    one, two = pairs_of(data, most=50, seed=3), pairs_of(turned, most=50, seed=3)
    assert one == two and len(one) == 50
    assert set(zip(one.docnos, one.queries, strict=True)) < set(
        zip(pairs_of(data).docnos, pairs_of(data).queries, strict=True)
    )
    assert pairs_of(data, most=50, seed=4) != one
    assert pairs_of(data, most=1000, seed=4) == pairs_of(data)


def test_of_too_many_pairs_each_document_keeps_its_narrowest_queries():
    data = graded(200)
    docnos = list(texts_of(data))
    broad = {f"b{i}": dict.fromkeys(docnos, 3) for i in range(5)}
    queries = {**data.queries, **{qid: f"broad {qid}" for qid in broad}}
    data = replace(data, queries=queries, qrels={"train": {**data.split("train"), **broad}})
    found = pairs_of(data, most=45)
    counts = Counter(found.docnos)
    assert set(counts) == set(docnos) and set(counts.values()) == {2, 3}, "everyone before anyone's third"
    assert not any("broad" in query for query in found.queries)
    assert sum("broad" in query for query in pairs_of(data).queries) == 100, "all are there if wanted"


def test_parted_pairs_share_no_document_and_none_is_lost():
    every = named_pairs([f"n{i % 700}" for i in range(1400)])
    rows, dev = every.parted()
    assert not set(rows.docnos) & set(dev.docnos)
    assert sorted(rows.queries + dev.queries, key=int) == every.queries
    assert 0.02 < len(dev) / len(every) < 0.09
    assert every.parted() == (rows, dev)
    half = named_pairs(every.docnos[:700]).parted()[1]
    assert set(half.docnos) == set(dev.docnos), "whether a document is held out depends on its docno alone"
    assert [f"text of {docno}" for docno in dev.docnos] == dev.documents


def test_at_most_so_many_pairs_are_held_out():
    rows, dev = named_pairs([f"n{i}" for i in range(9000)]).parted()
    assert len(dev) == 200 and len(rows) == 8800
    fewer = named_pairs([f"n{i}" for i in range(9000)]).parted(most=20)[1]
    assert len(fewer) == 20 and set(fewer.docnos) < set(dev.docnos)
    (alone,) = docnos_that_are(True, 1)
    assert [len(part) for part in named_pairs([alone]).parted()] == [1, 0], "something has to be learned from"


def test_a_held_out_document_of_many_queries_is_not_learned_from():
    (docno,) = docnos_that_are(True, 1)
    rows, dev = named_pairs([docno] * 300 + ["x", "y"]).parted()
    assert docno in dev.docnos and docno not in rows.docnos


def pair_rows(kinds: list[tuple[int, int]]) -> PairRows:
    """Each row's document starts with a token that says which row it is."""
    return PairRows(
        documents=[[100 + i, *[1] * (i % 3)] for i in range(len(kinds))],
        queries=[[200 + query] for _, query in kinds],
        targets=[[300 + query] for _, query in kinds],
        docnos=[f"d{document}" for document, _ in kinds],
    )


def row_numbers(batch: PairBatch) -> list[int]:
    return (batch.documents[:, 0] - 100).tolist()


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=40),
    st.integers(1, 12),
    st.integers(0, 3),
)
def test_no_batch_has_a_document_or_a_query_twice(kinds, size, seed):
    rows = pair_rows(kinds)
    batches = PairBatches(rows, size, seed=seed)
    per_epoch = -(-len(kinds) // size)
    for step in range(2 * per_epoch):
        numbers = row_numbers(batches[step])
        assert 1 <= len(numbers) <= size
        for column in ([kinds[i][0] for i in numbers], [kinds[i][1] for i in numbers]):
            assert len(set(column)) == len(column)


def test_over_an_epoch_every_pair_is_read_once_where_none_clash():
    batches = PairBatches(pair_rows([(i, i) for i in range(37)]), 8, seed=2)
    epochs = [[row_numbers(batches[epoch * 5 + place]) for place in range(5)] for epoch in range(3)]
    for epoch in epochs:
        assert sorted(number for batch in epoch for number in batch) == list(range(37))
        assert sorted(map(len, epoch)) == [5, 8, 8, 8, 8]
    assert epochs[0] != epochs[1] != epochs[2]


def test_over_the_epochs_pairs_that_clash_are_read_too():
    kinds = [(i % 4, i) for i in range(24)]
    batches = PairBatches(pair_rows(kinds), 8, seed=0)
    seen = {number for step in range(60) for number in row_numbers(batches[step])}
    assert seen == set(range(24))


def test_a_batch_is_a_function_of_seed_and_step_alone():
    rows = pair_rows([(i % 9, i % 7) for i in range(40)])
    one, two, other = (PairBatches(rows, 6, seed=seed) for seed in (5, 5, 6))
    late = one[17]
    for step in (3, 25, 0, 16):
        two[step]
    for name, value in vars(two[17]).items():
        assert torch.equal(value, getattr(late, name)), name
    assert row_numbers(other[17]) != row_numbers(late)


def test_a_batch_holds_what_its_rows_hold():
    batch = pair_rows([(0, 0), (1, 1), (2, 2)]).batch([2, 0])
    assert batch.documents.tolist() == [[102, 1, 1], [100, 0, 0]]
    assert batch.document_mask.tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch.queries.tolist() == [[202], [200]] and batch.targets.tolist() == [[302, END], [300, END]]
    targets, real = with_end([[5], [6, 7, 8], []])
    assert targets.tolist() == [[5, END, 0, 0], [6, 7, 8, END], [END, 0, 0, 0]]
    assert real.sum(1).tolist() == [2, 4, 1]
    assert batch.examples == 2


def test_the_paper_s_weights_are_the_defaults():
    config = asdict(FusionConfig())
    assert (config["alpha"], config["beta"], config["log"], config["similarity"]) == (1, 30, True, "cosine")
    assert config["smoothing"] == 0.1 and GeneratorConfig().radius == 2.0


def test_a_generator_is_trained_with_its_settings(t5, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "gr2.schemes.fusion.generator.train", lambda *given, **named: seen.append((given, named))
    )
    how = GeneratorConfig(
        steps=7,
        batch=5,
        document_tokens=4,
        query_tokens=3,
        fusion=replace(SMALL, alpha=0.5, beta=2.0),
        optimiser=OptimiserConfig(learning_rate=2e-3, pretrained_rate=0.5),
    )
    DocidGenerator.of(tiny.collection(), str(t5), how, seed=3).fit(tmp_path)
    ((_, objective, batches, loop, _), named) = seen[0]
    assert objective.config == how.fusion
    assert (loop.steps, loop.optimiser, loop.seed, loop.validate_every) == (7, how.optimiser, 3, 1)
    batch = batches[0]
    assert len(batch.documents) == 5
    assert batch.documents.shape[1] == 4 and batch.targets.shape[1] == 3 + 1, "texts are longer than that"
    assert named["validate"] is not None


def test_both_encoders_and_the_decoder_have_the_backbone_s_dropout_if_wanted(checkpoints):
    for wanted in (0.0, 0.1):
        fusion = small_fusion(checkpoints["t5"], dropout=wanted > 0)
        for part in (fusion.generator.encoder, fusion.generator.decoder, fusion.autoencoder):
            assert {one.p for one in part.modules() if isinstance(one, torch.nn.Dropout)} == {wanted}


def test_all_pairs_are_taken_if_their_number_is_not_limited(checkpoints):
    counts = [
        len(DocidGenerator.of(tiny.collection(), str(checkpoints["t5"]), GeneratorConfig(pairs=most)).pairs)
        for most in (0, 7)
    ]
    assert counts == [50, 7]
