"""`gr2 learn`, `rollback`, `versions` and what to judge next, as a user meets them."""

import json
import shutil

import pytest
from helpers import judged

from gr2.judge.judgements import Judgement
from gr2.judge.store import JudgeConfig, JudgementStore
from gr2.model.gr2 import GR2
from gr2.training import selection
from gr2.training.candidates import Candidate


@pytest.fixture(scope="module")
def untaught(bert, tmp_path_factory):
    return judged.train_model(tmp_path_factory.mktemp("untaught") / "model", bert)


@pytest.fixture
def model(untaught, tmp_path, monkeypatch):
    few = [Candidate(), Candidate(memory=1.0)]
    monkeypatch.setattr(selection, "candidates", lambda *arguments, **options: few)
    return shutil.copytree(untaught, tmp_path / "model")


def store(folder, some):
    rows = [
        Judgement(some.queries[qid], docno, grade, "ann")
        for qid, row in some.qrels.items()
        for docno, grade in row.items()
    ]
    JudgementStore(folder, JudgeConfig()).append(rows)
    return folder


def topics(path, some):
    rows = (json.dumps({"_id": qid, "text": text}) for qid, text in some.queries.items())
    path.write_text("".join(f"{row}\n" for row in rows))
    return path


def test_a_model_learns_from_a_folder_of_judgements_and_is_brought_back(gr2, model, tmp_path):
    folder = store(tmp_path / "judged", judged.judged())
    printed = gr2("learn", model, folder, "--out", model)
    assert "Learned from 30 judged queries" in printed and f"written to {model}" in printed
    assert "chosen: memory 1; the model's vectors" in printed
    lines = gr2("versions", model).splitlines()
    assert len(lines) == 3
    assert lines[1].split()[0] == "1" and "present" not in lines[1] and "nothing" in lines[1]
    assert lines[2].split()[0] == "2" and "present" in lines[2] and "30" in lines[2]
    assert lines[2].endswith("memory 1  the model's vectors, words 1")
    assert gr2("rollback", model) == f"{model}: now version 3, learned: nothing\n"
    assert GR2.from_pretrained(model).look_ahead.memory is None
    assert gr2("rollback", model, "--to", 2) == f"{model}: now version 4, learned: memory 1\n"
    assert GR2.from_pretrained(model).look_ahead.memory is not None


def test_qrels_with_their_queries_teach_the_same(gr2, model, tmp_path):
    some = judged.judged()
    queries = topics(tmp_path / "queries.jsonl", some)
    rows = (f"{qid} 0 {docno} {grade}\n" for qid, row in some.qrels.items() for docno, grade in row.items())
    (tmp_path / "my.qrels").write_text("".join(rows))
    printed = gr2("learn", model, tmp_path / "my.qrels", "--queries", queries, "--out", tmp_path / "taught")
    assert "Learned from 30 judged queries" in printed
    assert GR2.from_pretrained(tmp_path / "taught").judged.qrels == some.qrels


def test_no_gain_is_said_and_nothing_is_written(gr2, model, tmp_path):
    folder = store(tmp_path / "judged", judged.judged(3))
    printed = gr2("learn", model, folder, "--out", tmp_path / "taught")
    assert "No gain yet" in printed and "at least 10 are needed" in printed
    assert not (tmp_path / "taught").exists()


@pytest.mark.parametrize("command", ["learn", "rollback", "versions"])
def test_an_error_is_one_sentence(gr2, tmp_path, command):
    more = [store(tmp_path / "judged", judged.judged(1)), "--out", tmp_path] if command == "learn" else []
    with pytest.raises(SystemExit) as stop:
        gr2(command, tmp_path / "nothing", *more)
    assert isinstance(stop.value.code, str) and "\n" not in stop.value.code
    assert stop.value.code.startswith(f"gr2: {tmp_path / 'nothing'}: ")


def test_the_queries_to_judge_next_are_those_on_which_the_systems_disagree(gr2, tmp_path):
    queries = topics(tmp_path / "queries.jsonl", judged.JudgedQueries({"a": "x", "b": "y", "c": "z"}, {}))
    (tmp_path / "one.run").write_text("a Q0 d1 1 2 one\nb Q0 d1 1 2 one\nc Q0 d1 1 2 one\n")
    (tmp_path / "two.run").write_text("a Q0 d1 1 2 two\nb Q0 d2 1 2 two\nc Q0 d2 1 2 two\n")
    folder = tmp_path / "judged"
    JudgementStore(folder, JudgeConfig()).append([Judgement("y", "d1", 1, "ann")])
    runs = ["--runs", tmp_path / "one.run", tmp_path / "two.run"]
    printed = gr2("judgements", "next", "--queries", queries, *runs, "--judged", folder).splitlines()
    assert printed[0] == "3 queries, 1 of them judged; systems: one, two"
    assert [line.split() for line in printed[3:]] == [
        ["1.000", "c", "z"],
        ["0.000", "a", "x"],
        ["1.000", "judged", "b", "y"],
    ]
    assert len(gr2("judgements", "next", "--queries", queries, *runs, "--top", 1).splitlines()) == 4
    with pytest.raises(SystemExit, match="--runs of at least two systems"):
        gr2("judgements", "next", "--queries", queries, *runs[:2])


def test_the_views_of_a_model_are_systems(gr2, model, tmp_path):
    queries = topics(tmp_path / "queries.jsonl", judged.judged(5))
    printed = gr2("judgements", "next", "--queries", queries, "--model", model).splitlines()
    assert printed[0].endswith("systems: vectors, words, all views")
    values = [float(line.split()[0]) for line in printed[3:]]
    assert len(values) == 5 and values == sorted(values, reverse=True) and values[0] > 0


def test_a_plain_list_of_queries_is_read_as_it_is_and_judged_ones_come_last(gr2, model, tmp_path):
    """The first word of a line is no qid."""
    texts = list(judged.judged(3).queries.values())
    (tmp_path / "log.txt").write_text("\n".join(texts))
    docno = next(iter(judged.judged(3).qrels.values())).popitem()[0]
    JudgementStore(tmp_path / "judged", JudgeConfig()).append([Judgement(texts[0], docno, 1, "ann")])
    options = ("--queries", tmp_path / "log.txt", "--model", model, "--judged", tmp_path / "judged")
    printed = gr2("judgements", "next", *options).splitlines()
    assert printed[0].startswith("3 queries, 1 of them judged")
    assert "judged" in printed[-1] and printed[-1].endswith(texts[0])


def test_the_curve_shows_what_more_queries_bring(gr2, model, tmp_path):
    folder = store(tmp_path / "judged", judged.judged(60))
    printed = gr2("judgements", "curve", model, folder, "--draws", 2)
    rows = [line.split() for line in printed.splitlines() if line.strip()[:1].isdigit()][1:]
    assert [row[0] for row in rows] == ["0", "10", "20", "40"]
    assert float(rows[-1][1]) > float(rows[0][1]) + 0.1, "learning helps here"
    assert float(rows[-1][2]) == pytest.approx(float(rows[-1][1]) - float(rows[0][1]), abs=2e-4)
