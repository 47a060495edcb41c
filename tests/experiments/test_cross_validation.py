"""Folds: each command's `--fold`, and all folds in one table."""

import json
from dataclasses import replace

import pytest
from helpers import tiny

from gr2.data.formats import read_folder, write_folder
from gr2.data.runs import Run
from gr2.docids.docids import Docids
from gr2.evaluate.measures import Convention, evaluate
from gr2.experiments.cross_validation import CrossValidation
from gr2.model.gr2 import GR2
from gr2.systems import SYSTEMS, register_system

SMALL = ("--preset", "decoder", "--schedule.steps", 2, "--batches.queries", 5, "--batches.texts", 5)


def folded(count: int = 20):
    """A collection as TREC's are: one split `test`, and five folds of it."""
    data = tiny.collection(count)
    return replace(data, name="shop", qrels={"test": data.split("train")}).with_folds(5)


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "shop"
    write_folder(folded(), folder)
    return folder


@pytest.fixture
def memory():
    """A system that answers with what it may learn from, and tells when it is built."""
    built = []

    @register_system("memory", "training judgements", uses_judgements=True)
    def build(context, options):
        built.append((context.collection.name, context.folder, sorted(context.judgements)))

        class Memory:
            def search(self, queries, k):
                known = {docno for row in context.judgements.values() for docno in row}
                return Run.from_dict(
                    {qid: dict.fromkeys(sorted(known)[:k], 1.0) for qid in queries}, "memory"
                )

        return Memory()

    yield built
    del SYSTEMS["memory"]


def job(out, *systems, **changes) -> CrossValidation:
    names = dict.fromkeys(systems or ("memory",))
    return CrossValidation(**{"collection": folded(), "systems": names, "folder": out, "k": 5, **changes})


def test_each_fold_learns_from_the_others_and_every_query_is_answered_once(memory, tmp_path):
    data = folded()
    (path,) = job(tmp_path / "cv").run()
    assert sorted(Run.read(path).rankings) == sorted(data.split("test"))
    for fold, (name, folder, known) in enumerate(memory):
        assert name == f"shop-fold{fold}" and folder == tmp_path / "cv" / f"memory.fold{fold}.model"
        assert set(known) == set(data.split("test")) - set(data.folds[fold])
    assert len(memory) == 5


def test_a_system_that_learns_nothing_is_built_once(tmp_path, monkeypatch):
    built = []
    row = SYSTEMS["bm25"]
    counted = replace(row, build=lambda *parts: built.append(1) or row.build(*parts))
    monkeypatch.setitem(SYSTEMS, "bm25", counted)
    job(tmp_path / "cv", "bm25").run()
    assert len(built) == 1


def test_interrupted_it_continues_where_it_was(memory, tmp_path):
    whole = job(tmp_path / "whole").run()[0].read_text()
    del memory[:]

    def stop(line):
        if "fold 1" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        job(tmp_path / "cv", say=stop).run()
    with pytest.raises(ValueError, match="add --resume"):
        job(tmp_path / "cv").run()
    with pytest.raises(ValueError, match="begun with another k"):
        job(tmp_path / "cv", k=6, resume=True).run()
    with pytest.raises(ValueError, match="begun with another collection"):
        job(tmp_path / "cv", collection=folded(25), resume=True).run()
    assert job(tmp_path / "cv", resume=True).run()[0].read_text() == whole
    assert [name for name, *_ in memory] == [f"shop-fold{fold}" for fold in range(5)], "none was run twice"


def test_what_has_no_folds_or_is_no_system_is_refused(tmp_path, memory):
    with pytest.raises(ValueError, match="tiny has no folds"):
        job(tmp_path / "cv", collection=tiny.collection()).run()
    with pytest.raises(ValueError, match="no system is called 'nobody'; there are: bm25"):
        job(tmp_path / "cv", "nobody").run()
    assert not (tmp_path / "cv").exists() and not memory


def test_the_command_measures_all_folds_in_one_table(gr2, shop, memory, tmp_path):
    out, measured = tmp_path / "cv", ("--evaluation.measures", "nDCG@5", "--evaluation.gain", "exponential")
    said = gr2("cross-validate", shop, "bm25", "memory", "--out", out, "--k", 7, *measured)
    assert (
        "all queries (20)" in said and "nDCG gain 2^g − 1" in said and "letters: significantly better" in said
    )
    data = folded()
    for name in ("bm25", "memory"):
        run = Run.read(out / f"{name}.run")
        assert {len(ranking) for ranking in run.rankings.values()} <= set(range(8))
        mean = evaluate(run, data.split("test"), ["nDCG@5"], Convention(gain="exponential")).means["nDCG@5"]
        assert f"{mean:.4f}" in said
    again = gr2(
        *("cross-validate", shop, "bm25", "memory", "--out", out, "--k", 7, "--resume", "--style", "json"),
        *measured,
    )
    assert len(json.loads(again)["all"]) and len(memory) == 5, "nothing was run again"


def test_the_system_gr2_is_trained_with_the_options_of_the_command(gr2, shop, t5, tmp_path):
    said = gr2("cross-validate", shop, "gr2", "--out", tmp_path / "cv", "--backbone", t5, *SMALL)
    assert "all queries (20)" in said
    models = [GR2.from_pretrained(tmp_path / "cv" / f"gr2.fold{fold}.model") for fold in range(5)]
    assert [model.provenance["collection"] for model in models] == [f"shop-fold{i}" for i in range(5)]
    assert all(model.provenance["training"]["schedule"]["steps"] == 2 for model in models)
    assert all(model.provenance["backbone"] == t5.name for model in models)


def test_train_index_run_and_evaluate_take_the_same_fold(gr2, shop, t5, tmp_path):
    data = read_folder(shop)
    gr2("docids", "build", shop, "--backbone", t5, "--out", tmp_path / "docids")
    gr2("docids", "build", shop, "--backbone", t5, "--out", tmp_path / "own", "--fold", 1)
    made_for = [Docids.load(tmp_path / name).about["fingerprint"] for name in ("docids", "own")]
    assert made_for == [data.fingerprint, data.fold(1).fingerprint]
    gr2("index", shop, "--backbone", t5, "--out", tmp_path / "index", "--fold", 1, *SMALL)
    weights = [(tmp_path / "index" / "network.safetensors").read_bytes()]
    for name in ("docids", "own"):
        model = tmp_path / f"model-{name}"
        gr2(
            *("train", shop, "--docids", tmp_path / name, "--backbone", t5, "--out", model),
            *("--fold", 1, *SMALL),
        )
        weights.append((model / "network.safetensors").read_bytes())
        assert GR2.from_pretrained(model).provenance["collection"] == "shop-fold1"
    assert weights[0] == weights[1] == weights[2], "docids of the whole collection serve its folds"
    run = tmp_path / "a.run"
    gr2("run", "model", shop, "--fold", 1, "--folder", tmp_path / "index", "--output", run, "--k", 5)
    assert sorted(Run.read(run).rankings) == sorted(data.folds[1])
    said = gr2("evaluate", shop, run, "--fold", 1, "--measures", "nDCG@5")
    mean = evaluate(Run.read(run), data.fold(1).split("test"), ["nDCG@5"]).means["nDCG@5"]
    assert f"all queries ({len(data.folds[1])})" in said and f"{mean:.4f}" in said
    assert "answer" not in said, "no query of the other folds is missing"
    for command in (("evaluate", shop, run), ("index", shop, "--out", tmp_path / "x")):
        with pytest.raises(SystemExit, match="has no fold 5; it has 5 folds"):
            gr2(*command, "--fold", 5)


def test_docids_of_another_collection_do_not_serve_a_fold(gr2, shop, t5, tmp_path):
    write_folder(folded(19), tmp_path / "other")
    gr2("docids", "build", tmp_path / "other", "--backbone", t5, "--out", tmp_path / "docids")
    with pytest.raises(SystemExit, match="were made for a collection with the fingerprint"):
        gr2(
            *("train", shop, "--docids", tmp_path / "docids", "--backbone", t5, "--out", tmp_path / "m"),
            *("--fold", 1, *SMALL),
        )


def test_self_negatives_need_a_fold_where_there_is_no_training_split(gr2, shop, t5, tmp_path):
    same = (
        "index",
        shop,
        "--backbone",
        t5,
        "--out",
        tmp_path / "m",
        *SMALL,
        "--schedule.self-negative-steps",
        1,
    )
    with pytest.raises(SystemExit, match=r"has folds: --fold"):
        gr2(*same)
    assert not (tmp_path / "m.training").exists()
    gr2(*same, "--fold", 0)
    assert (tmp_path / "m.training" / "self-negatives").exists()
