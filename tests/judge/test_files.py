"""Judgements in and out: TREC, BEIR and Quepid's CSV."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gr2.data.formats import FormatError
from gr2.data.formats.lines import is_key
from gr2.judge.exports import export
from gr2.judge.imports import import_files, read_rows
from gr2.judge.judgements import Judgement
from gr2.judge.store import LOG, JudgeConfig, JudgementStore
from gr2.store import verify

QUERIES = {"q1": "sour fruit", "q2": "a red one"}
QRELS = {"q1": {"d1": 4, "d2": 0}, "q2": {"d3": 1}}


@pytest.fixture
def store(tmp_path):
    return JudgementStore(tmp_path / "judged", JudgeConfig())


def one(folder, name, content):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    return path


def refused(store, path, line, *words, queries=None):
    """Expect an error with this file, line and words, and that nothing was written."""
    before = (store.folder / LOG).read_bytes()
    with pytest.raises(FormatError) as error:
        import_files(store, [path], judge="ann", queries=queries)
    message = str(error.value)
    assert message.startswith(f"{path}:{line}: " if line else f"{path}: "), message
    assert all(word in message for word in words), message
    assert (store.folder / LOG).read_bytes() == before


# --- out and in again


def test_trec_files(store, tmp_path):
    export(QUERIES | {"q3": "not judged"}, QRELS, tmp_path / "out", "trec")
    assert (tmp_path / "out" / "topics.txt").read_text() == "q1\tsour fruit\nq2\ta red one\n"
    assert (tmp_path / "out" / "qrels.txt").read_text() == "q1 0 d1 4\nq1 0 d2 0\nq2 0 d3 1\n"
    import_files(
        store, [tmp_path / "out" / "qrels.txt"], judge="ann", queries=tmp_path / "out" / "topics.txt"
    )
    assert (store.qrels(), store.queries(), store.judges()) == (QRELS, QUERIES, ["ann"])


def test_a_beir_folder(store, tmp_path):
    export(QUERIES, QRELS, tmp_path / "out", "beir", "dev")
    text = "query-id\tcorpus-id\tscore\nq1\td1\t4\nq1\td2\t0\nq2\td3\t1\n"
    assert (tmp_path / "out" / "qrels" / "dev.tsv").read_text() == text
    verify(tmp_path / "out")
    import_files(store, [tmp_path / "out"], judge="ann", source="clicks")
    assert (store.qrels(), store.queries()) == (QRELS, QUERIES)
    assert {each.source for each in store.current().values()} == {"clicks"}


KEYS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=4).filter(is_key)
TEXTS = st.text(st.characters(codec="utf-8"), min_size=1).map(lambda t: " ".join(t.split())).filter(bool)


@settings(max_examples=60)
@given(
    st.dictionaries(KEYS, st.tuples(TEXTS, st.dictionaries(KEYS, st.integers(0, 4), min_size=1)), min_size=1),
    st.sampled_from(["trec", "beir"]),
)
def test_what_is_exported_is_imported_again(drawn, form):
    queries = {qid: text for qid, (text, _) in drawn.items()}
    qrels = {qid: row for qid, (_, row) in drawn.items()}
    work = Path(tempfile.mkdtemp())
    try:
        store, out = JudgementStore(work / "judged", JudgeConfig()), work / "out"
        if form == "trec" and next(iter(queries)).startswith("<"):  # it would be read as a topic with tags
            with pytest.raises(ValueError, match="cannot be written as trec"):
                export(queries, qrels, out, form)
            assert not out.exists()
            return
        export(queries, qrels, out, form)
        if form == "beir":
            import_files(store, [out], judge="ann")
        else:
            import_files(store, [out / "qrels.txt"], judge="ann", queries=out / "topics.txt")
        assert (store.qrels(), store.queries()) == (qrels, queries)
    finally:
        shutil.rmtree(work)


def test_an_export_replaces_only_what_gr2_wrote(tmp_path):
    out = tmp_path / "out"
    export(QUERIES, QRELS, out, "beir")
    export(QUERIES, {"q1": {"d1": 1}}, out, "beir")
    assert (out / "queries.jsonl").read_text() == '{"_id":"q1","text":"sour fruit"}\n'
    (out / "mine.txt").write_text("notes")
    with pytest.raises(ValueError, match=r"mine\.txt: was not written by gr2"):
        export(QUERIES, QRELS, out, "beir")
    assert (out / "queries.jsonl").read_text() == '{"_id":"q1","text":"sour fruit"}\n'


def test_exports_that_cannot_be(tmp_path):
    with pytest.raises(ValueError, match="no judgement to export"):
        export(QUERIES, {}, tmp_path / "out", "trec")
    with pytest.raises(ValueError, match="cannot be used as a file name"):
        export(QUERIES, QRELS, tmp_path / "out", "beir", "../x")
    assert not list(tmp_path.iterdir())


# --- Quepid


def test_quepids_basic_export(store, tmp_path):
    path = one(
        tmp_path,
        "case.csv",
        'query,docid,rating\n"red, and ""round""",d1,3\nno ratings\nred,d2,0\nred,d3,2.0\n',
    )
    import_files(store, [path], judge="team")
    found = [(each.query, each.docno, each.grade, each.judge) for each in store.current().values()]
    assert found == [
        ('red, and "round"', "d1", 3, "team"),
        ("red", "d2", 0, "team"),
        ("red", "d3", 2, "team"),
    ]


def test_quepids_detailed_export(store, tmp_path):
    header = "Team Name,Case Name,Case ID,Query Text,Doc ID,Doc Position,Title,Rating,price"
    rows = 'Shop,Fruit,1,sour fruit,d1,1,"A\nlemon",3,9\nShop,Fruit,1,sour fruit,d2,2,Apple,,5\n'
    import_files(store, [one(tmp_path, "detail.csv", f"{header}\n{rows}")], judge="team")
    [found] = store.current().values()
    assert (found.query, found.docno, found.grade) == ("sour fruit", "d1", 3)


def test_quepids_book_has_a_column_for_each_judge(store, tmp_path):
    path = one(tmp_path, "book.csv", "query,docid,Ann B.,bob\nred,d1,3,1\nred,d2,,2\n")
    import_files(store, [path], judge="nobody")
    found = {(each.judge, each.docno): each.grade for each in store.current().values()}
    assert found == {("Ann B.", "d1"): 3, ("bob", "d1"): 1, ("bob", "d2"): 2}


def test_columns_may_have_names_of_their_own(store, tmp_path):
    path = one(tmp_path, "ours.csv", "search,sku,label\nred,d1,3\n")
    named = {"query": "search", "docno": "sku", "grade": "label"}
    [found] = [row.judgement for row in read_rows(path, "team", columns=named)]
    assert (found.query, found.docno, found.grade, found.judge) == ("red", "d1", 3, "team")
    path = one(tmp_path, "qrels.csv", "topic no,sku,label\nq1,d1,2\n")
    texts = one(tmp_path, "topics.txt", "q1 red\n")
    named = {"qid": "topic no", "docno": "sku", "grade": "label"}
    [found] = [row.judgement for row in read_rows(path, "team", texts, columns=named)]
    assert (found.query, found.qid, found.docno, found.grade) == ("red", "q1", "d1", 2)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"query": "text"}, "ours.csv:1: expected a column 'text'"),
        ({"title": "x"}, "no field is called 'title'"),
    ],
)
def test_wrong_names_of_columns_are_refused(tmp_path, named, message):
    path = one(tmp_path, "ours.csv", "search,sku,label\nred,d1,3\n")
    with pytest.raises(ValueError, match=message):
        list(read_rows(path, "team", columns=named))


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        ("", 0, "expected a header"),
        ("name,docid,rating\n", 1, "the columns query, docid and rating, found 'name,docid,rating'"),
        ("query,docid\nred,d1\n", 1, "a column `rating`"),
        ("query,docid,ann,ann\n", 1, "different names"),
        ("query,docid,rating\n\nred,d1,high\n", 3, "a whole number, found 'high'"),
        ("query,docid,rating\nred,d1,2.5\n", 2, "a whole number, found '2.5'"),
        ("query,docid,rating\nred,d1,-1\n", 2, "a whole number, found '-1'"),
        ("query,docid,rating\nred,d1,1\nred,d2,5\n", 3, "a grade from 0 to 4, found 5"),
        ("query,docid,rating\nred,d 1,1\n", 2, "a docno without white space, found 'd 1'"),
        ("query,docid,rating\n,d1,1\n", 2, "a query with text"),
        ("query,docid,rating\nred,d1,1,9\n", 2, "expected 3 cells, found 4"),
        ('query,docid,rating\n"red"x,d1,1\n', 2, "comma-separated values"),
    ],
)
def test_a_wrong_csv_names_the_line(store, tmp_path, content, line, words):
    refused(store, one(tmp_path, "case.csv", content), line, words)


def test_a_csv_that_is_not_utf8(store, tmp_path):
    path = tmp_path / "case.csv"
    path.write_bytes(b"query,docid,rating\nred,d1,1\nr\xe9d,d1,1\n")
    refused(store, path, 3, "expected UTF-8")


# --- qrels that are wrong


def test_wrong_qrels_name_the_line(store, tmp_path):
    topics = one(tmp_path, "topics.txt", "q1 sour fruit\n")
    refused(store, one(tmp_path, "a.qrels", "q1 0 d1 1\nq2 0 d1 1\n"), 2, "the query 'q2'", queries=topics)
    refused(
        store, one(tmp_path, "b.qrels", "q1 0 d1 1\nq1 0 d2 7\n"), 2, "from 0 to 4, found 7", queries=topics
    )
    refused(store, one(tmp_path, "c.qrels", "q1 0 d1 1\nq1 d1\n"), 2, "found 2 columns", queries=topics)
    refused(store, one(tmp_path, "d.qrels", "q1 0 d1 1\n"), 0, "give the file of their texts")
    refused(store, tmp_path / "nowhere.qrels", 0, "no such file", queries=topics)
    refused(store, one(tmp_path, "beir/queries.jsonl", "{}").parent, 0, "qrels/NAME.tsv")


def test_a_qid_that_means_another_query_in_the_store(store, tmp_path):
    store.append([Judgement("something else", "d1", 1, "bob", qid="q1")])
    topics = one(tmp_path, "topics.txt", "q1 sour fruit\n")
    refused(store, one(tmp_path, "a.qrels", "q1 0 d1 1\n"), 1, "belongs to the query", queries=topics)


def test_negative_grades_are_not_relevant(store, tmp_path):
    topics = one(tmp_path, "topics.txt", "q1 sour fruit\n")
    import_files(store, [one(tmp_path, "a.qrels", "q1 0 d1 -2\n")], judge="ann", queries=topics)
    assert store.qrels() == {"q1": {"d1": 0}}
