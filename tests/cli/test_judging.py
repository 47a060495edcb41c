"""`gr2 judge` as a user meets it: through a pipe, and on a terminal with single keys."""

import io
import os
import pty
import select
import subprocess
import sys

import pytest
from helpers import tiny

from gr2.bm25 import BM25
from gr2.data.formats import write_folder
from gr2.judge.next_queries import next_queries
from gr2.judge.store import JudgementStore

QUERIES = "baka beke\nduku\nbaka beke\n"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    place = tmp_path_factory.mktemp("judging")
    write_folder(tiny.collection(), place / "tiny")
    (place / "queries.txt").write_text(QUERIES)
    return place


@pytest.fixture
def judge(gr2, data, tmp_path, monkeypatch):
    """A function: what is typed, options → what is printed. Judgements are in `judged`."""

    def run(typed, *options, name="ann", pool=("bm25",)):
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        fixed = ("--queries", data / "queries.txt", "--out", tmp_path / "judged", "--depth", 3)
        return gr2("judge", data / "tiny", *fixed, "--judge", name, "--pool", *pool, *options)

    return run


def grades(tmp_path):
    return [each.grade for each in JudgementStore(tmp_path / "judged").current().values()]


def test_documents_are_judged_one_after_the_other_and_the_most_frequent_query_comes_first(judge, tmp_path):
    said = judge("3\n0\n")
    assert "query 1 of 2: baka beke" in said and "document 1 of 3, 0 judged" in said
    assert "document 3 of 3, 2 judged" in said and "saved: 3" in said
    assert said.endswith(f"2 judged by ann, kept in {tmp_path / 'judged'}\n")
    assert grades(tmp_path) == [3, 0]
    documents = {document.docno: document for document in tiny.collection().documents}
    [first, _] = JudgementStore(tmp_path / "judged").current().values()
    assert f"  {documents[first.docno].title}\n  {documents[first.docno].text}\n" in said


def test_judging_continues_where_it_stopped(judge, tmp_path):
    judge("3\n0\nq\n")
    assert "document 3 of 3, 2 judged" in judge("1\n2\n2\n2\n")
    assert grades(tmp_path) == [3, 0, 1, 2, 2, 2]
    assert "no document is left" in judge("")


def test_undo_skip_next_and_help(judge, tmp_path):
    said = judge("4\nu\ns\n1\nn\n2\n?\nx\n")
    assert "undone: 4 for " in said
    assert "query 2 of 2: duku\ndocument 1 of 3, 1 judged" in said
    assert said.count("u undo, s skip the document") == 3, "at the start, for ? and for x"
    assert grades(tmp_path) == [1, 2]


def test_grades_have_words_and_stay_within_range(judge, tmp_path):
    said = judge("7\n2\n", "--words", "no", "related", "good")
    assert "grades: 0 no, 1 related, 2 good" in said and "saved: 2 good" in said
    assert "expected a grade from 0 to 2, found 7" in said and grades(tmp_path) == [2]
    with pytest.raises(SystemExit, match="which differs from"):
        judge("", "--grades", 4)


def test_two_judges_do_not_see_each_other(judge, tmp_path):
    judge("4\n")
    said = judge("2\nu\nu\n", name="bob")
    assert "document 1 of 3, 0 judged" in said and "'bob' has no judgement to undo" in said
    assert grades(tmp_path) == [4]


def test_a_model_folder_joins_the_pool(judge, served_folder, served_model, tmp_path):
    judge("1\n" * 50, pool=("bm25", served_folder))
    found = {each.docno for each in JudgementStore(tmp_path / "judged").current().values()}
    assert {result.docno for result in served_model.search("baka beke", 3)} <= found
    assert len(found) > 6


def test_queries_on_which_the_systems_disagree_can_come_first(judge, data, served_folder, served_model):
    said = judge("", "--order", "disagreement", pool=("bm25", served_folder))
    bm25 = BM25.index(tiny.collection().documents)
    texts = {text: text for text in ("baka beke", "duku")}
    runs = [bm25.search(texts, 3), served_model.search_many(texts, 3)]
    expected = next_queries([{text: run.docnos(text) for text in texts} for run in runs], list(texts))
    assert expected[0].disagreement > expected[1].disagreement
    assert f"query 1 of 2: {expected[0].qid}" in said


def test_wrong_input_is_named_and_nothing_is_written(judge, gr2, data, tmp_path):
    with pytest.raises(SystemExit, match="no system is called 'bm26'"):
        judge("1\n", pool=("bm26",))
    with pytest.raises(SystemExit, match="found 1 words"):
        judge("1\n", "--words", "no", "--grades", 4)
    with pytest.raises(SystemExit, match="no such file"):
        judge("1\n", "--queries", tmp_path / "nothing.txt")
    with pytest.raises(SystemExit, match="expected at least one system"):
        judge("1\n", pool=())
    assert not (tmp_path / "judged").exists()


def test_on_a_terminal_a_single_key_is_enough_and_a_killed_session_has_lost_nothing(data, tmp_path):
    mine, theirs = pty.openpty()
    options = ["--queries", data / "queries.txt", "--out", tmp_path / "judged", "--judge", "ann"]
    command = [sys.executable, "-m", "gr2", "judge", data / "tiny", *options, "--pool", "bm25"]
    process = subprocess.Popen(list(map(str, command)), stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    try:
        wait_for(mine, b"0 judged")
        os.write(mine, b"34")  # the second key comes while the first is being saved
        wait_for(mine, b"2 judged")
    finally:
        process.kill()
        process.wait()
        os.close(mine)
    assert grades(tmp_path) == [3, 4]


def wait_for(terminal, text):
    seen = b""
    while text not in seen:
        assert select.select([terminal], [], [], 120)[0], seen
        seen += os.read(terminal, 4096)
