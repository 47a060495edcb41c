"""Judged queries: read from every place, merged by their texts, and written as they are read."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gr2.judge.judged_queries import JudgedQueries, same_text
from gr2.judge.judgements import Judgement
from gr2.judge.store import JudgeConfig, JudgementStore

WORDS = st.text(alphabet="abAB zß", min_size=1, max_size=4).filter(str.strip)
ROWS = st.dictionaries(st.sampled_from(["d1", "d2", "d 3"]), st.integers(0, 4), min_size=1)


@st.composite
def some_judged(draw):
    texts = draw(st.dictionaries(st.sampled_from("1234"), WORDS))
    return JudgedQueries(texts, {qid: draw(ROWS) for qid in texts})


def by_text(*parts):
    """The merge, row by row: text → docno → grade."""
    found = {}
    for part in parts:
        for qid, row in part.qrels.items():
            for docno, grade in row.items():
                found.setdefault(same_text(part.queries[qid]), {})[docno] = grade
    return found


@given(some_judged(), some_judged())
def test_a_merge_has_every_query_once_and_the_later_grades(old, new):
    merged = new.over(old)
    keys = merged.keys()
    assert len(set(keys)) == len(keys) == len(merged.queries)
    assert by_text(merged) == by_text(old, new)


@given(some_judged(), some_judged())
def test_new_queries_keep_their_qids_and_no_old_query_loses_its_text_to_them(old, new):
    merged = new.over(old)
    for qid, text in new.over().queries.items():
        assert merged.queries[qid] == text


@given(some_judged())
def test_what_is_written_is_read_back(tmp_path_factory, judged):
    path = tmp_path_factory.mktemp("written") / "judged.jsonl"
    judged.write(path)
    assert JudgedQueries.load(path) == judged


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            '{"qid": "2", "text": "b", "grades": {"d": "1"}}',
            ":2: grades.d: expected a whole number, found '1'",
        ),
        ('{"qid": "2", "text": "b"}', ":2: grades: missing"),
        ('{"qid": "2"', ": cannot be read: JSONDecodeError"),
    ],
)
def test_a_line_that_is_no_judged_query_is_refused_by_name(tmp_path, line, expected):
    path = tmp_path / "judged.jsonl"
    path.write_text('{"qid": "1", "text": "a", "grades": {"d": 1}}\n' + line)
    with pytest.raises(ValueError, match=re.escape(f"{path}{expected}")):
        JudgedQueries.load(path)


def test_only_queries_with_a_relevant_document_are_learned_from():
    judged = JudgedQueries({"1": "a", "2": "b", "3": "c"}, {"1": {"d": 0}, "2": {"d": 0, "e": 1}})
    assert judged.relevant() == JudgedQueries({"2": "b"}, {"2": {"d": 0, "e": 1}})


def test_queries_are_left_out_by_their_text():
    judged = JudgedQueries({"1": "Sour  Fruit", "2": "b"}, {"1": {"d": 1}, "2": {"d": 1}})
    assert judged.without({"sour fruit"}).queries == {"2": "b"}


def test_every_kind_of_file_is_read_to_the_same_judgements(tmp_path):
    expected = JudgedQueries({"q1": "sour fruit"}, {"q1": {"d1": 2, "d2": 0}})
    store = JudgementStore(tmp_path / "store", JudgeConfig())
    store.append(
        [Judgement("sour fruit", "d1", 2, "ann", qid="q1"), Judgement("sour fruit", "d2", 0, "ann", qid="q1")]
    )
    beir = tmp_path / "beir"
    (beir / "qrels").mkdir(parents=True)
    (beir / "queries.jsonl").write_text('{"_id": "q1", "text": "sour fruit"}\n')
    (beir / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\n")
    (tmp_path / "my.qrels").write_text("q1 0 d1 2\nq1 0 d2 -1\n")
    assert JudgedQueries.read(tmp_path / "store") == expected
    assert JudgedQueries.read(beir) == expected
    assert JudgedQueries.read(tmp_path / "my.qrels", beir / "queries.jsonl") == expected
    (tmp_path / "case.csv").write_text("query,docid,rating\nsour fruit,d1,2\nsour fruit,d2,0\n")
    quepid = JudgedQueries.read(tmp_path / "case.csv")
    assert by_text(quepid) == by_text(expected)


@pytest.mark.parametrize("name", ["nowhere", "nowhere.csv"])
def test_a_missing_file_is_named(tmp_path, name):
    with pytest.raises(ValueError, match=f"{name}: there is no such folder or file"):
        JudgedQueries.read(Path(tmp_path / name))
