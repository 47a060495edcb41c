"""One protocol, one registry, one command for every system."""

from dataclasses import replace

import pytest
from helpers import tiny

from gr2.bm25 import BM25, BM25Config
from gr2.data.formats import write_folder
from gr2.data.runs import Run
from gr2.evaluate.controls import neighbours, popularity
from gr2.experiments.executors import sweep
from gr2.experiments.trial import Trial
from gr2.systems import SYSTEMS, SystemContext, build_system, register_system
from gr2.systems.baselines import baseline_runs

PLUGIN = """
from dataclasses import dataclass

from gr2 import Run
from gr2.systems import register_system


@dataclass(frozen=True)
class Mine:
    first: str = "d00"

    def search(self, queries, k):
        return Run.from_dict({qid: {self.first: 1.0} for qid in queries}, "mine")

    __str__ = lambda self: "mine"


@register_system("mine", "one document", options=Mine)
def mine(context, options):
    return options
"""


@pytest.fixture(scope="module")
def data():
    return replace(tiny.with_dev(20), name="shop")


@pytest.fixture(scope="module")
def shop(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "shop"
    write_folder(data, folder)
    return folder


def test_the_registry_lists_every_system_with_its_needs(gr2):
    out = gr2("systems")
    assert all(any(line.startswith(name) for line in out.splitlines()) for name in SYSTEMS)
    assert {"bm25", "dense", "popularity", "neighbours", "model", "gr2"} <= set(SYSTEMS)


def test_the_command_gives_what_the_functions_give(data, shop, gr2, tmp_path):
    queries = {qid: data.queries[qid] for qid in data.split("test")}
    train = data.split("train")
    expected = {
        "bm25": BM25.index(data.documents, BM25Config(k1=1.2, b=0.5)).search(queries, 3),
        "popularity": popularity(train, queries, 3),
        "neighbours": neighbours(train, data.queries, queries, 3),
    }
    for name, run in expected.items():
        own = ("--k1", "1.2", "--b", "0.5") if name == "bm25" else ()
        gr2("run", name, shop, "--output", tmp_path / f"{name}.run", "--k", "3", *own)
        found = Run.read(tmp_path / f"{name}.run")
        assert {q: found.docnos(q) for q in queries} == {q: run.docnos(q) for q in queries}


def test_an_unknown_system_and_a_missing_package_are_named(data, monkeypatch):
    with pytest.raises(ValueError, match="no system is called 'bm52'; there are: bm25, dense"):
        build_system("bm52", SystemContext(collection=data))
    monkeypatch.setattr("gr2.systems.registry.SYSTEMS", dict(SYSTEMS))
    register_system("far", "needs much", packages=("no_such_package",), extra="far")(lambda c, o: None)
    with pytest.raises(ValueError, match=r"far needs no_such_package: pip install 'gr2\[far\]'"):
        build_system("far", SystemContext(collection=data))
    with pytest.raises(ValueError, match="already"):
        register_system("far", "again")


def test_a_system_of_the_user_is_a_command_with_its_options(data, shop, gr2, tmp_path):
    plugin = tmp_path / "mine.py"
    plugin.write_text(PLUGIN, encoding="utf-8")
    try:
        out = gr2("--plugin", plugin, "run", "mine", shop, "--output", tmp_path / "m.run", "--first", "d07")
        assert "mine: 10 of 10 queries answered" in out
        assert {Run.read(tmp_path / "m.run").docnos(qid) for qid in data.split("test")} == {("d07",)}
    finally:
        SYSTEMS.pop("mine", None)


def test_a_plugin_that_is_not_there_is_named(gr2, tmp_path):
    with pytest.raises(SystemExit, match="there is no such plugin file"):
        gr2("--plugin", tmp_path / "none.py", "systems")
    with pytest.raises(SystemExit, match="cannot be imported"):
        gr2("--plugin", "no_such_module", "systems")
    with pytest.raises(SystemExit, match="--plugin needs a value"):
        gr2("systems", "--plugin")


def test_a_control_says_nothing_about_its_own_queries(shop, gr2, tmp_path):
    with pytest.raises(SystemExit, match="says nothing about 'train' itself"):
        gr2("run", "popularity", shop, "--output", tmp_path / "p.run", "--split", "train")


def test_folds_and_the_split_to_learn_from_are_obeyed(data, gr2, tmp_path):
    folds = replace(data, qrels={"test": data.split("train")}).with_folds(4)
    write_folder(folds, tmp_path / "folds")
    out = gr2("run", "popularity", tmp_path / "folds", "--output", tmp_path / "f.run", "--fold", "1")
    expected = popularity(folds.fold(1).split("train"), folds.fold(1).split("test"), 1000)
    assert Run.read(tmp_path / "f.run").docnos(folds.folds[1][0]) == expected.docnos(folds.folds[1][0])
    assert f"{len(folds.folds[1])} of {len(folds.folds[1])} queries" in out
    write_folder(data, tmp_path / "shop")
    gr2("run", "popularity", tmp_path / "shop", "--output", tmp_path / "d.run", "--train", "dev")
    qid = next(iter(data.split("test")))
    assert Run.read(tmp_path / "d.run").docnos(qid) == popularity(data.split("dev"), {qid: ""}).docnos(qid)
    same = ("run", "gr2", tmp_path / "shop", "--output", tmp_path / "g.run")
    with pytest.raises(SystemExit, match="knows the judgements of 'dev'"):
        gr2(*same, "--train", "dev", "--split", "dev")
    with pytest.raises(SystemExit, match="nothing to resume without a folder"):
        gr2(*same, "--resume")


def test_the_baselines_are_one_list(data, bert):
    names = [run.name for run in baseline_runs(data, "test", backbone=str(bert))]
    assert names == [
        "BM25 k1=0.9 b=0.4",
        "BM25 k1=1.5 b=0.75",
        "popularity",
        "neighbours",
        "dense, untrained",
    ]
    without = replace(data, qrels={"test": data.split("test")})
    assert [run.name for run in baseline_runs(without, "test")] == names[:2]


def test_a_trial_runs_any_system(data, shop, tmp_path):
    trial = Trial(system="my BM25", collection=str(shop), row="bm25", options={"k1": 1.2}, k=3)
    sweep([trial], tmp_path, workers=1)
    queries = {qid: data.queries[qid] for qid in data.split("test")}
    expected = BM25.index(data.documents, BM25Config(k1=1.2)).search(queries, 3)
    found = Run.read(tmp_path / trial.name / "run.trec")
    assert {q: found.docnos(q) for q in queries} == {q: expected.docnos(q) for q in queries}
    assert trial.name.startswith("shop.my_BM25.0.")
