"""The command line as a user meets it: what it prints, what it refuses, and that it starts quickly."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gr2.cli import main
from gr2.data.collection import Collection, Document
from gr2.data.formats import read_folder, write_folder
from gr2.data.runs import Run
from gr2.evaluate.describe import headline


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    fruit = ("apple", "banana", "cherry", "lemon")
    write_folder(
        Collection(
            name="fruit",
            documents=tuple(
                Document(f"d{i}", name.title(), f"the {name} is a fruit") for i, name in enumerate(fruit)
            ),
            queries={"t1": "sour lemon", "q1": "an apple", "q2": "bananas", "q3": "lemons"},
            qrels={
                "train": {"t1": {"d3": 2}},
                "test": {"q1": {"d0": 3, "d1": 1}, "q2": {"d1": 2}, "q3": {"d3": 1}},
            },
        ),
        tmp_path / "fruit",
    )
    return tmp_path / "fruit"


CSV_OPTIONS = ("--style", "csv", "--measures", "Hits@1")


def refused(gr2, *arguments: object) -> str:
    with pytest.raises(SystemExit) as stop:
        gr2(*arguments)
    assert isinstance(stop.value.code, str), "a sentence for the user, which Python turns into exit code 1"
    return stop.value.code


def test_documents_alone_are_a_collection(gr2, tmp_path):
    (tmp_path / "shop.csv").write_text("sku,name\na1,lemon\na2,lime\n")
    columns = ("--columns", "docno", "sku", "text", "name")
    gr2("collection", "import", "--documents", tmp_path / "shop.csv", *columns, "--out", tmp_path / "shop")
    assert "2 documents, 0 queries" in gr2("collection", "check", tmp_path / "shop")


def test_help_does_not_import_anything_heavy():
    heavy = ["torch", "transformers", "pandas", "scipy", "numba", "bm25s"]
    code = f"""
import sys, gr2.cli
sys.argv = ["gr2", "--help"]
try:
    gr2.cli.main()
except SystemExit:
    print([name for name in {heavy} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "collection" in done.stdout


@pytest.mark.parametrize(
    "command", [["run", "bm25"], ["evaluate"], ["run", "popularity"], ["collection", "info"], ["demo"]]
)
def test_every_command_explains_itself(gr2, capsys, command):
    with pytest.raises(SystemExit) as stop:
        gr2(*command, "--help")
    assert stop.value.code == 0
    assert "usage: gr2" in capsys.readouterr().out


def test_help_shows_the_main_options_and_help_all_the_settings_too(gr2, capsys):
    shown = {}
    for flag in ("--help", "--help-all"):
        with pytest.raises(SystemExit) as stop:
            gr2("index", flag)
        assert stop.value.code == 0
        shown[flag] = capsys.readouterr().out
    for usual in ("--out", "--preset", "--budget", "--resume", "--help-all"):
        assert usual in shown["--help"] and usual in shown["--help-all"]
    for setting in ("--docids.scheme", "--optimiser.warmup", "--look-ahead.storage"):
        assert setting in shown["--help-all"] and setting not in shown["--help"]
    with pytest.raises(SystemExit):
        gr2("docids", "build", "--help")
    assert "--scheme" in capsys.readouterr().out, "few enough to be shown"


def test_info_prints_fingerprint_grades_and_leaks(gr2, folder):
    out = gr2("collection", "info", folder)
    assert read_folder(folder).fingerprint[:12] in out
    assert "grades 1-3" in out
    assert "Leak report: train → test, 3 queries" in out
    assert "1 (33%): all of the relevant documents were relevant in training" in out


def test_check_is_content_with_a_good_folder(gr2, folder):
    assert "No problems" in gr2("collection", "check", folder)


def test_check_reports_every_problem_and_exits_with_1(gr2, folder, capsys):
    with (folder / "corpus.jsonl").open("a") as corpus:
        corpus.write('{"_id": "d0", "text": "again"}\n{"_id": "d9"}\nnot json\n')
    with (folder / "qrels" / "test.tsv").open("a") as qrels:
        qrels.write("q1\tnowhere\t1\nnobody\td0\t1\nq1\td2\thigh\n")
    assert refused(gr2, "collection", "check", folder) == "6 problems"
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ", 1)[0].rsplit("/", 1)[1] for line in lines] == [
        "corpus.jsonl:5",
        "corpus.jsonl:6",
        "corpus.jsonl:7",
        "test.tsv:6",
        "test.tsv:7",
        "test.tsv:8",
    ]


def test_check_warns_of_repeated_texts_and_empty_queries(gr2, folder):
    with (folder / "corpus.jsonl").open("a") as corpus:
        corpus.write('{"_id": "twin", "title": "Lemon", "text": "the lemon is a fruit"}\n')
        corpus.write('{"_id": "e1", "text": ""}\n{"_id": "e2", "text": ""}\n')
    with (folder / "queries.jsonl").open("a") as queries:
        queries.write('{"_id": "blank", "text": " "}\n')
    warnings = [line for line in gr2("collection", "check", folder).splitlines() if "warning" in line]
    assert warnings == [
        f"warning: {folder}: query 'blank' has no text",
        f"warning: {folder / 'corpus.jsonl'}:5: document 'twin' has the same title and text as 'd3'",
    ]


def test_words_are_counted_in_titles_too_and_one_grade_is_binary(gr2, folder):
    (folder / "corpus.jsonl").write_text(
        '{"_id": "d0", "title": "one two three", "text": ""}\n{"_id": "d1", "text": "four"}\n'
    )
    for split in ("train", "test"):
        (folder / "qrels" / f"{split}.tsv").write_text("q1\td0\t1\n")
    out = gr2("collection", "info", folder)
    assert "Documents: 2 words on average (title and text), 1 with a title, 0 empty" in out
    assert out.startswith("fruit: 2 documents, 4 queries, binary judgements, fingerprint ")


def test_check_caps_what_it_shows(gr2, folder, capsys):
    with (folder / "qrels" / "test.tsv").open("a") as qrels:
        qrels.writelines(f"q1\tnowhere{i}\t1\n" for i in range(70))
    assert refused(gr2, "collection", "check", folder) == "70 problems, 20 of them not shown"
    assert len(capsys.readouterr().out.splitlines()) == 50


def test_bm25_control_and_evaluate_work_together(gr2, folder, tmp_path):
    out = gr2("run", "bm25", folder, "--output", tmp_path / "bm25.run", "--k1", "1.2", "--b", "0.5")
    assert "k1=1.2 b=0.5" in out
    for kind in ("popularity", "neighbours"):
        gr2("run", kind, folder, "--output", tmp_path / f"{kind}.run")
    runs = [tmp_path / f"{name}.run" for name in ("bm25", "popularity", "neighbours")]
    out = gr2("evaluate", folder, *runs)
    assert "all queries (3)" in out
    assert "seen queries (1)" in out
    assert "unseen queries (2)" in out
    assert "nDCG gain 2^g − 1 (gdeval), ERR maximal grade 4" in out
    assert read_folder(folder).fingerprint[:12] in out
    wide = gr2(
        "evaluate", folder, *runs, "--gain", "linear", "--measures", "P@5", "RR", "--style", "markdown"
    )
    assert "nDCG gain g (trec_eval)" in wide
    assert " P@5 |" in wide


def test_evaluate_gives_json_with_every_query_and_csv(gr2, folder, tmp_path, monkeypatch, capsys):
    Run.from_dict({"q1": {"d0": 1.0}, "q2": {"d1": 1.0}}).write(tmp_path / "a.run")
    Run.from_dict({"q1": {"d1": 1.0}}).write(tmp_path / "b.run")
    content = json.loads(gr2("evaluate", folder, tmp_path / "a.run", tmp_path / "b.run", "--style", "json"))
    assert content["fingerprint"] == read_folder(folder).fingerprint
    assert content["all"]["systems"][0]["values"]["Hits@1"] == {"q1": 1.0, "q2": 1.0, "q3": 0.0}
    monkeypatch.setattr(sys, "argv", ["gr2", "evaluate", str(folder), str(tmp_path / "b.run"), *CSV_OPTIONS])
    main()
    printed = capsys.readouterr()
    assert printed.out.splitlines()[:2] == [
        "queries,letter,system,measure,mean,better_than,gain,max_grade",
        "all,a,b,Hits@1,0.333333,,exponential,4",
    ]
    assert printed.err.splitlines() == [
        headline(read_folder(folder)),
        "split test; nDCG gain 2^g − 1 (gdeval), ERR maximal grade 4",
        "note: b answers 1 of 3 queries; the others count as 0",
    ]


def test_excluded_documents_leave_the_ranking_and_the_judgements(gr2, folder, tmp_path):
    Run.from_dict({"q1": {"d0": 2.0, "d1": 1.0}}).write(tmp_path / "a.run")
    (tmp_path / "source.tsv").write_text("query-id\tcorpus-id\nq1\td0\n")
    options = ("--style", "json", "--measures", "nDCG@5", "--exclude", tmp_path / "source.tsv")
    content = json.loads(gr2("evaluate", folder, tmp_path / "a.run", *options))
    assert content["all"]["systems"][0]["values"]["nDCG@5"]["q1"] == 1.0


def test_a_baseline_is_measured_too_and_everything_is_tested_against_it(gr2, folder, tmp_path):
    for name in "abc":
        Run.from_dict({"q1": {"d0": 1.0}}).write(tmp_path / f"{name}.run")
    paths = (tmp_path / "a.run", tmp_path / "b.run", "--baseline", tmp_path / "c.run")
    content = json.loads(gr2("evaluate", folder, *paths, "--style", "json", "--measures", "P@5"))
    pairs = {(row["system"], row["other"]) for row in content["all"]["differences"]}
    assert pairs == {("a", "c"), ("b", "c")}


def test_a_run_of_another_collection_or_split_is_noticed(gr2, folder, tmp_path):
    Run.from_dict({"q1": {"d0": 1.0, "x": 0.5}, "elsewhere": {"d0": 1.0}}).write(tmp_path / "odd.run")
    out = gr2("evaluate", folder, tmp_path / "odd.run")
    assert "note: odd answers 1 of 3 queries; the others count as 0" in out
    assert "note: odd answers 1 queries that fruit does not have" in out
    assert "note: odd returns 1 documents that fruit does not have" in out


def test_excluded_pairs_that_match_nothing_are_named(gr2, folder, tmp_path):
    Run.from_dict({"q1": {"d0": 1.0}, "q2": {"d1": 1.0}}).write(tmp_path / "a.run")
    (tmp_path / "source.tsv").write_text("qid docno\nq1 d0\nq1 d1\nt1 d3\nq2 elsewhere\n")
    out = gr2("evaluate", folder, tmp_path / "a.run", "--exclude", tmp_path / "source.tsv")
    assert "note: query-document pairs of source.tsv that are left out: 2" in out
    assert (
        "note: pairs of source.tsv with no query of the split test or no document: 2 (t1 d3, q2 elsewhere)"
        in out
    )
    assert "note: queries without a relevant document: 1 of 3; they count as 0" in out, "q1 has lost both"


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ({}, "this run has no results"),
        ({"t1": {"d0": 1.0}}, "answers none of the 3 queries of fruit, split test; its first query is 't1'"),
        ({"q1": {"x": 1.0, "y": 2.0}}, "returns no document of fruit; its first one is 'y'"),
    ],
)
def test_a_run_of_another_collection_or_an_empty_one_is_an_error(gr2, folder, tmp_path, scores, words):
    Run.from_dict({"q1": {"d0": 1.0}}).write(tmp_path / "good.run")
    Run.from_dict(scores).write(tmp_path / "odd.run")
    message = refused(gr2, "evaluate", folder, tmp_path / "good.run", tmp_path / "odd.run")
    assert message == f"gr2: {tmp_path / 'odd.run'}: {words}"


def test_a_query_without_relevant_documents_is_neither_seen_nor_unseen(gr2, folder, tmp_path):
    with (folder / "qrels" / "test.tsv").open("a") as qrels:
        qrels.write("t1\td0\t0\n")
    out = gr2("collection", "info", folder)
    assert "2 (50%): none of the relevant documents was relevant in training (unseen)" in out
    assert "1 (25%) have no relevant document: neither seen nor unseen" in out
    Run.from_dict({"q1": {"d0": 1.0}}).write(tmp_path / "a.run")
    out = gr2("evaluate", folder, tmp_path / "a.run")
    assert "note: queries without a relevant document: 1 of 4; they count as 0" in out
    assert [line for line in out.splitlines() if "queries (" in line] == [
        "all queries (4)",
        "seen queries (1)",
        "unseen queries (2)",
    ]


def test_nothing_but_a_regular_file_is_replaced(gr2, folder, tmp_path):
    (tmp_path / "real.run").write_text("old")
    (tmp_path / "link.run").symlink_to(tmp_path / "real.run")
    gr2("run", "bm25", folder, "--output", tmp_path / "link.run")
    assert (tmp_path / "link.run").is_symlink()
    assert (tmp_path / "real.run").read_text() != "old"
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in refused(gr2, "run", "bm25", folder, "--output", tmp_path / "pipe")
    assert "not a regular file" in refused(gr2, "run", "bm25", folder, "--output", tmp_path)
    assert "cannot be written" in refused(
        gr2, "run", "bm25", folder, "--output", tmp_path / "real.run" / "a.run"
    )


def test_what_somebody_added_to_a_folder_is_never_lost(gr2, folder, tmp_path):
    gr2("collection", "prepare", folder, "--out", tmp_path / "copy")
    gr2("collection", "prepare", folder, "--out", tmp_path / "copy")
    (tmp_path / "copy" / "mine.txt").write_text("notes")
    assert "mine.txt" in refused(gr2, "collection", "prepare", folder, "--out", tmp_path / "copy")
    (tmp_path / "copy" / "mine.txt").unlink()
    (tmp_path / "copy" / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td0\t1\n")
    assert "test.tsv" in refused(gr2, "collection", "prepare", folder, "--out", tmp_path / "copy")


def test_import_takes_tables_with_their_own_column_names(gr2, tmp_path):
    (tmp_path / "items.tsv").write_text("key\tname\tbody\nx1\tApple\tred fruit\nx2\tLemon\tsour fruit\n")
    (tmp_path / "topics.txt").write_text("<top>\n<num> Number: 7\n<title> sour things\n</top>\n")
    (tmp_path / "mine.qrels").write_text("7 0 x2 2\n7 0 x1 -1\n")
    files = ("--documents", tmp_path / "items.tsv", "--queries", tmp_path / "topics.txt")
    names = ("--columns", "docno", "key", "title", "name", "text", "body")
    gr2(
        "collection",
        "import",
        *files,
        "--qrels",
        "test",
        tmp_path / "mine.qrels",
        "--out",
        tmp_path / "out",
        *names,
    )
    made = read_folder(tmp_path / "out")
    assert next(iter(made.documents)) == Document("x1", "Apple", "red fruit")
    assert made.queries == {"7": "sour things"}
    assert made.split("test") == {"7": {"x2": 2, "x1": 0}}


def test_import_refuses_a_field_or_column_that_does_not_exist(gr2, tmp_path):
    (tmp_path / "items.tsv").write_text("key\tbody\nx1\tred fruit\n")
    (tmp_path / "queries.tsv").write_text("qid\tquery\nq\tfruit\n")
    (tmp_path / "mine.qrels").write_text("q 0 x1 1\n")
    files = ("--documents", tmp_path / "items.tsv", "--queries", tmp_path / "queries.tsv")
    files += (
        "--qrels",
        "test",
        tmp_path / "mine.qrels",
        "--out",
        tmp_path / "out",
        "--columns",
        "docno",
        "key",
    )
    assert "no field is called 'tilte'" in refused(gr2, "collection", "import", *files, "tilte", "name")
    message = refused(gr2, "collection", "import", *files, "text", "body", "title", "name")
    assert "items.tsv:1: expected a column for title (name); found key, body" in message
    assert "1 problem; nothing was written" in message, "not one in every row, and none that follows from it"
    assert not (tmp_path / "out").exists()


def test_import_reads_csv_and_names_all_bad_lines(gr2, tmp_path):
    (tmp_path / "items.csv").write_text('asin,name\nx1,"red, round"\nx2,sour\n')
    (tmp_path / "asked.csv").write_text("number,asked\n7,sour things\n")
    (tmp_path / "judged.csv").write_text("number,asin,label\n7,x2,2\n")
    columns = ("--columns", "docno", "asin", "text", "name", "qid", "number", "query", "asked")
    columns += ("--qrels-columns", "qid", "number", "docno", "asin", "grade", "label")
    files = ("--documents", tmp_path / "items.csv", "--queries", tmp_path / "asked.csv")
    files += ("--qrels", "test", tmp_path / "judged.csv", "--out", tmp_path / "out", *columns)
    gr2("collection", "import", *files)
    made = read_folder(tmp_path / "out")
    assert [document.text for document in made.documents] == ["red, round", "sour"]
    assert made.split("test") == {"7": {"x2": 2}}
    alone = gr2("collection", "import", *files[:2], "--out", tmp_path / "alone", *columns[:5])
    assert "2 documents, 0 queries, no judgements, fingerprint" in alone
    with (tmp_path / "items.csv").open("a") as items:
        items.writelines(f"x {number},odd\n" for number in range(25))
    lines = refused(gr2, "collection", "import", *files).splitlines()
    assert len(lines) == 21
    assert lines[0].startswith(f"gr2: {tmp_path / 'items.csv'}:4: expected 'asin' to be a key")
    assert lines[-1] == "25 problems, 5 of them not shown; nothing was written"


def test_prepare_says_what_to_obtain(gr2, tmp_path, monkeypatch):
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path / "home"))
    message = refused(gr2, "collection", "prepare", "nq320k", "--out", tmp_path / "nq")
    assert "simplified-nq-train.jsonl.gz" in message
    assert not (tmp_path / "nq").exists()


def test_prepare_copies_any_collection_into_a_folder(gr2, folder, tmp_path):
    gr2("collection", "prepare", folder, "--out", tmp_path / "copy")
    assert read_folder(tmp_path / "copy").fingerprint == read_folder(folder).fingerprint


def test_mistakes_are_one_sentence(gr2, folder, tmp_path):
    assert "no such folder" in refused(gr2, "collection", "info", tmp_path / "nowhere")
    run = tmp_path / "a.run"
    assert "no split 'dev'" in refused(gr2, "run", "bm25", folder, "--split", "dev", "--output", run)
    assert not run.exists()
    run.write_text("q1 Q0 d1 1 high tag\n")
    assert "a.run:1: expected a finite number as score" in refused(gr2, "evaluate", folder, run)
    assert "no such file" in refused(gr2, "evaluate", folder, tmp_path / "missing.run")
    Run.from_dict({"q1": {"d0": 1.0}}).write(run)
    assert "unknown measure 'nDGC@5'" in refused(gr2, "evaluate", folder, run, "--measures", "nDGC@5")
    assert "no stemmer is called 'klingon'" in refused(
        gr2, "run", "bm25", folder, "--language", "klingon", "--output", run
    )
    assert "b from 0 to 1" in refused(gr2, "run", "bm25", folder, "--b", "3", "--output", run)
    same = ("run", "popularity", folder, "--split", "train", "--output", run)
    assert "knows the judgements of 'train', so it says nothing about 'train' itself" in refused(gr2, *same)
    assert "ir_datasets id" in refused(gr2, "collection", "info", "ir:no/such/thing")
