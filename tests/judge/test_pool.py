"""Pools, files of queries, and sessions: what is to be judged, and in which order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gr2.data.formats import FormatError
from gr2.judge.judgements import Judgement
from gr2.judge.pool import pool
from gr2.judge.query_list import QueryToJudge, by_disagreement, read_query_list
from gr2.judge.session import Session
from gr2.judge.store import JudgeConfig, JudgementStore

RANKINGS = st.lists(st.lists(st.sampled_from([f"d{i}" for i in range(12)]), unique=True), max_size=4)


# --- pools


@given(RANKINGS, st.integers(1, 6))
def test_a_pool_has_the_first_documents_of_every_system_each_once(rankings, depth):
    found = pool("sour fruit", rankings, depth)
    assert len(found) == len(set(found))
    assert set(found) == {docno for ranking in rankings for docno in ranking[:depth]}


@given(RANKINGS, st.integers(1, 6), st.randoms())
def test_the_order_says_nothing_about_the_systems(rankings, depth, draw):
    shuffled = [*rankings, *rankings[:1]]
    draw.shuffle(shuffled)
    assert pool("sour  fruit", shuffled, depth) == pool("sour fruit", rankings, depth)


@given(RANKINGS)
def test_a_judge_who_stops_early_has_judged_the_best_of_every_system(rankings):
    found = pool("sour fruit", rankings, 6)
    for depth in range(1, 7):
        best = {docno for ranking in rankings for docno in ranking[:depth]}
        assert set(found[: len(best)]) == best


def test_each_query_has_an_order_of_its_own():
    systems = [["a"], ["b"], ["c"]]
    orders = {tuple(pool(f"query {number}", systems, 1)) for number in range(100)}
    assert len(orders) == 6
    with pytest.raises(ValueError, match="depth of at least 1"):
        pool("q", systems, 0)


# --- files of queries


def queries(tmp_path, content, name="queries.txt"):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    return read_query_list(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("queries.jsonl", '{"_id": "q1", "text": "sour  fruit"}\n{"_id": "q2", "text": "lime"}\n'),
        ("queries.tsv", "qid\tquery\nq1\tsour fruit\nq2\tlime\n"),
        ("queries.csv", 'qid,query\nq1,sour fruit\nq2,"lime"\n'),
        ("topics.txt", "q1\tsour fruit\nq2 lime\n"),
        (
            "topics.txt",
            "<top><num>q1</num><title>sour fruit</title></top>\n"
            "<top><num>q2</num><title>lime</title></top>\n",
        ),
    ],
)
def test_queries_with_a_qid_keep_it_and_their_order(tmp_path, name, content):
    assert queries(tmp_path, content, name) == [QueryToJudge("sour fruit", "q1"), QueryToJudge("lime", "q2")]


@pytest.mark.parametrize("header", ["", "query\tcount\n", "Query\tCount\n"])
def test_a_log_with_counts_is_read_most_frequent_first(tmp_path, header):
    content = f"{header}lime\t2\nsour  fruit\t3\nplum\t4\nlime\t2\n"
    found = queries(tmp_path, content, "log.tsv")
    assert [(query.text, query.count) for query in found] == [("lime", 4), ("plum", 4), ("sour fruit", 3)]
    assert all(query.qid == "" for query in found)


def test_a_table_with_commas_is_a_log_or_a_list(tmp_path):
    found = queries(tmp_path, 'query,count\n"sour fruit, ripe",2\nlime,3\n', "log.csv")
    assert [(query.text, query.count) for query in found] == [("lime", 3), ("sour fruit, ripe", 2)]
    assert [query.text for query in queries(tmp_path, "query\nlime\n", "list.csv")] == ["lime"]


def test_a_typed_list_is_a_log_in_which_repeated_queries_come_first(tmp_path):
    found = queries(tmp_path, "sour fruit\nhow to read 2 files\n\nlime\nlime\n")
    assert [(query.text, query.count) for query in found] == [
        ("lime", 2),
        ("sour fruit", 1),
        ("how to read 2 files", 1),
    ]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("log.tsv", "lime\t3\nplum\tmany\n", "log.tsv:2: expected a query, or a query, a tab and a whole"),
        ("log.tsv", "lime\t3\t4\n", "log.tsv:1: expected a query"),
        ("log.tsv", "lime\t-3\n", "log.tsv:1: expected a query"),
        ("log.tsv", "query\tcount\n", "log.tsv: expected at least one query after the header"),
        ("log.csv", "search term,clicks\nlime,3\n", "log.csv:1: expected the columns query and count"),
        ("log.txt", "", "log.txt: expected at least one query"),
        ("queries.jsonl", '{"_id": "q1", "text": " "}\n', "queries.jsonl: the query 'q1' is empty"),
        ("queries.jsonl", '{"_id": "q1"}\n', "queries.jsonl:1: expected a field for query"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, name, content, message):
    with pytest.raises(FormatError) as error:
        queries(tmp_path, content, name)
    assert message in str(error.value)


def test_queries_on_which_systems_disagree_come_first_and_keep_all_they_have():
    found = [
        QueryToJudge(text, qid, count) for text, qid, count in (("a", "1", 5), ("b", "2", 4), ("c", "3", 3))
    ]
    same, other = dict.fromkeys("abc", ["d1", "d2"]), {"a": ["d1", "d2"], "b": ["d3"], "c": ["d2", "d1"]}
    assert by_disagreement(found, [same, other]) == [found[1], found[2], found[0]]
    with pytest.raises(ValueError, match="at least two systems"):
        by_disagreement(found, [same])


# --- sessions

POOLS = {"red": ["r1", "r2", "r3"], "sour": ["s1", "s2"], "none": [], "sweet": ["t1"]}


def session(tmp_path, judge="ann", asked=None):
    store = JudgementStore(tmp_path / "judged", JudgeConfig())

    def found(query):
        if asked is not None:
            asked.append(query.text)
        return POOLS[query.text]

    return Session(store, judge, [QueryToJudge(text) for text in POOLS], found)


def at(found):
    return found.place and (found.place.query.text, found.place.docno)


def everything(found):
    seen = []
    while found.place:
        seen.append(at(found))
        found.skip()
    return seen


def test_a_session_goes_through_every_document(tmp_path):
    found = session(tmp_path)
    assert (found.place.query_number, found.place.document_number, found.place.documents) == (1, 1, 3)
    pairs = [(query, docno) for query, docnos in POOLS.items() for docno in docnos]
    assert everything(found) == pairs


def test_a_session_continues_after_the_last_grade_and_comes_back_to_what_was_skipped(tmp_path):
    found = session(tmp_path)
    found.grade(3)
    found.skip()
    found.grade(1)
    found.next_query()
    found.grade(0)
    assert at(found) is None and found.store.qrels().keys() and len(found.graded()) == 3
    again = session(tmp_path)
    assert everything(again) == [("red", "r2"), ("sour", "s1"), ("sour", "s2")]


def test_a_session_in_the_middle_continues_there(tmp_path):
    found = session(tmp_path)
    found.next_query()
    found.grade(2)
    asked = []
    assert at(session(tmp_path, asked=asked)) == ("sour", "s2")
    assert asked == ["sour"], "no more pools were made than needed"


def test_undo_goes_back_and_counts_for_one_judge_alone(tmp_path):
    ann, bob = session(tmp_path), session(tmp_path, "bob")
    ann.grade(4), bob.grade(1), ann.grade(2)
    assert at(ann) == ("red", "r3") and at(bob) == ("red", "r2")
    assert ann.undo().grade == 2 and at(ann) == ("red", "r2")
    assert ann.undo().grade == 4 and at(ann) == ("red", "r1") and ann.graded() == set()
    with pytest.raises(ValueError, match="no judgement to undo"):
        ann.undo()
    assert bob.graded() == {("red", "r1")}


def test_a_session_keeps_the_qid_and_refuses_a_wrong_grade(tmp_path):
    store = JudgementStore(tmp_path / "judged", JudgeConfig(grades=2), docnos={"r1"})
    found = Session(store, "ann", [QueryToJudge("red", "7")], lambda query: ["r1", "r2"])
    with pytest.raises(ValueError, match="grade from 0 to 2"):
        found.grade(3)
    assert at(found) == ("red", "r1") and not store.current()
    assert found.grade(1).qid == "7"
    with pytest.raises(ValueError, match="not in the collection"):
        found.grade(1)


def test_the_end_of_a_session_can_be_undone(tmp_path):
    store = JudgementStore(tmp_path / "judged", JudgeConfig())
    store.append([Judgement("red", "r1", 1, "ann")])
    found = Session(store, "ann", [QueryToJudge("red")], lambda query: ["r1"])
    assert found.place is None
    with pytest.raises(ValueError, match="no document left"):
        found.grade(1)
    found.undo()
    assert at(found) == ("red", "r1")
