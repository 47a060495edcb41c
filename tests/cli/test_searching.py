"""`gr2 search`, `gr2 show`, `gr2 export` and `gr2 --version`."""

import csv
import json
import subprocess
import sys

import numpy as np
import pytest
from helpers import tiny

from gr2.cli import main
from gr2.cli.version import commit
from gr2.data.collection import Document
from gr2.data.runs import Run
from gr2.docids.docids import Docids
from gr2.model.config import LookAheadConfig
from gr2.model.look_ahead import LookAhead
from gr2.model.look_ahead_io import save_look_ahead
from gr2.model.vector_storage import stored_as, widened

QUERY = "baka beke"


def printed(monkeypatch, capsys, *arguments):
    """What a command writes to standard output and to standard error."""
    monkeypatch.setattr(sys, "argv", ["gr2", *map(str, arguments)])
    main()
    return capsys.readouterr()


def refused(gr2, *arguments: object) -> str:
    with pytest.raises(SystemExit) as stop:
        gr2(*arguments)
    return str(stop.value.code)


# --- search and show


def test_search_prints_titles_and_says_how_long_it_took_and_how_sure_it_is(
    served_folder, served_model, monkeypatch, capsys
):
    found = printed(monkeypatch, capsys, "search", served_folder, QUERY, "--k", 3)
    expected = served_model.search(QUERY, 3)
    titles = {document.docno: document.title for document in tiny.collection().documents}
    lines = [line.split(None, 3) for line in found.out.splitlines()]
    assert [(line[2], line[3]) for line in lines] == [(row.docno, titles[row.docno]) for row in expected]
    assert [line[1] for line in lines] == [f"{row.score:.3f}" for row in expected]
    assert found.err.startswith("3 results in ")
    assert found.err.endswith(" ms; no other document scores better\n")
    narrow = printed(monkeypatch, capsys, "search", served_folder, QUERY, "--mode", "exact", "--budget", 1)
    assert narrow.err.endswith(" ms; documents that score better may be missing\n")


def test_search_gives_json(gr2, served_folder, served_model):
    content = json.loads(gr2("search", served_folder, QUERY, "--k", 2, "--json"))
    expected = served_model.search(QUERY, 2)
    assert content["query"] == QUERY
    assert content["milliseconds"] > 0 and content["proven"] and not content["truncated"]
    found = [(row["rank"], row["docno"], row["docid"]) for row in content["results"]]
    assert found == [(n, row.docno, row.docid) for n, row in enumerate(expected, start=1)]
    assert content["results"][0]["score"] == pytest.approx(expected[0].score)


def test_show_prints_a_document_of_a_model_and_of_a_collection(gr2, served_folder, tmp_path):
    first = next(iter(tiny.collection().documents))
    lines = gr2("show", served_folder, first.docno).splitlines()
    assert lines[:4] == [first.docno, first.title, f"https://example.org/{first.docno}", ""]
    assert lines[4].startswith(first.text)
    (tmp_path / "corpus.csv").write_text("docno,text\nd1,one\nd2,two\n")
    (tmp_path / "queries.csv").write_text("qid,query\nq,x\n")
    assert gr2("show", tmp_path, "d2") == "d2\n\ntwo\n"
    assert refused(gr2, "show", tmp_path, "d9") == f"gr2: {tmp_path} has no document 'd9'"
    assert refused(gr2, "show", served_folder, "d9") == f"gr2: {served_folder} has no document 'd9'"


def test_a_terminal_is_told_that_a_model_is_loaded(served_folder, monkeypatch, capsys):
    assert "loading" not in printed(monkeypatch, capsys, "search", served_folder, QUERY).err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert printed(monkeypatch, capsys, "search", served_folder, QUERY).err.startswith(
        f"loading {served_folder} ...\n"
    )


# --- export


def test_a_run_is_exported_and_read_again(gr2, tmp_path):
    run = Run.from_dict({"q1": {"d,1": 2.0, "d2": 0.1}, "q2": {"d2": -1.0}})
    run.write(tmp_path / "a.run")
    gr2("export", "run", tmp_path / "a.run", "--output", tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text().splitlines()[:2] == ["qid,docno,rank,score", 'q1,"d,1",1,2.0']
    again, original = Run.read(tmp_path / "a.csv"), Run.read(tmp_path / "a.run")
    assert again.rankings == original.rankings
    gr2("export", "run", tmp_path / "a.run", "--output", tmp_path / "a.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert rows[1]["docno"] == "d2" and rows[1]["rank"] == 2
    message = refused(gr2, "export", "run", tmp_path / "a.run", "--output", tmp_path / "a.parquet")
    assert "a.parquet: expected a file name that ends in .csv or .jsonl" in message


def test_a_frame_of_pyterrier_saved_as_csv_is_a_run(gr2, tmp_path):
    run = Run.from_dict({"q1": {"d,1": 2.0, "d2": 0.1}, "q2": {"d2": -1.0}})
    pytest.importorskip("pandas")
    run.to_frame({"q1": "one, two", "q2": "three"}).to_csv(tmp_path / "frame.csv")
    gr2("export", "run", tmp_path / "frame.csv", "--output", tmp_path / "a.csv")
    assert Run.read(tmp_path / "frame.csv").rankings == Run.read(tmp_path / "a.csv").rankings == run.rankings


def test_docids_of_a_model_are_exported(gr2, served_folder, tmp_path):
    assert gr2("export", "docids", served_folder, "--output", tmp_path / "a.csv").startswith("50 docids")
    gr2("export", "docids", served_folder / "docids", "--output", tmp_path / "a.jsonl")
    known = Docids.load(served_folder / "docids")
    with (tmp_path / "a.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    records = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [row["docno"] for row in rows] == [row["docno"] for row in records] == list(known.docnos)
    assert [row["docid"] for row in rows] == list(known.texts)
    assert [tuple(row["tokens"]) for row in records] == list(known.tokens)
    assert rows[0]["tokens"] == " ".join(map(str, known.tokens[0]))


@pytest.mark.parametrize("storage", ["fp32", "int8"])
def test_vectors_of_documents_are_exported_whatever_they_are_stored_in(gr2, tmp_path, storage):
    documents = [Document(f"d{number}", text="a") for number in range(5)]
    rows = np.random.default_rng(0).normal(size=(5, 12)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    made = LookAhead.build(documents, rows, LookAheadConfig(words=0.0))
    object.__setattr__(made, "vectors", stored_as(made.vectors, storage))
    save_look_ahead(made, tmp_path / "model" / "look_ahead")
    out = gr2("export", "embeddings", tmp_path / "model", "--out", tmp_path / "out")
    assert out == f"5 vectors of 12 dimensions, written to {tmp_path / 'out'}\n"
    found = np.load(tmp_path / "out" / "vectors.npy")
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, rows, atol=1e-6 if storage == "fp32" else 0.01)
    assert (tmp_path / "out" / "docnos.txt").read_text().split() == [f"d{number}" for number in range(5)]


def test_product_quantised_vectors_are_widened_to_their_centres():
    pytest.importorskip("faiss")
    rows = np.random.default_rng(0).normal(size=(300, 16)).astype(np.float32)
    from gr2.model.vector_storage import FullVectors

    stored = stored_as(FullVectors(rows), "pq")
    wide = widened(stored)
    queries = np.random.default_rng(1).normal(size=(3, 16)).astype(np.float32)
    np.testing.assert_allclose(queries @ wide.T, stored.dot(queries), rtol=1e-4, atol=1e-4)


def test_a_model_without_look_ahead_has_no_vectors_to_export(gr2, served_folder, tmp_path):
    message = refused(gr2, "export", "embeddings", served_folder, "--out", tmp_path / "out")
    assert "no model folder with look-ahead" in message


# --- version


def test_the_version_has_the_commit_of_a_checkout(gr2, tmp_path):
    assert gr2("--version").startswith("gr2 0.")
    assert commit(tmp_path) == ""

    def git(*arguments: str) -> str:
        name = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        done = subprocess.run(["git", *name, *arguments], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    git("init", "--quiet")
    (tmp_path / "a.txt").write_text("one")
    git("add", "a.txt")
    git("commit", "--quiet", "--message", "first")
    git("tag", "-a", "v1", "-m", "a tag is no commit")
    assert commit(tmp_path) == git("rev-parse", "--short=12", "HEAD")
    (tmp_path / "a.txt").write_text("two")
    assert commit(tmp_path) == git("rev-parse", "--short=12", "HEAD") + "+"
