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
from safetensors.torch import load_file, save_file

from gr2.batches import BatchConfig, Batches, Examples
from gr2.data import Collection, Document
from gr2.docids import Docids, settle
from gr2.examples import examples_of
from gr2.formats import write_folder
from gr2.measures import evaluate
from gr2.model import GR2, GR2Config
from gr2.network import END, Network, NetworkConfig
from gr2.objective import RECIPES, Objective, recipe
from gr2.train import TrainConfig, newest_checkpoint, train
from gr2.trie import Trie

WORDS = [a + b for a in "ba be bi bo bu da de di do du".split() for b in "ka ke ki ko ku".split()]
TINY = NetworkConfig(decoder_layers=1, decoder_heads=2, decoder_feed_forward=32, representation=16)


def save_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: index for index, word in enumerate(["<pad>", "</s>", "<unk>", "<cls>", *WORDS])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    names = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>", "cls_token": "<cls>"}
    PreTrainedTokenizerFast(tokenizer_object=inner, sep_token="</s>", **names).save_pretrained(folder)


@pytest.fixture(scope="module", params=["t5", "bart", "encoder"])
def backbone(request, tmp_path_factory) -> Path:
    """A tiny random checkpoint of each family that can be searched."""
    from transformers import (
        BartConfig,
        BartForConditionalGeneration,
        BertConfig,
        BertModel,
        T5Config,
        T5ForConditionalGeneration,
    )

    folder = tmp_path_factory.mktemp(request.param)
    torch.manual_seed(0)
    size = len(WORDS) + 4
    if request.param == "t5":
        shape = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 1, "num_heads": 2, "vocab_size": size}
        start = {"decoder_start_token_id": 0, "eos_token_id": 1, "pad_token_id": 0}
        T5ForConditionalGeneration(T5Config(**shape, **start)).save_pretrained(folder)
    elif request.param == "bart":
        layers = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
        heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
        start = {"decoder_start_token_id": 1, "eos_token_id": 1, "pad_token_id": 0, "bos_token_id": 3}
        shape = BartConfig(
            d_model=32, vocab_size=size, max_position_embeddings=128, **layers, **heads, **start
        )
        BartForConditionalGeneration(shape).save_pretrained(folder)
    else:
        shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
        BertModel(BertConfig(**shape, vocab_size=size)).save_pretrained(folder)
    save_tokenizer(folder)
    return folder


def collection(count: int = 50) -> Collection:
    """Documents of distinct words; each query has its document as grade 2 and the next one as grade 1."""
    draw = random.Random(0)
    documents, queries, train_qrels = [], {}, {}
    for i in range(count):
        words = draw.sample(WORDS, 6)
        documents.append(Document(f"d{i:02}", " ".join(words[:3]), " ".join(words)))
        queries[f"q{i:02}"] = " ".join(words[1:5])
        train_qrels[f"q{i:02}"] = {f"d{i:02}": 2, f"d{(i + 1) % count:02}": 1}
    return Collection(name="tiny", documents=tuple(documents), queries=queries, qrels={"train": train_qrels})


def titles(data: Collection, backbone: Path) -> Docids:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(backbone)

    def tokenise(texts):
        return tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []

    proposals = {document.docno: [(document.title, 0.0)] for document in data.documents}
    return settle(proposals, tokenise, {"fingerprint": data.fingerprint})


def prepared(backbone: Path, name: str = "gr2", normaliser: str = "trie", steps: int = 30):
    torch.set_num_threads(1)
    data = collection()
    model = GR2.fresh(backbone, titles(data, backbone), GR2Config(network=TINY, normaliser=normaliser))
    examples = examples_of(data, model.docids, model.read)
    objective = Objective(model.tokens, model.trie, data.grades, recipe(name, normaliser=normaliser))
    batches = Batches(examples, BatchConfig(queries=10, texts=40))
    config = TrainConfig(
        steps=steps, learning_rate=5e-3, pretrained_rate=1.0, bf16=False, checkpoint_minutes=0, log_every=5
    )
    return data, model, objective, batches, config


@pytest.mark.parametrize("normaliser", ["vocabulary", "trie"])
def test_a_tiny_model_learns_fifty_documents_by_heart(backbone, tmp_path, normaliser):
    data, model, objective, batches, config = prepared(backbone, normaliser=normaliser, steps=250)
    config = TrainConfig(**{**config.__dict__, "checkpoint_minutes": 60.0})
    progress = list(train(model.network, objective, batches, config, tmp_path))
    assert progress[-1].parts["total"] < progress[0].parts["total"]
    run = model.search(data.queries, k=5)
    assert evaluate(run, data.split("train"), ["Hits@1"]).means["Hits@1"] == 1.0


def test_a_saved_model_answers_the_same_from_its_folder_alone(backbone, tmp_path):
    data, model, *_ = prepared(backbone)
    model.save_pretrained(tmp_path / "model")
    again = GR2.from_pretrained(tmp_path / "model")
    assert again.search(data.queries, k=5) == model.search(data.queries, k=5)
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
    _, model, *_ = prepared(backbone)
    assert model.search("baka " * 500, k=2)
    assert "1 of 1 queries are longer than 64 tokens" in caplog.text


def run_to_the_end(backbone: Path, folder: Path, resume: bool) -> None:
    _, model, objective, batches, config = prepared(backbone)
    for _ in train(model.network, objective, batches, config, folder, resume=resume):
        pass


def _step_of(folder: Path) -> int:
    newest = newest_checkpoint(folder)
    return int(newest.name.rpartition("-")[2]) if newest else 0


def test_killed_at_five_random_moments_it_ends_with_the_same_bytes(backbone, tmp_path):
    run_to_the_end(backbone, tmp_path / "whole", resume=False)
    draw = random.Random(1)
    for target in sorted(draw.sample(range(1, 28), 5)):
        child = multiprocessing.get_context("fork").Process(
            target=run_to_the_end, args=(backbone, tmp_path / "killed", True)
        )
        child.start()
        while child.is_alive() and _step_of(tmp_path / "killed") < target:
            time.sleep(0.001)
        time.sleep(draw.uniform(0, 0.01))
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        assert 0 < _step_of(tmp_path / "killed") < 30, "killed too late to show anything"
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
    _, model, objective, batches, config = prepared(backbone, steps=2)
    list(train(model.network, objective, batches, config, tmp_path))
    other = TrainConfig(**{**config.__dict__, "learning_rate": 1.0})
    with pytest.raises(ValueError, match="learning_rate"):
        list(train(model.network, objective, batches, other, tmp_path, resume=True))


def test_what_only_the_checkpoint_knows_is_named_too(backbone, tmp_path):
    _, model, objective, batches, config = prepared(backbone, steps=2)
    list(train(model.network, objective, batches, config, tmp_path, about={"radius": 2}))
    with pytest.raises(ValueError, match="another radius; it cannot be resumed"):
        list(train(model.network, objective, batches, config, tmp_path, resume=True))


def test_a_run_is_not_begun_anew_where_another_one_stands(backbone, tmp_path):
    _, model, objective, batches, config = prepared(backbone, steps=2)
    list(train(model.network, objective, batches, config, tmp_path))
    with pytest.raises(ValueError, match="resume"):
        list(train(model.network, objective, batches, config, tmp_path))


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_trains_and_they_differ(backbone, tmp_path, name):
    _, model, objective, batches, config = prepared(backbone, name, steps=2)
    (progress,) = train(model.network, objective, batches, config, tmp_path)
    assert all(np.isfinite(value) for value in progress.parts.values())
    assert ("mgcc" in progress.parts) == (name in ("gr2", "-lambda", "-Max"))


def test_a_frozen_encoder_does_not_move(backbone, tmp_path):
    _, model, objective, batches, config = prepared(backbone, steps=3)
    before = {name: value.clone() for name, value in model.network.encoder.state_dict().items()}
    frozen = TrainConfig(**{**config.__dict__, "freeze_encoder": True})
    list(train(model.network, objective, batches, frozen, tmp_path))
    after = model.network.encoder.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_docids_of_another_collection_are_refused(backbone):
    docids = titles(collection(50), backbone)
    with pytest.raises(ValueError, match="fingerprint"):
        examples_of(collection(49), docids, lambda texts: [[1] for _ in texts])


def graded_examples() -> Examples:
    draw = random.Random(3)
    judged = [
        {g: draw.sample(range(40), draw.randint(1, 7)) for g in (1, 2, 3) if draw.random() < 0.7}
        for _ in range(23)
    ]
    return Examples(
        queries=[[100 + query] * draw.randint(1, 9) for query in range(len(judged))],
        judged=[grades or {1: [0]} for grades in judged],
        texts=[[6] * draw.randint(1, 20) for _ in range(57)],
        text_docids=[i % 40 for i in range(57)],
        hard=[[draw.randrange(40)] for _ in judged],
    )


def test_a_batch_is_a_function_of_seed_and_step_alone():
    examples = graded_examples()
    one, two = (Batches(examples, BatchConfig(queries=4, texts=8), seed=7) for _ in range(2))
    later = one[11]
    for step in range(11):
        two[step]
    for name, value in vars(two[11]).items():
        assert torch.equal(value, getattr(later, name)), name
    other = Batches(examples, BatchConfig(queries=4, texts=8), seed=8)[11]
    assert not torch.equal(other.text_docids, later.text_docids)


def test_a_judged_docid_is_never_a_negative_and_every_row_has_its_place():
    examples = graded_examples()
    batches = Batches(examples, BatchConfig(queries=5, texts=8, per_grade=2))
    relevant = [{d for docids in grades.values() for d in docids} for grades in examples.judged]
    for step in range(20):
        batch = batches[step]
        for place, query in enumerate((batch.queries[:, 0] - 100).tolist()):
            expected = [docid not in relevant[query] for docid in batch.docids.tolist()]
            assert batch.negatives[place].tolist() == expected
        assert (batch.grades > 0).sum(0).max() <= 1
        own = torch.zeros_like(batch.grades, dtype=torch.bool)
        own[batch.owner, torch.arange(len(batch.owner))] = True
        assert not (batch.grades[~own] > 0).any()
        assert batch.query_mask.sum(1).min() >= 1


def test_over_the_epochs_every_pair_and_every_text_is_read():
    examples = graded_examples()
    batches = Batches(examples, BatchConfig(queries=23, texts=57, per_grade=2))
    pairs, seen = set(), []
    for step in range(4):
        batch = batches[step]
        seen.append(sorted(batch.text_docids.tolist()))
        rows = batch.grades.nonzero().tolist()
        pairs |= {(int(batch.grades[q, d]), int(batch.docids[d])) for q, d in rows}
    assert all(row == sorted(examples.text_docids) for row in seen)
    assert pairs == {(g, d) for grades in examples.judged for g, docids in grades.items() for d in docids}


def test_ranks_share_an_epoch_without_overlap():
    examples = graded_examples()
    ranks = [Batches(examples, BatchConfig(queries=4, texts=8), rank=r, ranks=2) for r in range(2)]
    whole = Batches(examples, BatchConfig(queries=4, texts=8))
    for step in range(4):
        for rank in range(2):
            assert torch.equal(ranks[rank][step].docids, whole[2 * step + rank].docids)


def test_from_a_folder_to_answers_on_the_command_line(gr2, backbone, tmp_path):
    data = collection()
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
        "--steps",
        20,
        "--pretrained-rate",
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
    data, model, _, batches, _ = prepared(backbone, name, normaliser)
    tokens = [row + row[: index % 4] for index, row in enumerate(model.tokens)]  # of unequal length
    trie = Trie.from_sequences(tokens, end=END)
    objective = Objective(tokens, trie, data.grades, recipe(name, normaliser=normaliser))
    network, batch = model.network, batches[0]

    def measured():
        network.zero_grad()
        states = network.encode(batch.queries, batch.query_mask)
        parts = objective(network, batch, states, network.encode(batch.texts, batch.text_mask))
        parts["total"].backward()
        return parts, [p.grad.clone() for p in network.parameters() if p.grad is not None]

    monkeypatch.setattr("gr2.forcing.PASS", 0)
    parts, gradients = measured()
    monkeypatch.setattr("gr2.forcing._alike", lambda steps: [torch.arange(len(steps))])
    objective.forced.needed = objective.forced.lengths
    whole, wanted = measured()
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradients, wanted, rtol=1e-3, atol=1e-5)
