"""Sweeps of trials that resume, what a trial costs and reads, and means over seeds and folds."""

import json
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from helpers import tiny

from gr2.data.formats import write_folder
from gr2.data.runs import Run
from gr2.evaluate.measures import evaluate
from gr2.experiments.executors import sweep
from gr2.experiments.tables import gather, mean_of
from gr2.experiments.trial import Trial, perform
from gr2.model.config import VectorConfig
from gr2.model.encoder import Encoder
from gr2.systems.dense import Dense

FAST = {"steps": 6, "queries": 10, "texts": 10, "learning_rate": 5e-3, "pretrained_rate": 1.0, "bf16": False}


@pytest.fixture(scope="module")
def backbone(tmp_path_factory) -> Path:
    return tiny.save_checkpoint(tmp_path_factory.mktemp("encoder"), "encoder", width=36)


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


def test_a_sweep_goes_on_where_it_stopped_and_says_what_failed(backbone, tmp_path):
    folder = tmp_path / "data"
    write_folder(tiny.with_dev(), folder)
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
    assert (
        content["training"]["schedule"]["steps"] == 2
        and content["prior_bytes"] > 0
        and content["cost"]["cpu_seconds"] > 0
    )
    assert len(Run.read(tmp_path / "out" / trials[1].name / "run.trec").rankings) == 10
    wrong = replace(trials[0], plan={**settings, "recipe": "nonsense"})
    with pytest.raises(RuntimeError, match=r"failed; see .*\.log"):
        sweep([wrong], tmp_path / "out")


def test_what_an_interrupted_trial_cost_is_not_known(backbone, tmp_path, monkeypatch):
    class Interrupted(Exception):
        pass

    write_folder(tiny.with_dev(), tmp_path / "data")
    where = {"collection": str(tmp_path / "data"), "backbone": str(backbone)}
    trial, costs = Trial(system="MLE", plan={**FAST, "steps": 2}, **where), []
    for out, interrupted in ((tmp_path / "once", False), (tmp_path / "twice", True)):
        if interrupted:
            with monkeypatch.context() as patched, pytest.raises(Interrupted):
                patched.setattr("gr2.model.gr2.GR2.search_many", Mock(side_effect=Interrupted))
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

    monkeypatch.setattr("gr2.training.fit.fit", capture)
    write_folder(tiny.with_dev(), tmp_path / "data")
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

    monkeypatch.setattr("gr2.training.fit.fit", capture)
    write_folder(tiny.with_dev(), tmp_path / "data")
    usual = Trial(
        system="MLE", collection=str(tmp_path / "data"), backbone=str(backbone), plan={**FAST, "steps": 1}
    )
    found, documents = [], tiny.with_dev().documents
    for lead in (0, 3):
        with pytest.raises(Asked) as asked:
            perform(replace(usual, lead=lead), tmp_path / "out")
        index = Dense.index(documents, Encoder.load(backbone), VectorConfig.leading(lead))
        wanted = index.vectors.of(sorted(document.docno for document in documents))
        assert np.array_equal(asked.value.args[0], wanted)
        found.append(wanted)
    assert not np.allclose(*found)
    assert replace(usual, lead=3).name != usual.name


def test_seeds_are_averaged_by_query_and_folds_put_together():
    data = tiny.with_dev()
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
