"""Training end to end on tiny checkpoints made here: it learns, resumes to the same bytes, is saved whole."""

import json
import multiprocessing
import os
import random
import signal
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import tiny
from safetensors.torch import load_file, save_file

from gr2.data.formats import write_folder
from gr2.docids.trie import Trie
from gr2.evaluate.measures import evaluate
from gr2.model.gr2 import GR2
from gr2.model.network import END, Network
from gr2.training.checkpoints import newest_checkpoint
from gr2.training.config import ObjectiveConfig, with_settings
from gr2.training.examples import examples_of
from gr2.training.objective import Objective
from gr2.training.variants import VARIANTS, variant_objective


@pytest.fixture(scope="module", params=tiny.FAMILIES)
def backbone(request, tmp_path_factory) -> Path:
    """A tiny random checkpoint of each family that can be searched."""
    return tiny.save_checkpoint(tmp_path_factory.mktemp(request.param), request.param)


@pytest.mark.parametrize("normaliser", ["vocabulary", "trie"])
def test_a_tiny_model_learns_fifty_documents_by_heart(backbone, tmp_path, normaliser):
    data, model, objective, batches, config = tiny.prepared(backbone, normaliser=normaliser, steps=250)
    config = replace(config, checkpoint_minutes=60.0)
    progress = tiny.trained(model.network, objective, batches, config, tmp_path)
    assert progress[-1].parts["total"] < progress[0].parts["total"]
    run = model.search_many(data.queries, k=5)
    assert evaluate(run, data.split("train"), ["Hits@1"]).means["Hits@1"] == 1.0


def test_a_saved_model_answers_the_same_from_its_folder_alone(backbone, tmp_path):
    data, model, *_ = tiny.prepared(backbone)
    model.save_pretrained(tmp_path / "model")
    again = GR2.from_pretrained(tmp_path / "model")
    assert again.search_many(data.queries, k=5) == model.search_many(data.queries, k=5)
    assert again.search("baka beke", k=3) == model.search("baka beke", k=3)
    weights = tmp_path / "model" / "network.safetensors"
    content = bytearray(weights.read_bytes())
    content[-3] ^= 4
    weights.write_bytes(bytes(content))
    with pytest.raises(ValueError, match=r"network\.safetensors"):
        GR2.from_pretrained(tmp_path / "model")


@pytest.mark.parametrize("tied", [True, False])
def test_a_t5_checkpoint_is_read_as_it_is_stored_tied_or_not(tmp_path, tied):
    from transformers import T5Config, T5ForConditionalGeneration

    shape = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 1, "num_heads": 2, "vocab_size": 20}
    start = {"decoder_start_token_id": 0, "eos_token_id": 1, "pad_token_id": 0}
    T5ForConditionalGeneration(T5Config(**shape, **start)).save_pretrained(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    if not tied:
        stored["lm_head.weight"] = torch.randn(20, 32)
        save_file(stored, tmp_path / "model.safetensors", metadata={"format": "pt"})
    network = Network.build(tmp_path, [7, 9])
    assert torch.equal(network.encoder.embed_tokens.weight, stored["shared.weight"])
    assert torch.equal(network.decoder.embed_tokens.weight, stored["shared.weight"][[0, 1, 7, 9]])
    head = stored.get("lm_head.weight", stored["shared.weight"] * 32**-0.5)[[0, 1, 7, 9]]
    assert torch.allclose(network.head.weight, head)


def test_a_query_longer_than_the_model_reads_is_cut_and_reported(backbone, caplog):
    _, model, *_ = tiny.prepared(backbone)
    assert model.search("baka " * 500, k=2)
    assert "1 of 1 queries are longer than 64 tokens" in caplog.text


def run_to_the_end(backbone: Path, folder: Path, resume: bool) -> None:
    _, model, objective, batches, config = tiny.prepared(backbone)
    tiny.trained(model.network, objective, batches, config, folder, resume=resume)


def test_killed_at_five_random_moments_it_ends_with_the_same_bytes(backbone, tmp_path):
    run_to_the_end(backbone, tmp_path / "whole", resume=False)
    draw = random.Random(1)
    for target in sorted(draw.sample(range(1, 28), 5)):
        child = multiprocessing.get_context("fork").Process(
            target=run_to_the_end, args=(backbone, tmp_path / "killed", True)
        )
        child.start()
        while child.is_alive() and tiny.step_of(tmp_path / "killed") < target:
            time.sleep(0.001)
        time.sleep(draw.uniform(0, 0.01))
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        assert 0 < tiny.step_of(tmp_path / "killed") < 30, "killed too late to show anything"
    run_to_the_end(backbone, tmp_path / "killed", resume=True)
    whole, killed = (
        load_file(newest_checkpoint(tmp_path / name) / "network.safetensors") for name in ("whole", "killed")
    )
    assert len(list((tmp_path / "killed").iterdir())) == 2, "one checkpoint, one metrics.jsonl, no leftovers"
    assert whole.keys() == killed.keys()
    assert all(torch.equal(whole[name], killed[name]) for name in whole)
    lines = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("whole", "killed")]
    assert lines[0] == lines[1]
    assert [json.loads(line)["step"] for line in lines[0].splitlines()] == [5, 10, 15, 20, 25, 30]


def test_a_checkpoint_of_another_configuration_is_refused(backbone, tmp_path):
    _, model, objective, batches, config = tiny.prepared(backbone, steps=2)
    tiny.trained(model.network, objective, batches, config, tmp_path)
    other = with_settings(config, {"optimiser.learning_rate": 1.0})
    with pytest.raises(ValueError, match="learning_rate"):
        tiny.trained(model.network, objective, batches, other, tmp_path, resume=True)


def test_what_only_the_checkpoint_knows_is_named_too(backbone, tmp_path):
    _, model, objective, batches, config = tiny.prepared(backbone, steps=2)
    tiny.trained(model.network, objective, batches, config, tmp_path, about={"radius": 2})
    with pytest.raises(ValueError, match="another radius; it cannot be resumed"):
        tiny.trained(model.network, objective, batches, config, tmp_path, resume=True)


def test_a_run_is_not_begun_anew_where_another_one_stands(backbone, tmp_path):
    _, model, objective, batches, config = tiny.prepared(backbone, steps=2)
    tiny.trained(model.network, objective, batches, config, tmp_path)
    with pytest.raises(ValueError, match="resume"):
        tiny.trained(model.network, objective, batches, config, tmp_path)


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_trains(backbone, tmp_path, name):
    _, model, objective, batches, config = tiny.prepared(backbone, name, steps=2)
    (progress,) = tiny.trained(model.network, objective, batches, config, tmp_path)
    assert all(np.isfinite(value) for value in progress.parts.values())
    assert ("mgcc" in progress.parts) == (name in ("gr2", "no-fusion", "no-lambda", "no-max", "decoupled"))


def test_a_frozen_encoder_does_not_move(backbone, tmp_path):
    _, model, objective, batches, config = tiny.prepared(backbone, steps=3)
    before = {name: value.clone() for name, value in model.network.encoder.state_dict().items()}
    frozen = replace(config, freeze_encoder=True)
    tiny.trained(model.network, objective, batches, frozen, tmp_path)
    after = model.network.encoder.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_docids_of_another_collection_are_refused(backbone):
    docids = tiny.titles(tiny.collection(50), backbone)
    with pytest.raises(ValueError, match="fingerprint"):
        examples_of(tiny.collection(49), docids, lambda texts: [[1] for _ in texts])


def test_from_a_folder_to_answers_on_the_command_line(gr2, backbone, tmp_path):
    data = tiny.collection()
    folder, docids, model = tmp_path / "data", tmp_path / "docids", tmp_path / "model"
    write_folder(replace(data, qrels={**data.qrels, "test": data.split("train")}), folder)
    assert "50 docids" in gr2("docids", "build", folder, "--backbone", backbone, "--out", docids)
    assert json.loads(gr2("docids", "show", docids, "d07"))["docno"] == "d07"
    options = (
        "--docids",
        docids,
        "--backbone",
        backbone,
        "--out",
        model,
        "--preset",
        "decoder",
        "--schedule.steps",
        20,
        "--optimiser.pretrained-rate",
        1,
    )
    gr2("train", folder, *options)
    assert len(gr2("search", model, "baka beke", "--k", 3).splitlines()) == 3
    gr2("search", model, "--topics", folder / "queries.jsonl", "--output", tmp_path / "a.run")
    assert "all queries (50)" in gr2("evaluate", folder, tmp_path / "a.run")
    for refused, why in (
        (("train", folder, *options), "resume"),
        (("search", model), "either a query"),
        (("search", tmp_path / "nowhere", "q"), "manifest"),
        (("docids", "show", docids, "nobody"), "nobody"),
    ):
        with pytest.raises(SystemExit, match=why):
            gr2(*refused)


@pytest.mark.parametrize("normaliser", ["vocabulary", "trie"])
@pytest.mark.parametrize("name", ["gr2", "MLE"])
def test_decoding_in_groups_and_to_the_last_branch_leaves_loss_and_gradients_alone(
    backbone, monkeypatch, name, normaliser
):
    data, model, _, batches, _ = tiny.prepared(backbone, name, normaliser)
    tokens = [row + row[: index % 4] for index, row in enumerate(model.tokens)]  # of unequal length
    trie = Trie.from_sequences(tokens, end=END)
    objective = Objective(
        tokens,
        trie,
        data.grades,
        variant_objective(name, ObjectiveConfig(normaliser=normaliser, smoothing=0.1)),
    )
    network, batch = model.network, batches[0]

    def measured():
        network.zero_grad()
        states = network.encode(batch.queries, batch.query_mask)
        parts = objective(network, batch, states, network.encode(batch.texts, batch.text_mask))
        parts["total"].backward()
        return parts, [p.grad.clone() for p in network.parameters() if p.grad is not None]

    monkeypatch.setattr("gr2.training.teacher_forcing.PASS_COST", 0)
    parts, gradients = measured()
    monkeypatch.setattr(
        "gr2.training.teacher_forcing._similar_lengths", lambda steps: [torch.arange(len(steps))]
    )
    objective.forced.needed = objective.forced.lengths
    whole, wanted = measured()
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradients, wanted, rtol=1e-3, atol=1e-5)
