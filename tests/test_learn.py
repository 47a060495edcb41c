"""From a collection to a model: stages, cached states, self-negatives, the card, and sweeps that resume."""

import importlib.util
import json
import random
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from gr2.baselines.dense import Dense, DenseConfig
from gr2.embed import Encoder
from gr2.examples import examples_of
from gr2.experiment import Trial, gather, mean_of, perform, sweep
from gr2.forcing import TeacherForcing
from gr2.formats import write_folder
from gr2.frozen import FrozenStates
from gr2.geometry import agreement
from gr2.learn import Plan, learn, stages, with_self_negatives
from gr2.measures import evaluate
from gr2.model import GR2
from gr2.runs import Run
from gr2.train import encoded

_spec = importlib.util.spec_from_file_location("tiny_models", Path(__file__).parent / "test_train.py")
tiny = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(tiny)

FAST = {"steps": 6, "queries": 10, "texts": 10, "learning_rate": 5e-3, "pretrained_rate": 1.0, "bf16": False}


@pytest.fixture(scope="module")
def backbone(tmp_path_factory) -> Path:
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("encoder")
    torch.manual_seed(0)
    shape = {"hidden_size": 36, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    BertModel(BertConfig(**shape, vocab_size=len(tiny.WORDS) + 4)).save_pretrained(folder)
    tiny.save_tokenizer(folder)
    return folder


def with_dev(count: int = 50):
    data = tiny.collection(count)
    half = dict(list(data.split("train").items())[:10])
    return replace(data, qrels={**data.qrels, "dev": half, "test": half})


def test_cached_states_are_the_encoder_s(backbone):
    _, model, _, batches, _ = tiny.prepared(backbone)
    cached = FrozenStates(model.network.eval(), batches.examples, batch=7)
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
    from gr2.frozen import _Rows

    _, model, _, batches, _ = tiny.prepared(backbone)
    filled, fill = [], _Rows._fill
    monkeypatch.setattr(_Rows, "_fill", lambda self, *rest: filled.append(1) or fill(self, *rest))
    network, examples = model.network.eval(), batches.examples
    first = FrozenStates(network, examples, folder=tmp_path)
    again = FrozenStates(network, examples, folder=tmp_path)
    assert len(filled) == 2 and len(list(tmp_path.iterdir())) == 2
    assert torch.equal(first.texts.states, again.texts.states)
    FrozenStates(network, replace(examples, texts=examples.texts[::-1]), folder=tmp_path)
    assert len(filled) == 3, "other texts, the same queries"
    with torch.no_grad():
        next(network.encoder.parameters()).add_(1)
    moved = FrozenStates(network, examples, folder=tmp_path)
    assert len(filled) == 5 and not torch.equal(first.texts.states, moved.texts.states)


def test_three_stages_interrupted_and_resumed_write_the_same_model(backbone, tmp_path, monkeypatch):
    data = with_dev()
    docids = tiny.titles(data, backbone)
    plan = Plan(**FAST, frozen_steps=4, self_negative_steps=4, average=0.5, dev="dev", judge_every=2)
    assert [stage.name for stage in stages(plan)] == ["frozen", "joint", "self-negatives"]
    learn(data, docids, str(backbone), tmp_path / "whole", plan)

    import gr2.learn

    def broken(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(gr2.learn, "with_self_negatives", broken)
        with pytest.raises(KeyboardInterrupt):
            learn(data, docids, str(backbone), tmp_path / "twice", plan)
    learn(data, docids, str(backbone), tmp_path / "twice", plan, resume=True)
    weights = [load_file(tmp_path / name / "network.safetensors") for name in ("whole", "twice")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    card = (tmp_path / "whole" / "README.md").read_text()
    assert data.fingerprint in card and "| documents | 50 |" in card
    assert (
        json.loads((tmp_path / "whole" / "config.json").read_text())["provenance"]["plan"]["frozen_steps"]
        == 4
    )
    assert GR2.from_pretrained(tmp_path / "whole").search("baka beke", k=3)


def test_documents_alone_are_learned_with_a_frozen_encoder_too(backbone, tmp_path):
    data = with_dev()
    data = replace(data, qrels={name: rows for name, rows in data.qrels.items() if name != "train"})
    docids = tiny.prepared(backbone)[1].docids
    docids = replace(docids, about={**docids.about, "fingerprint": data.fingerprint})
    plan = Plan(**{**FAST, "steps": 0, "frozen_steps": 2})
    model = learn(data, docids, str(backbone), tmp_path / "model", plan, states=tmp_path)
    begun = learn(data, docids, str(backbone), tmp_path / "begun", Plan(**{**FAST, "steps": 0}))
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
    learn(data, docids, str(backbone), tmp_path / "model", Plan(**FAST))
    with pytest.raises(ValueError, match="backbone"):
        learn(data, docids, str(other), tmp_path / "model", Plan(**FAST), resume=True)


def test_a_trial_is_known_by_the_content_of_a_backbone_of_ours(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "backbone.json").write_text("{}")
    trial = Trial(system="MLE", collection="x", backbone=str(own), plan={})
    names = []
    for content in ("one", "two", "one"):
        (own / "manifest.json").write_text(content)
        names.append(trial.name)
    assert names[0] == names[2] != names[1]


def test_the_frozen_stage_leaves_the_encoder_alone_and_the_next_one_does_not(backbone, tmp_path):
    data = tiny.collection()
    docids = tiny.titles(data, backbone)
    start = GR2.fresh(backbone, docids, learn_config(), seed=0).network.encoder.state_dict()
    frozen = learn(data, docids, str(backbone), tmp_path / "a", Plan(**{**FAST, "steps": 0}, frozen_steps=3))
    moved = learn(data, docids, str(backbone), tmp_path / "b", Plan(**FAST, frozen_steps=3))
    assert all(torch.equal(start[n], v) for n, v in frozen.network.encoder.state_dict().items())
    assert any(not torch.equal(start[n], v) for n, v in moved.network.encoder.state_dict().items())
    assert any(parameter.requires_grad for parameter in moved.network.encoder.parameters())


def learn_config():
    from gr2.model import GR2Config
    from gr2.network import NetworkConfig

    return GR2Config(network=NetworkConfig(), normaliser="trie")


def test_self_negatives_are_what_the_model_wrote_and_nobody_judged(backbone):
    data, model, *_ = tiny.prepared(backbone)
    examples = with_self_negatives(model, data, examples_of(data, model.docids, model.read), k=5)
    run = model.search(data.queries, 5)
    for (qid, row), wrong in zip(data.split("train").items(), examples.hard, strict=True):
        names = [model.docids.docnos[index] for index in wrong]
        assert names == [docno for docno in run.docnos(qid) if docno not in row]
    assert any(examples.hard)


def test_an_untrained_model_with_a_prior_ranks_as_its_encoder(backbone, tmp_path):
    data = tiny.collection()
    docids = tiny.titles(data, backbone)
    model = learn(data, docids, str(backbone), tmp_path / "m", Plan(**{**FAST, "steps": 0}))
    with torch.no_grad():
        model.network.head.weight.zero_()
    encoder = Encoder.load(backbone)
    rows = Dense.index(data.documents, encoder).vectors(docids.docnos)
    queries = encoder.encode(list(data.queries.values()))
    expected = [docids.docnos[i] for i in (queries @ rows.T).argmax(1)]
    run = model.search(data.queries, 50, beams=50)
    assert [run.docnos(qid)[0] for qid in data.queries] == expected
    assert model.network.prior.nbytes > rows.nbytes


def test_a_prior_without_the_trie_normaliser_is_refused():
    with pytest.raises(ValueError, match="trie normaliser"):
        Plan(normaliser="vocabulary")
    assert Plan(normaliser="vocabulary", prior=0.0).prior == 0


def test_pseudo_query_docids_are_what_rf_means(gr2, backbone, tmp_path):
    data = tmp_path / "data"
    write_folder(tiny.collection(), data)
    gr2("docids", "build", data, "--backbone", backbone, "--out", tmp_path / "docids")
    options = ("--docids", tmp_path / "docids", "--backbone", backbone, "--out", tmp_path / "m")
    with pytest.raises(SystemExit, match="scheme title"):
        gr2("train", data, *options, "--recipe=-RF")


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


@pytest.mark.parametrize("mode", ["beam", "exact"])
def test_the_second_score_is_likelihood_plus_weighted_similarity(backbone, mode):
    from gr2.geometry import score

    data, model, *_ = tiny.prepared(backbone)
    forced = TeacherForcing(model.tokens, model.trie, "trie")
    query = data.queries["q03"]
    near, likely = score(model, forced, query, list(model.docids.docnos))
    both = {d: p + 5.0 * s for d, s, p in zip(model.docids.docnos, near, likely, strict=True)}
    found = model.search(query, 50, beams=50, mode=mode, weight=5.0)
    assert [r.docno for r in found] == sorted(both, key=lambda docno: -both[docno])
    assert [r.score for r in found] == pytest.approx(sorted(both.values(), reverse=True), abs=1e-3)
    assert len(model.search(query, 3, mode=mode, weight=5.0)) == 3


def test_agreement_with_grades_is_kendall_s_tau(backbone, monkeypatch):
    import gr2.geometry

    data, model, *_ = tiny.prepared(backbone)
    draw = random.Random(0)
    qrels = {"q00": {f"d{i:02}": draw.randint(0, 3) for i in range(20)}, "q01": {"d01": 2, "d02": 2}}
    by_grade = lambda model, forced, query, docnos: (  # noqa: E731
        [qrels["q00"][docno] for docno in docnos],
        [-qrels["q00"][docno] for docno in docnos],
    )
    real = agreement(model, data.queries, qrels)
    assert set(real.similarity) == {"q00"} and all(-1 <= v <= 1 for v in real.means().values())
    monkeypatch.setattr(gr2.geometry, "score", by_grade)
    assert agreement(model, data.queries, qrels).means() == pytest.approx({"similarity": 1, "likelihood": -1})


def test_a_sweep_goes_on_where_it_stopped_and_says_what_failed(backbone, tmp_path):
    folder = tmp_path / "data"
    write_folder(with_dev(), folder)
    settings = {**FAST, "steps": 2, "recipe": "MLE"}
    trials = [
        Trial(
            system="MLE",
            collection=str(folder),
            backbone=str(backbone),
            words=6,
            plan={**settings, "seed": s},
        )
        for s in range(2)
    ]
    sweep(trials[:1], tmp_path / "out")
    first = tmp_path / "out" / trials[0].name
    written = first.stat().st_mtime_ns
    sweep(trials, tmp_path / "out")
    assert first.stat().st_mtime_ns == written, "a finished trial was done again"
    content = json.loads((first / "trial.json").read_text())
    assert content["plan"]["steps"] == 2 and content["prior_bytes"] > 0 and content["cost"]["cpu_seconds"] > 0
    assert len(Run.read(tmp_path / "out" / trials[1].name / "run.trec").rankings) == 10
    wrong = replace(trials[0], plan={**settings, "recipe": "nonsense"})
    with pytest.raises(RuntimeError, match=r"failed; see .*\.log"):
        sweep([wrong], tmp_path / "out")


def test_what_an_interrupted_trial_cost_is_not_known(backbone, tmp_path, monkeypatch):
    class Interrupted(Exception):
        pass

    write_folder(with_dev(), tmp_path / "data")
    where = {"collection": str(tmp_path / "data"), "backbone": str(backbone)}
    trial, costs = Trial(system="MLE", plan={**FAST, "steps": 2}, **where), []
    for out, interrupted in ((tmp_path / "once", False), (tmp_path / "twice", True)):
        if interrupted:
            with monkeypatch.context() as patched, pytest.raises(Interrupted):
                patched.setattr("gr2.model.GR2.search", Mock(side_effect=Interrupted))
                perform(trial, out)
        perform(trial, out)
        costs.append(json.loads((out / trial.name / "trial.json").read_text())["cost"])
        assert costs[-1]["search_cpu_seconds"] > 0
    assert costs[0]["cpu_seconds"] > 0 and costs[1]["cpu_seconds"] is None
    runs = [Run.read(tmp_path / out / trial.name / "run.trec") for out in ("once", "twice")]
    assert runs[0].rankings == runs[1].rankings


@pytest.mark.parametrize("judged", [True, False])
def test_a_trial_may_be_kept_from_reading_judgements(backbone, tmp_path, monkeypatch, judged):
    class Asked(Exception):
        pass

    def capture(collection, docids, *more, **named):
        assert docids.about["fingerprint"] == collection.fingerprint
        raise Asked(sorted(collection.qrels))

    monkeypatch.setattr("gr2.learn.learn", capture)
    write_folder(with_dev(), tmp_path / "data")
    where = {"collection": str(tmp_path / "data"), "backbone": str(backbone)}
    trial = Trial(system="MLE", plan={**FAST, "steps": 1}, judged=judged, **where)
    with pytest.raises(Asked) as found:
        perform(trial, tmp_path / "out")
    assert ("train" in found.value.args[0]) == judged and "test" in found.value.args[0]


def test_a_trials_prior_may_be_of_leading_tokens(backbone, tmp_path, monkeypatch):
    class Asked(Exception):
        pass

    def capture(*_, vectors, **named):
        raise Asked(vectors)

    monkeypatch.setattr("gr2.learn.learn", capture)
    write_folder(with_dev(), tmp_path / "data")
    usual = Trial(
        system="MLE", collection=str(tmp_path / "data"), backbone=str(backbone), plan={**FAST, "steps": 1}
    )
    found, documents = [], with_dev().documents
    for lead in (0, 3):
        with pytest.raises(Asked) as asked:
            perform(replace(usual, lead=lead), tmp_path / "out")
        index = Dense.index(documents, Encoder.load(backbone), DenseConfig.leading(lead))
        wanted = index.vectors(sorted(document.docno for document in documents))
        assert np.array_equal(asked.value.args[0], wanted)
        found.append(wanted)
    assert not np.allclose(*found)
    assert replace(usual, lead=3).name != usual.name


def test_seeds_are_averaged_by_query_and_folds_put_together():
    data = with_dev()
    runs = [
        Run.from_dict({qid: {f"d{(int(qid[1:]) + shift) % 50:02}": 1.0} for qid in data.split("test")}, "x")
        for shift in (0, 1, 30)
    ]
    (both,) = gather(data, [("x", 0, runs[0]), ("x", 1, runs[2])], ["Hits@1"])
    assert both.means["Hits@1"] == 0.5
    alone = [evaluate(run, data.split("test"), ["Hits@1"]) for run in runs]
    assert mean_of(alone, "y").means["Hits@1"] == pytest.approx(2 / 3)
    qids = list(data.split("test"))
    folds = [Run({qid: runs[0].rankings[qid] for qid in part}, "x") for part in (qids[:4], qids[4:])]
    (joined,) = gather(data, [("x", 0, fold) for fold in folds], ["Hits@1"])
    assert joined.means["Hits@1"] == 1.0


def test_pseudo_queries_and_own_entities_stand_for_documents(gr2, backbone, tmp_path):
    data, model, *_ = tiny.prepared(backbone)
    plain = examples_of(data, model.docids, model.read)
    more = examples_of(
        data,
        model.docids,
        model.read,
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
        "--steps",
        1,
        "--pseudo-queries",
        made,
    )
    made.write_text("d01\tbaka\nd01 beke\n")
    with pytest.raises(SystemExit, match=r"made\.tsv.*2.*a tab"):
        gr2("train", folder, *options, "--out", tmp_path / "m")
    made.write_text("d01\tbaka\nd01\tbeke\n")
    said = gr2("train", folder, *options, "--out", tmp_path / "m")
    assert "node prior takes" in said and "documents alone" not in said
    assert (tmp_path / "m" / "trie" / "manifest.json").exists()


def test_a_collection_without_training_queries_is_learned_from_its_documents(gr2, backbone, tmp_path):
    folder, data = tmp_path / "data", with_dev()
    write_folder(replace(data, qrels={"test": data.split("test")}), folder)
    gr2("docids", "build", folder, "--backbone", backbone, "--out", tmp_path / "docids")
    options = ("--docids", tmp_path / "docids", "--backbone", backbone, "--out", tmp_path / "m", "--steps", 1)
    assert "has no split `train`" in gr2("train", folder, *options)
    assert len(gr2("search", tmp_path / "m", "baka beke", "--k", 2).splitlines()) == 2
