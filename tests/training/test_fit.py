"""From a collection to a model: stages, cached states, self-negatives, the card, and the command line."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from helpers import tiny
from safetensors.torch import load_file

from gr2.data.formats import write_folder
from gr2.model.config import SearchConfig
from gr2.model.encoder import Encoder
from gr2.model.gr2 import GR2
from gr2.store import write_json, write_manifest
from gr2.systems.dense import Dense
from gr2.training.config import AugmentConfig, TrainingConfig, with_settings
from gr2.training.encoder_cache import EncoderCache
from gr2.training.examples import examples_of
from gr2.training.fit import fit, stages, with_self_negatives
from gr2.training.loop import encoded
from gr2.training.teacher_forcing import TeacherForcing


@pytest.fixture(scope="module")
def backbone(tmp_path_factory) -> Path:
    return tiny.save_checkpoint(tmp_path_factory.mktemp("encoder"), "encoder", width=36)


def test_cached_states_are_the_encoder_s(backbone):
    _, model, _, batches, _ = tiny.prepared(backbone)
    cached = EncoderCache(model.network.eval(), batches.examples, batch=7)
    tokens = sum(map(len, (*batches.examples.queries, *batches.examples.texts)))
    assert cached.nbytes == tokens * 36 * 2
    for step in range(3):
        batch = batches[step]
        for kept, computed, mask in zip(
            cached(model.network, batch),
            encoded(model.network, batch),
            (batch.query_mask, batch.text_mask),
            strict=True,
        ):
            assert torch.allclose(kept[mask.bool()], computed[mask.bool()], atol=5e-3)
            assert not kept[~mask.bool()].any()


def test_kept_states_are_found_again_by_the_same_encoder_and_texts_alone(backbone, tmp_path, monkeypatch):
    from gr2.training.encoder_cache import _Rows

    _, model, _, batches, _ = tiny.prepared(backbone)
    filled, fill = [], _Rows._fill
    monkeypatch.setattr(_Rows, "_fill", lambda self, *rest: filled.append(1) or fill(self, *rest))
    network, examples = model.network.eval(), batches.examples
    first = EncoderCache(network, examples, folder=tmp_path)
    again = EncoderCache(network, examples, folder=tmp_path)
    assert len(filled) == 2 and len(list(tmp_path.iterdir())) == 2
    assert torch.equal(first.texts.states, again.texts.states)
    EncoderCache(network, replace(examples, texts=examples.texts[::-1]), folder=tmp_path)
    assert len(filled) == 3, "other texts, the same queries"
    with torch.no_grad():
        next(network.encoder.parameters()).add_(1)
    moved = EncoderCache(network, examples, folder=tmp_path)
    assert len(filled) == 5 and not torch.equal(first.texts.states, moved.texts.states)


def test_three_stages_interrupted_and_resumed_write_the_same_model(backbone, tmp_path, monkeypatch):
    data = tiny.with_dev()
    docids = tiny.titles(data, backbone)
    plan = tiny.training(
        {
            "schedule.frozen_steps": 4,
            "schedule.self_negative_steps": 4,
            "schedule.dev": "dev",
            "schedule.validate_every": 2,
            "optimiser.average": 0.5,
        }
    )
    assert [stage.value for stage, _ in stages(plan)] == ["frozen", "joint", "self-negatives"]
    fit(data, docids, str(backbone), tmp_path / "whole", plan)

    import gr2.training.fit

    def broken(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(gr2.training.fit, "with_self_negatives", broken)
        with pytest.raises(KeyboardInterrupt):
            fit(data, docids, str(backbone), tmp_path / "twice", plan)
    fit(data, docids, str(backbone), tmp_path / "twice", plan, resume=True)
    weights = [load_file(tmp_path / name / "network.safetensors") for name in ("whole", "twice")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    card = (tmp_path / "whole" / "README.md").read_text()
    assert data.fingerprint in card and "| documents | 50 |" in card and "| variant | gr2 |" in card
    provenance = json.loads((tmp_path / "whole" / "config.json").read_text())["provenance"]
    assert provenance["training"]["schedule"]["frozen_steps"] == 4
    assert GR2.from_pretrained(tmp_path / "whole").search("baka beke", k=3)


def test_documents_alone_are_learned_with_a_frozen_encoder_too(backbone, tmp_path):
    data = tiny.with_dev()
    data = replace(data, qrels={name: rows for name, rows in data.qrels.items() if name != "train"})
    docids = tiny.prepared(backbone)[1].docids
    docids = replace(docids, about={**docids.about, "fingerprint": data.fingerprint})
    plan = tiny.training({"schedule.steps": 0, "schedule.frozen_steps": 2})
    model = fit(data, docids, str(backbone), tmp_path / "model", plan, states=tmp_path)
    begun = fit(data, docids, str(backbone), tmp_path / "begun", tiny.training({"schedule.steps": 0}))
    moved = [
        not torch.equal(a, b)
        for a, b in zip(model.network.decoder.parameters(), begun.network.decoder.parameters(), strict=True)
    ]
    assert any(moved)


def test_a_run_is_not_resumed_with_another_backbone(backbone, tmp_path):
    import shutil

    data = tiny.collection()
    docids = tiny.titles(data, backbone)
    other = tmp_path / "other"
    shutil.copytree(backbone, other)
    fit(data, docids, str(backbone), tmp_path / "model", tiny.training())
    with pytest.raises(ValueError, match="backbone"):
        fit(data, docids, str(other), tmp_path / "model", tiny.training(), resume=True)


def test_the_frozen_stage_leaves_the_encoder_alone_and_the_next_one_does_not(backbone, tmp_path):
    data = tiny.collection()
    docids = tiny.titles(data, backbone)
    start = GR2.fresh(backbone, docids, learn_config(), seed=0).network.encoder.state_dict()
    frozen = fit(
        data,
        docids,
        str(backbone),
        tmp_path / "a",
        tiny.training({"schedule.steps": 0, "schedule.frozen_steps": 3}),
    )
    moved = fit(data, docids, str(backbone), tmp_path / "b", tiny.training({"schedule.frozen_steps": 3}))
    assert all(torch.equal(start[n], v) for n, v in frozen.network.encoder.state_dict().items())
    assert any(not torch.equal(start[n], v) for n, v in moved.network.encoder.state_dict().items())
    assert any(parameter.requires_grad for parameter in moved.network.encoder.parameters())


def learn_config():
    from gr2.model.config import GR2Config

    return GR2Config(normaliser="trie", max_tokens=64)


def test_self_negatives_are_what_the_model_wrote_and_nobody_judged(backbone):
    data, model, *_ = tiny.prepared(backbone)
    examples = with_self_negatives(model, data, examples_of(data, model.docids, model.read), k=5)
    run = model.search_many(data.queries, 5)
    for (qid, row), wrong in zip(data.split("train").items(), examples.self_negatives, strict=True):
        names = [model.docids.docnos[index] for index in wrong]
        assert names == [docno for docno in run.docnos(qid) if docno not in row]
    assert any(examples.self_negatives)


def test_an_untrained_model_with_a_prior_ranks_as_its_encoder(backbone, tmp_path):
    data = tiny.collection()
    docids = tiny.titles(data, backbone)
    model = fit(data, docids, str(backbone), tmp_path / "m", tiny.training({"schedule.steps": 0}))
    with torch.no_grad():
        model.network.head.weight.zero_()
    encoder = Encoder.load(backbone)
    rows = Dense.index(data.documents, encoder).vectors.of(docids.docnos)
    queries = encoder.encode(list(data.queries.values()))
    expected = [docids.docnos[i] for i in (queries @ rows.T).argmax(1)]
    run = model.search_many(data.queries, 50, SearchConfig(beams=50))
    assert [run.docnos(qid)[0] for qid in data.queries] == expected
    assert model.network.prior.nbytes > rows.nbytes


def test_a_prior_without_the_trie_normaliser_is_refused():
    with pytest.raises(ValueError, match="trie normaliser"):
        with_settings(TrainingConfig(), {"objective.normaliser": "vocabulary"})
    none = with_settings(TrainingConfig(), {"prior.vectors_per_document": 0.0})
    assert with_settings(none, {"objective.normaliser": "vocabulary"}).prior.vectors_per_document == 0


def test_pseudo_query_docids_are_what_rf_means(gr2, backbone, tmp_path):
    data = tmp_path / "data"
    write_folder(tiny.collection(), data)
    gr2("docids", "build", data, "--backbone", backbone, "--out", tmp_path / "docids")
    options = ("--docids", tmp_path / "docids", "--backbone", backbone, "--out", tmp_path / "m")
    with pytest.raises(SystemExit, match="the scheme query, not title"):
        gr2("train", data, *options, "--variant", "no-fusion")
    plain = ("--scheme", "query", "--generation.steps", 2, "--generation.beams", 3)
    gr2("docids", "build", data, "--backbone", backbone, "--out", tmp_path / "queries", *plain)
    same = ("--backbone", backbone, "--preset", "decoder", "--schedule.steps", 2, "--batches.queries", 4)
    out = tmp_path / "trained"
    gr2("train", data, "--docids", tmp_path / "queries", "--out", out, *same, "--variant", "no-fusion")
    model = GR2.from_pretrained(out)
    assert model.docids.about["scheme"] == "query" and "fusion" not in model.docids.about
    assert model.provenance["training"]["variant"] == "no-fusion"
    lines = (tmp_path / "trained.training" / "joint" / "metrics.jsonl").read_text().splitlines()
    assert {"mgcc", "mle_q", "mle_d"} <= json.loads(lines[-1]).keys()


@pytest.mark.parametrize("normaliser", ["vocabulary", "trie"])
def test_a_docid_is_read_only_as_far_as_it_has_probability(backbone, normaliser):
    _, model, _, batches, _ = tiny.prepared(backbone, normaliser=normaliser)
    forced = TeacherForcing(model.tokens, model.trie, normaliser, smoothing=0.1)
    batch = batches[0]
    states, _ = encoded(model.network, batch)
    f_id, whole = forced(model.network, states, batch.query_mask, batch.owner, batch.docids, represent=True)
    nothing, part = forced(model.network, states, batch.query_mask, batch.owner, batch.docids)
    assert nothing is None and torch.allclose(whole, part, atol=1e-5)
    assert (forced.needed <= forced.lengths).all()
    assert (normaliser == "trie") == bool((forced.needed < forced.lengths).any())
    for row in (0, 7):  # one row alone, without companions of other lengths
        at = slice(row, row + 1)
        alone, likelihood = forced(
            model.network, states, batch.query_mask, batch.owner[at], batch.docids[at], represent=True
        )
        assert torch.allclose(alone[0], f_id[row], atol=1e-5)
        assert likelihood[0].item() == pytest.approx(whole[row].item(), abs=1e-4)


def test_pseudo_queries_and_own_entities_stand_for_documents(gr2, backbone, tmp_path):
    data, model, *_ = tiny.prepared(backbone)
    augment = AugmentConfig(entities=3)
    plain = examples_of(data, model.docids, model.read, augment=augment)
    more = examples_of(
        data,
        model.docids,
        model.read,
        augment=augment,
        entities=lambda document: ["bube buke"],
        pseudo_queries={"d03": ["duku duke", "bako"]},
    )
    of = [text for text, owner in zip(more.texts, more.text_docids, strict=True) if owner == 3]
    wanted = model.read(["duku duke", "bako", "bube buke"])
    assert [of[0], of[1]] == wanted[:2] and wanted[2] in of and len(more.texts) > len(plain.texts)
    with pytest.raises(ValueError, match="'nobody'"):
        examples_of(data, model.docids, model.read, pseudo_queries={"nobody": ["a"]})
    folder, made = tmp_path / "data", tmp_path / "made.tsv"
    write_folder(data, folder)
    gr2("docids", "build", folder, "--backbone", backbone, "--out", tmp_path / "docids")
    options = (
        "--docids",
        tmp_path / "docids",
        "--backbone",
        backbone,
        "--preset",
        "decoder",
        "--schedule.steps",
        1,
        "--pseudo-queries",
        made,
    )
    made.write_text("d01\tbaka\nd01 beke\n")
    with pytest.raises(SystemExit, match=r"made\.tsv:2: expected two columns"):
        gr2("train", folder, *options, "--out", tmp_path / "m")
    made.write_text("d01\tbaka\nd01\tbeke\n")
    said = gr2("train", folder, *options, "--out", tmp_path / "m")
    assert "node prior:" in said and "documents alone" not in said
    assert (tmp_path / "m" / "trie" / "manifest.json").exists()


def test_a_collection_without_training_queries_is_learned_from_its_documents(gr2, backbone, tmp_path):
    folder, data = tmp_path / "data", tiny.with_dev()
    write_folder(replace(data, qrels={"test": data.split("test")}), folder)
    gr2("docids", "build", folder, "--backbone", backbone, "--out", tmp_path / "docids")
    options = (
        "--docids",
        tmp_path / "docids",
        "--backbone",
        backbone,
        "--out",
        tmp_path / "m",
        "--preset",
        "decoder",
        "--schedule.steps",
        1,
    )
    assert "has no split `train`" in gr2("train", folder, *options)
    assert len(gr2("search", tmp_path / "m", "baka beke", "--k", 2).splitlines()) == 2


def test_a_folder_of_the_first_format_is_still_read(backbone, tmp_path):
    """Format 1 had other names in config.json; the answers are the same."""
    data, model, *_ = tiny.prepared(backbone)
    model.save_pretrained(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["format"] = 1
    content["config"]["longest"] = content["config"].pop("max_tokens")
    content["config"]["network"]["loud"] = content["config"]["network"].pop("unit_norm_head")
    write_json(path, content)
    write_manifest(tmp_path / "model")
    again = GR2.from_pretrained(tmp_path / "model")
    assert again.config == model.config
    assert again.search_many(data.queries, 5) == model.search_many(data.queries, 5)
    content["format"] = 3
    write_json(path, content)
    write_manifest(tmp_path / "model")
    with pytest.raises(ValueError, match="has format 3, this version reads 2"):
        GR2.from_pretrained(tmp_path / "model")
