"""`gr2 judgements ...` as a user meets it."""

import json

import pytest

from gr2.data.collection import Collection, Document
from gr2.data.formats import write_folder
from gr2.judge.judgements import qid_of
from gr2.judge.store import JudgementStore

COLUMNS = ("query", "search", "docno", "sku", "grade", "label")


@pytest.fixture
def csv(tmp_path):
    path = tmp_path / "book.csv"
    path.write_text("query,docid,ann,bob\nred,d1,3,1\nred,d2,0,0\nsour,d1,2,\n")
    return path


@pytest.fixture
def folder(gr2, csv, tmp_path):
    gr2("judgements", "import", csv, "--folder", tmp_path / "judged")
    return tmp_path / "judged"


def refused(gr2, *arguments):
    with pytest.raises(SystemExit) as stop:
        gr2("judgements", *arguments)
    assert isinstance(stop.value.code, str), "a sentence for the user, which Python turns into exit code 1"
    assert "\n" not in stop.value.code
    return stop.value.code


@pytest.mark.parametrize("command", ["import", "export", "agreement", "from-clicks", "next", "curve", "show"])
def test_every_command_explains_itself(gr2, capsys, command):
    with pytest.raises(SystemExit) as stop:
        gr2("judgements", command, "--help")
    assert stop.value.code == 0
    assert f"usage: gr2 judgements {command}" in capsys.readouterr().out


def test_import_and_show(gr2, csv, tmp_path):
    folder = tmp_path / "judged"
    out = gr2("judgements", "import", csv, "--folder", folder, "--words", "no", "some", "good", "best")
    assert out == f"5 judgements of 2 queries added to {folder}\n"
    gr2("judgements", "import", csv, "--folder", folder)  # again: the same state
    assert gr2("judgements", "show", folder).splitlines() == [
        "5 judgements of 2 queries and 2 documents",
        "",
        "judge  source  queries  no  some  good  best  all",
        "ann    judged        2   1     0     1     1    3",
        "bob    judged        1   1     1     0     0    2",
    ]


def test_an_import_of_a_table_with_other_names(gr2, tmp_path):
    path = tmp_path / "ours.csv"
    path.write_text("search,sku,label\nred,d1,3\n")
    gr2("judgements", "import", path, "--folder", tmp_path / "judged", "--columns", *COLUMNS)
    assert JudgementStore(tmp_path / "judged").qrels() == {qid_of("red"): {"d1": 3}}


def test_an_import_that_is_refused_leaves_nothing(gr2, csv, tmp_path):
    new = tmp_path / "new"
    message = refused(gr2, "import", csv, "--folder", new, "--grades", 2)
    assert message == f"gr2: {csv}:2: expected a grade from 0 to 2, found 3"
    fruit = Collection(name="fruit", documents=(Document("d1"),), queries={"q": "red"}, qrels={})
    write_folder(fruit, tmp_path / "fruit")
    message = refused(gr2, "import", csv, "--folder", new, "--collection", tmp_path / "fruit")
    assert message == f"gr2: {csv}:3: the document 'd2' is not in the collection"
    assert "at least one file with judgements" in refused(gr2, "import", "--folder", new)
    assert not new.exists()
    assert "expected a folder of judgements" in refused(gr2, "show", new)
    assert "has other files" in refused(gr2, "import", csv, "--folder", tmp_path, "--grades", 3)


def test_export_then_import_of_qrels(gr2, folder, tmp_path):
    out = tmp_path / "trec"
    printed = gr2("judgements", "export", folder, "--out", out)
    assert printed == f"3 judgements of 2 queries written to {out}\n"
    again = tmp_path / "again"
    arguments = ["--queries", out / "topics.txt", "--folder", again, "--judge", "all", "--source", "clicks"]
    gr2("judgements", "import", out / "qrels.txt", *arguments)
    store = JudgementStore(again)
    assert store.qrels() == JudgementStore(folder).qrels()
    assert {(each.judge, each.source) for each in store.current().values()} == {("all", "clicks")}
    gr2(
        "judgements",
        "export",
        folder,
        "--out",
        tmp_path / "beir",
        "--format",
        "beir",
        "--split",
        "dev",
        "--judge",
        "bob",
    )
    assert (tmp_path / "beir" / "qrels" / "dev.tsv").read_text().count("\n") == 3
    assert "no judgement by 'eve'; the judges are: ann, bob" in refused(
        gr2, "export", folder, "--out", tmp_path / "x", "--judge", "eve"
    )
    assert "no judgement to export" in refused(
        gr2, "export", folder, "--out", tmp_path / "x", "--source", "clicks"
    )
    assert not (tmp_path / "x").exists()


def test_agreement(gr2, folder):
    lines = gr2("judgements", "agreement", folder).splitlines()
    assert lines[0].split() == "judge judge common equal kappa linear kappa quadratic".split()
    # Grades (3, 1) and (0, 0): observed 2 of 2; by chance (3 vs 1, 3 vs 0, 0 vs 1, 0 vs 0) 6 of 4.
    # Squared: observed 4 of 2; by chance 4 + 9 + 1 + 0 = 14 of 4.
    assert lines[1].split() == ["ann", "bob", "2", "50%", f"{1 - 1 / 1.5:.3f}", f"{1 - 2 / 3.5:.3f}"]
    assert lines[3:] == ["ann and bob: 1 conflict", "  3 : 1  d1  red"]
    assert gr2("judgements", "agreement", folder, "--conflicts", 0).splitlines()[-1] == "  and 1 more"


def test_agreement_needs_two_judges_of_the_same(gr2, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("query,docid,rating\nred,d1,3\n")
    gr2("judgements", "import", path, "--folder", tmp_path / "one", "--judge", "ann")
    assert "no two judges" in refused(gr2, "agreement", tmp_path / "one")


def test_from_clicks(gr2, tmp_path):
    rows = [("a", 1, i < 16) for i in range(40)] + [("a", 2, i < 8) for i in range(40)]
    rows += [("b", 2, i < 2) for i in range(40)] + [("c", 9, True)]
    log = tmp_path / "log.tsv"
    lines = [f"red\t{docno}\t{place}\t{int(clicked)}" for docno, place, clicked in rows]
    log.write_text("\n".join(["query\tdocno\tshown_at\tclicked", *lines]) + "\n")
    out = gr2("judgements", "from-clicks", log, "--out", tmp_path / "clicks", "--thresholds", 0.05, 0.3)
    assert [line.split()[:2] for line in out.splitlines()[1:4]] == [
        ["1", "1.000"],
        ["2", "0.500"],
        ["9", "0.111"],
    ]
    assert "assumed" in out.splitlines()[3]
    assert "2 pairs of query and document added" in out and "1 left out" in out
    store = JudgementStore(tmp_path / "clicks")
    assert store.config.grades == 2
    assert {(each.docno, each.grade, each.judge, each.source) for each in store.current().values()} == {
        ("a", 2, "clicks", "clicks"),
        ("b", 1, "clicks", "clicks"),
    }
    assert "--min-shown" in out and f"gr2 learn MODEL {tmp_path / 'clicks'}" in out
    other = tmp_path / "other.tsv"
    other.write_text(log.read_text().replace("shown_at", "position", 1))
    renamed = ("--out", tmp_path / "renamed", "--thresholds", 0.05, 0.3, "--columns", "shown_at", "position")
    gr2("judgements", "from-clicks", other, *renamed)
    assert JudgementStore(tmp_path / "renamed").qrels() == store.qrels()
    assert "too few for 4 thresholds" in refused(gr2, "from-clicks", log, "--out", tmp_path / "clicks")
    new = tmp_path / "new"
    assert "nothing was shown 99 times" in refused(gr2, "from-clicks", log, "--out", new, "--min-shown", 99)
    assert "log.tsv:1: expected a JSON object" in refused(
        gr2, "from-clicks", log, "--out", new, "--format", "ubi"
    )
    assert "at least one log" in refused(gr2, "from-clicks", "--out", new)
    assert "name of a judge" in refused(gr2, "from-clicks", log, "--out", new, "--judge", " ")
    assert not new.exists()


def test_from_ubi(gr2, tmp_path):
    queries = [
        {"query_id": f"s{i}", "user_query": "red", "query_response_hit_ids": ["a", "b"][:: 1 - 2 * (i % 2)]}
        for i in range(20)
    ]
    events = [
        {
            "action_name": "click",
            "query_id": f"s{i}",
            "event_attributes": {"object": {"object_id": "a"}, "position": {"ordinal": 1 + i % 2}},
        }
        for i in range(20)
    ]
    for name, records in (("queries", queries), ("events", events)):
        (tmp_path / name).write_text("".join(json.dumps(record) + "\n" for record in records))
    out = tmp_path / "clicks"
    gr2(
        "judgements",
        "from-clicks",
        tmp_path / "queries",
        tmp_path / "events",
        "--format",
        "ubi",
        "--out",
        out,
    )
    [grades] = JudgementStore(out).qrels().values()
    assert grades == {"a": 4, "b": 0}
