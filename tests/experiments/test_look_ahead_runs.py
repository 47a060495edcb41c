"""Runs of look-ahead by queries that are encoded once."""

from helpers import tiny

from gr2.experiments import look_ahead_runs
from gr2.experiments.look_ahead_runs import KnownQueries, look_ahead_run
from gr2.model.config import VectorConfig
from gr2.systems.config import LookAheadOptions
from gr2.systems.look_ahead import LookAheadSystem


def test_queries_are_encoded_once_and_rank_as_the_system_does(bert, tmp_path, monkeypatch):
    data, how = tiny.with_dev(20), VectorConfig(pieces=0)
    options = LookAheadOptions(backbone=str(bert), vectors=how, learn=False)
    system = LookAheadSystem.build(data, options)
    KnownQueries(data, str(bert), tmp_path, how)
    monkeypatch.setattr(look_ahead_runs, "load_encoder", None)  # kept queries need no encoder
    known = KnownQueries(data, str(bert), tmp_path, how)
    queries = {qid: data.queries[qid] for qid in reversed(data.split("test"))}
    run = look_ahead_run(system.look_ahead, queries, known, "ours")
    wanted = system.search(queries, look_ahead_runs.DEPTH)
    assert run.name == "ours" and set(run.rankings) == set(queries)
    assert all(run.docnos(qid) == wanted.docnos(qid) for qid in queries)
