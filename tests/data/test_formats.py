"""Every format a collection comes in and goes out in, and the errors of those that are broken."""

import gzip
import json
import re
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gr2.data.collection import Collection, Document
from gr2.data.formats import FormatError, open_collection, read_folder, write_folder
from gr2.data.formats.folder import read_files
from gr2.data.formats.lines import Problems
from gr2.data.formats.records import DocumentFile, read_grouped, read_queries
from gr2.data.formats.trec import numbered_qrels, read_pairs, read_qrels, read_run, read_topics
from gr2.data.runs import Run
from gr2.store import verify

BEIR = {
    "corpus.jsonl": '{"_id": "d1", "title": "Cats", "text": "purr", "url": "http://x/1"}\n'
    '{"_id": "d2", "title": "", "text": "bark"}\n'
    '{"_id": "d3", "text": "moo"}\n',
    "queries.jsonl": '{"_id": "q1", "text": "purring animal"}\n{"_id": "q2", "text": "loud animal"}\n',
    "qrels/train.tsv": "query-id\tcorpus-id\tscore\nq2\td2\t1\n",
    "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t3\nq1\td2\t-2\nq2\td3\t0\n",
}
DOCUMENTS = [
    Document("d1", "Cats", "purr", "http://x/1"),
    Document("d2", "", "bark", ""),
    Document("d3", "", "moo", ""),
]
QUERIES = {"q1": "purring animal", "q2": "loud animal"}
QRELS = {"train": {"q2": {"d2": 1}}, "test": {"q1": {"d1": 3, "d2": 0}, "q2": {"d3": 0}}}


def lay(folder, files=BEIR, **changed):
    """Write files into a folder; a name in `.gz` is compressed, one that is None is left out."""
    for name, content in (files | changed).items():
        if content is None:
            continue
        data = content.encode() if isinstance(content, str) else content
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return folder


def one(folder, name, content):
    """One file of a folder."""
    return lay(folder, {name: content}) / name


def same_as_beir(made):
    assert list(made.documents) == DOCUMENTS
    assert made.queries == QUERIES
    assert made.qrels == QRELS
    assert list(made.docnos) == ["d1", "d2", "d3"]


def refused(path, line, *words):
    """Expect a FormatError that names this file and line and says these words."""
    return pytest.raises(FormatError, match=Named(path, line, words))


class Named(str):
    """A pattern for `refused`: readable when it does not match."""

    def __new__(cls, path, line, words):
        import re

        start = re.escape(f"{path}:{line}: " if line else f"{path}: ")
        return super().__new__(cls, "^" + start + "".join(f"(?=.*{re.escape(word)})" for word in words))


# --- folders


def test_a_beir_folder(tmp_path):
    made = read_folder(lay(tmp_path / "pets"))
    same_as_beir(made)
    assert made.name == "pets"
    assert made.folds == ()
    same_as_beir(open_collection(str(tmp_path / "pets")))


def test_a_gzipped_folder_is_the_same(tmp_path):
    plain = read_folder(lay(tmp_path / "plain"))
    zipped = read_folder(lay(tmp_path / "zipped", {f"{name}.gz": content for name, content in BEIR.items()}))
    same_as_beir(zipped)
    assert zipped.fingerprint == plain.fingerprint


def test_documents_can_be_read_more_than_once(tmp_path):
    made = read_folder(lay(tmp_path))
    assert list(made.documents) == list(made.documents) == DOCUMENTS


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\ufeff" + text,
        lambda text: "\ufeff" + text.replace("\n", "\r\n"),
        lambda text: "\n \n" + text.replace("\n", "\n\n\t\n"),
        lambda text: text.removesuffix("\n"),
    ],
    ids=["CRLF", "BOM", "BOM and CRLF", "blank lines", "no last line end"],
)
@pytest.mark.parametrize("end", ["", ".gz"])
def test_what_editors_do_to_files_changes_nothing(tmp_path, change, end):
    same_as_beir(read_folder(lay(tmp_path, {name + end: change(text) for name, text in BEIR.items()})))


def test_unicode_comes_through_untouched(tmp_path):
    text = 'naïve 日本語 🐈 \u2028 \x85 e\u0301 \\ " \t \x00'
    files = {
        "corpus.jsonl": json.dumps({"_id": "dö🐈", "title": text, "text": text}, ensure_ascii=False),
        "queries.jsonl": json.dumps({"_id": "qü", "text": text}),
        "qrels/test.tsv": "qü\tdö🐈\t1\n",
    }
    made = read_folder(lay(tmp_path, files))
    assert list(made.documents) == [Document("dö🐈", text, text)]
    assert made.queries == {"qü": text}
    assert made.split("test") == {"qü": {"dö🐈": 1}}


@pytest.mark.parametrize(
    ("record", "document"),
    [
        ('{"_id": "a", "text": "t"}', Document("a", "", "t")),
        ('{"_id": "a", "title": null, "text": "t", "url": null}', Document("a", "", "t")),
        ('{"_id": 17, "text": "t"}', Document("17", "", "t")),
        ('{"_id": "a", "text": ""}', Document("a")),
        ('{"_id": "a", "text": "t", "metadata": {"x": [1]}}', Document("a", "", "t")),
        ('{"docno": "a", "contents": "t"}', Document("a", "", "t")),
        ('{"id": "a", "body": "t", "title": "T"}', Document("a", "T", "t")),
        ('  {"_id": "a", "text": "t"}  ', Document("a", "", "t")),
    ],
)
def test_records_as_they_are_found(tmp_path, record, document):
    path = one(tmp_path, "corpus.jsonl", record)
    assert list(DocumentFile(path)) == [document]


def test_integer_ids_join_with_judgements(tmp_path):
    files = {
        "corpus.jsonl": '{"_id": 1, "text": "a"}',
        "queries.jsonl": '{"_id": 2, "text": "b"}',
        "qrels/test.tsv": "2\t1\t1\n",
    }
    assert read_folder(lay(tmp_path, files)).split("test") == {"2": {"1": 1}}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_tables_with_named_columns(tmp_path, end):
    files = {
        "corpus.tsv": "url\tdocno\ttext\ttitle\nhttp://x/1\td1\tpurr\tCats\n\td2\tbark\t\n\td3\tmoo\t\n",
        "queries.tsv": "query\tqid\npurring animal\tq1\nloud animal\tq2\n",
        "qrels/train.tsv": BEIR["qrels/train.tsv"],
        "qrels/test.tsv": BEIR["qrels/test.tsv"],
    }
    lines = {name: content.replace("\n", end) for name, content in files.items()}
    same_as_beir(read_folder(lay(tmp_path, lines)))


def test_columns_may_be_called_anything(tmp_path):
    corpus = one(tmp_path, "pages.tsv.gz", "key\tbody of it\tid\nd1\tpurr\tnot the key\n")
    queries = one(tmp_path, "asked.jsonl", '{"number": 1, "question": "cat?", "text": "not this"}')
    qrels = one(tmp_path, "judged.txt", "1 0 d1 2\n")
    columns = {"docno": "key", "text": "body of it", "qid": "number", "query": "question"}
    made = read_files("mine", corpus, queries, {"test": qrels}, columns=columns)
    assert list(made.documents) == [Document("d1", "", "purr")]
    assert made.queries == {"1": "cat?"}
    assert made.split("test") == {"1": {"d1": 2}}


def test_a_column_that_is_named_and_not_there_is_missing(tmp_path):
    path = one(tmp_path, "c.jsonl", '{"_id": "a", "text": "t"}')
    with refused(path, 1, "a field for docno", "key"):
        list(DocumentFile(path, {"docno": "key"}))


def test_the_three_kinds_of_judgement_files(tmp_path):
    files = BEIR | {
        "qrels/train.tsv": None,
        "qrels/train.qrels": "q2 0 d2 1\n",
        "qrels/test.tsv": None,
        "qrels/test.txt.gz": "q1 Q0 d1 3\nq1 Q0 d2 -2\nq2 Q0 d3 0\n",
    }
    same_as_beir(read_folder(lay(tmp_path, files)))


def test_a_folder_without_judgements_has_no_splits(tmp_path):
    files = {name: text for name, text in BEIR.items() if not name.startswith("qrels")}
    assert read_folder(lay(tmp_path, files)).qrels == {}


def test_topics_are_the_queries_of_a_folder(tmp_path):
    topics = "<top>\n<num> q1\n<title> purring animal\n</top>\n<top><num>q2<title>loud animal</top>\n"
    same_as_beir(read_folder(lay(tmp_path, BEIR, **{"queries.jsonl": None, "topics.txt.gz": topics})))


@pytest.mark.parametrize("name", ["folds.json", "folds-5.json", "folds.json.gz"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_folds(tmp_path, name, bom):
    content = bom + '{"0": ["q2"],\n\n "1": ["q1"]}\n'
    assert read_folder(lay(tmp_path, BEIR, **{name: content})).folds == (("q2",), ("q1",))


def test_a_corpus_is_streamed(tmp_path):
    count = 4000
    record = '{"_id": "d%d", "title": "", "text": "' + "word " * 1000 + '"}\n'
    path = tmp_path / "corpus.jsonl.gz"
    with gzip.open(path, "wt", compresslevel=1) as stream:
        stream.writelines(record % number for number in range(count))
    lay(tmp_path, {"queries.jsonl": '{"_id": "q", "text": "x"}'})
    tracemalloc.start()
    try:
        made = read_folder(tmp_path)
        assert len(made.docnos) == count
        assert sum(len(document.text) for document in made.documents) == count * 5000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 7_000_000  # 20 MB of text; the reader's buffers and the docnos are about 3 MB


# --- topics

CLASSIC = """
<top>

<num> Number: 301
<title> International Organized Crime

<desc> Description:
Identify organizations that participate in international criminal
activity.

<narr> Narrative:
A relevant document must as a minimum identify the organization.

</top>

<top>
<num> Number: 302
<title> Poliomyelitis and
Post-Polio
<desc> Description:
Is the disease of Poliomyelitis (polio) under control in the
world?
</top>
"""
TIPSTER = """<top>
<head> Tipster Topic Description
<num> Number:  051
<dom> Domain:  International Economics
<title> Topic:  Airbus Subsidies

<desc> Description:
Document will discuss government assistance to Airbus Industrie.
<con> Concept(s):
1. Airbus Industrie
<fac> Factor(s):
</fac>
<def> Definition(s):
</top>
"""


def test_topics_in_the_classic_form(tmp_path):
    path = one(tmp_path, "topics.txt", CLASSIC)
    titles = {"301": "International Organized Crime", "302": "Poliomyelitis and Post-Polio"}
    assert read_topics(path) == titles
    assert read_topics(path, "desc") == {
        "301": "Identify organizations that participate in international criminal activity.",
        "302": "Is the disease of Poliomyelitis (polio) under control in the world?",
    }


def test_topics_of_the_first_trecs(tmp_path):
    assert read_topics(one(tmp_path, "topics.txt", TIPSTER)) == {"051": "Airbus Subsidies"}


@pytest.mark.parametrize(
    "topic",
    [
        "<top><num>1</num><title>cats and dogs</title></top>",
        "<top>\n<num> Number: 1 </num>\n<title>\n\n  cats and\n  dogs </title>\n<desc></desc></top>",
        "<TOP>\n<NUM> Number: 1\n<TITLE> cats and dogs\n<DESC> Description:\nx\n</TOP>",
        "<Top>\n<Num>number : 1\n<Title>Title: cats and dogs\n</Top>\n",
        "\n\n  <top>\r\n<num> Number: 1\r\n<title> cats and dogs\r\n</top>\r\n",
        "\ufeff<top>\n<num> 1\n<title> Topic:cats\tand dogs\n</top>",
        "<top><title>cats and dogs<num>1</top>",
    ],
)
def test_topics_in_the_shapes_they_are_found_in(tmp_path, topic):
    assert read_topics(one(tmp_path, "topics.txt", topic)) == {"1": "cats and dogs"}
    twice = topic + "\n" + topic.removeprefix("\ufeff").replace("1", "2")
    assert read_topics(one(tmp_path, "more.txt", twice)) == {"1": "cats and dogs", "2": "cats and dogs"}


def test_less_than_and_numbers_may_stand_in_a_topic(tmp_path):
    path = one(tmp_path, "topics.txt", "<top>\n<num> 1\n<title> p < 0.05 or a<b>c\n</top>\n")
    assert read_topics(path)["1"].startswith("p < 0.05")


@pytest.mark.parametrize(
    "content",
    [
        "1\tcats and dogs\n2\tfish\n",
        "1 cats and dogs\n2 fish\n",
        " 1   cats and dogs \r\n\r\n2\t fish",
        "\ufeff1 \t cats and dogs\n2\t\tfish\n",
    ],
)
def test_topics_in_two_columns(tmp_path, content):
    path = one(tmp_path, "topics.txt", content)
    assert read_topics(path) == {"1": "cats and dogs", "2": "fish"}


def test_a_qid_without_a_digit_has_a_tab_after_it(tmp_path):
    assert read_topics(one(tmp_path, "topics.txt", "first\tsour fruit\n")) == {"first": "sour fruit"}


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        ("<top>\n<num> 1\n<title> a\n</top>\n\n<top>\n<num> 1\n<title> b\n</top>\n", 6, ["'1'", "twice"]),
        ("1\ta\n2\tb\n1\tc\n", 3, ["'1'", "twice"]),
        ("1\ta\nlonely\n", 2, ["expected two columns"]),
        ("1 a\nsour fruit\n", 2, ["'sour' has no digit", "a tab after it"]),
        ("sour fruit\nred\n", 1, ["'sour' has no digit", "cat -n topics.txt"]),
        ("red\nsour fruit\n", 1, ["'red' has no digit", "cat -n topics.txt"]),
        ("<top>\n<num> 1\n<title> a\n</top>\n<top>\n<title> b\n</top>\n", 5, ["<num>"]),
        ("<top>\n<num> 1\n<title> a\n</top>\n<top>\n<num> 2\n<desc> b\n</top>\n", 5, ["<title>"]),
        ("<top>\n<num> 1\n<title> a\n</top>\n<top>\n<num> 2\n<title> b\n", 5, ["</top>"]),
        ("<top>\n<num> 1\n<title> a\n\n<top>\n<num> 2\n<title> b\n</top>\n", 1, ["<top>", "</top>"]),
        ("<top>\n<num> 1\n<title> a\n</top>\nstray\n<top>\n<num> 2\n<title> b\n</top>\n", 5, ["<top>"]),
        ("<top>\n<num> 1 or 2\n<title> a\n</top>\n", 1, ["<num>"]),
        ('<topic number="1"><query>a</query></topic>', 1, ["</top>"]),
    ],
)
def test_broken_topics_are_refused(tmp_path, content, line, words):
    path = one(tmp_path, "topics.txt", content)
    with refused(path, line, *words):
        read_topics(path)


# --- judgements and runs


@pytest.mark.parametrize(
    "content",
    [
        "q1\td1\t3\nq1\td2\t-2\nq2\td1\t0\n",
        "query-id\tcorpus-id\tscore\nq1\td1\t3\nq1\td2\t-2\nq2\td1\t0\n",
        "\ufeffquery-id\tcorpus-id\tscore\r\n\r\nq1\td1\t3\r\nq1\td2\t-2\r\nq2\td1\t0\r\n",
        "qid docno relevance\nq1 d1 +3\nq1 d2 -2\nq2 d1 0\n",
        "q1 0 d1 3\nq1 0 d2 -2\nq2 0 d1 0\n",
        "q1\tQ0\td1\t3\nq1   Q0  d2 -2\n q2 Q0 d1 0",
        "q1 0 d1 3\nq1 0 d2 -2\nq2 0 d1 0\nq1 0 d1 3\n",
    ],
    ids=["BEIR", "BEIR with header", "BOM and CRLF", "other header", "TREC", "tabs and spaces", "said twice"],
)
@pytest.mark.parametrize("end", ["", ".gz"])
def test_judgements(tmp_path, content, end):
    path = one(tmp_path, "test.qrels" + end, content)
    assert read_qrels(path) == {"q1": {"d1": 3, "d2": -2}, "q2": {"d1": 0}}


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        ("q1 0 d1 1\nq1 0 d2 x\n", 2, ["integer grade", "'x'"]),
        ("q1 0 d1 1\nq1 0 d2 1.0\n", 2, ["integer grade", "'1.0'"]),
        ("q1 0 d1 0.5\nq1 0 d2 1\n", 1, ["integer grade", "'0.5'"]),
        ("q1\td1\t1.0\nq1\td2\t1\n", 1, ["integer grade", "'1.0'"]),
        ("q1\td1\tx7\n", 1, ["integer grade", "'x7'"]),
        ("q1\td1\t1\nquery-id\tcorpus-id\tscore\n", 2, ["integer grade", "'score'"]),
        ("q1 0 d1 1\nq1 d2\n", 2, ["expected `qid docno grade`", "2 columns"]),
        ("q1 0 d1 1\n\nq1 0 d2 1 extra\n", 3, ["5 columns"]),
        ("q1 0 d1 1\nq1 0 d1 2\n", 2, ["'q1'", "'d1'", "already judged 1"]),
        (b"q1 0 d1 1\nq1 0 d\xe9 1\n", 2, ["expected UTF-8", "byte 7"]),
    ],
)
def test_broken_judgements_are_refused(tmp_path, content, line, words):
    path = one(tmp_path, "test.tsv", content)
    with refused(path, line, *words):
        read_qrels(path)


def test_runs(tmp_path):
    content = "q1 Q0 d2 1 1.5 tag\nq1 Q0 d1 2 -1e-3 tag\nq2\tQ0\td1\t1\t7\ttag\n"
    scores = {"q1": {"d2": 1.5, "d1": -0.001}, "q2": {"d1": 7.0}}
    assert read_run(one(tmp_path, "bm25.run", content)) == scores
    assert read_run(one(tmp_path, "bm25.run.gz", content)) == scores
    assert Run.read(tmp_path / "bm25.run.gz").name == "bm25"


def test_a_run_comes_back_in_the_order_it_was_written_in(tmp_path):
    run = Run.from_dict({"q1": {"d1": 0.5, "d2": 2.0, "d3": 0.5}, "q2": {"dö": -1.0}}, name="two words")
    run.write(tmp_path / "new" / "a.run")
    again = Run.read(tmp_path / "new" / "a.run")
    assert {qid: again.docnos(qid) for qid in ("q1", "q2")} == {"q1": ("d2", "d3", "d1"), "q2": ("dö",)}


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        ("q1 Q0 d1 1 0.5 t\nq1 Q0 d2 2 high t\n", 2, ["finite number", "'high'"]),
        ("q1 Q0 d1 1 nan t\n", 1, ["finite number", "'nan'"]),
        ("q1 Q0 d1 1 inf t\n", 1, ["finite number", "'inf'"]),
        ("q1 Q0 d1 1 1_0 t\n", 1, ["finite number", "'1_0'"]),
        ("q1 Q0 d1 1 0.5\n", 1, ["expected `qid Q0 docno rank score tag`", "5 columns"]),
        ("q1 Q0 d1 1 0.5 two words\n", 1, ["7 columns"]),
        ("q1 Q0 d1 1 2 t\nq1 Q0 d1 2 1 t\n", 2, ["'d1'", "twice", "'q1'"]),
        (b"q1 Q0 d\xff 1 2 t\n", 1, ["UTF-8"]),
    ],
)
def test_broken_runs_are_refused(tmp_path, content, line, words):
    path = one(tmp_path, "a.run", content)
    with refused(path, line, *words):
        read_run(path)


# --- CSV

CSV = {
    "corpus.csv": "docno,title,text,url\r\nd1,Cats,purr,http://x/1\r\nd2,,bark,\r\n\r\nd3,,moo,\r\n",
    "queries.csv": "qid,query\nq1,purring animal\nq2,loud animal\n",
    "qrels/train.csv": "query_id,docno,label\nq2,d2,1\n",
    "qrels/test.csv.gz": "iteration,grade,qid,docno\n0,3,q1,d1\n0,-2,q1,d2\n0,0,q2,d3\n",
}


def test_a_folder_of_csv_files(tmp_path):
    same_as_beir(read_folder(lay(tmp_path, CSV)))


def test_quoted_cells_of_csv_may_hold_commas_quotes_and_blank_lines(tmp_path):
    content = '\ufeff"docno",text\nd1,"a, ""b""\n\n c"\nd2,last\n'
    made = DocumentFile(one(tmp_path, "corpus.csv", content))
    assert [(line, document.text) for line, document in made.numbered()] == [(2, 'a, "b"\n\n c'), (5, "last")]


def test_a_cell_of_csv_may_be_longer_than_pythons_usual_limit(tmp_path):
    path = one(tmp_path, "corpus.csv", f"docno,text\nd1,{'word ' * 40_000}\n")
    assert [len(document.text) for document in DocumentFile(path)] == [200_000]


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        ("docno;text\nd1;a\n", 1, ["separated by commas", "semicolons"]),
        ("docno\ttext\nd1\ta\n", 1, ["separated by commas", "tabs"]),
        ("docno,text\nd1,a\nd2,a,b\n", 3, ["expected 2 columns", "found 3"]),
        ('docno,text\nd1,"a\nb"\nd2,"never\nclosed\n', 4, ["never closed"]),
        ('docno,text\nd1,"a" b\n', 2, ["must be doubled"]),
        ("docno,text,text\nd1,a,b\n", 1, ["distinct column names"]),
        (b"docno,text\nd1,a\nd2,\xe9\n", 3, ["expected UTF-8", "byte 4"]),
        ("key,text\nd1,a\n", 1, ["a column for docno", "found key, text", "--columns docno NAME"]),
    ],
)
def test_broken_csv_is_refused(tmp_path, content, line, words):
    path = one(tmp_path, "corpus.csv", content)
    with refused(path, line, *words):
        list(DocumentFile(path))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("d.csv", "sku,name\n" + "d1,a\n" * 30),
        ("d.jsonl", '{"sku": "d1", "name": "a"}\n' * 30),
        ("d.csv", "docno,name\n" + "d1,a\n" * 30),
    ],
)
def test_a_wrong_name_is_one_problem_and_what_follows_from_it_is_none(tmp_path, name, content):
    """Neither the missing documents, nor the plain list of queries, nor judgements of both are repeated."""
    documents, queries = one(tmp_path, name, content), one(tmp_path, "q.txt", "sour fruit\nred fruit\n" * 9)
    qrels, problems = one(tmp_path, "a.qrels", "1 0 d1 1\n2 0 d2 1\n"), Problems(20)
    read_files("mine", documents, queries, {"test": qrels}, report=problems)
    first, second = problems.kept
    assert re.search(f"{name}:1: expected a (column|field) for (docno|text) .*--columns", first)
    assert "q.txt:1: expected a qid" in second


def test_judgements_of_nothing_are_a_problem_if_there_is_no_other(tmp_path):
    documents = one(tmp_path, "d.csv", "docno,text\nd1,a\n")
    qrels, problems = one(tmp_path, "a.qrels", "1 0 d1 1\n"), Problems(20)
    read_files("mine", documents, None, {"test": qrels}, report=problems)
    assert len(problems.kept) == 1 and "'1', which is not among the queries" in problems.kept[0]


def test_columns_that_are_not_read_are_known(tmp_path):
    path = one(tmp_path, "d.csv", "sku,name,price,text\nd1,a,3,b\n")
    assert DocumentFile(path, {"docno": "sku", "title": "name"}).unread() == ["price"]
    assert DocumentFile(path, {"docno": "sku"}).unread() == ["name", "price"]
    assert DocumentFile(one(tmp_path, "d.jsonl", '{"price": 1}\n')).unread() == []


@pytest.mark.parametrize("name", ["judged.csv", "judged.tsv"])
def test_columns_of_judgements_may_be_called_anything(tmp_path, name):
    content = "label,asin,query,id\n3,d1,q1,x\n-2,d2,q1,x\n0,d3,q2,x\n"
    path = one(tmp_path, name, content if name.endswith("csv") else content.replace(",", "\t"))
    files = lay(tmp_path, BEIR)
    columns = {"qid": "query", "docno": "asin", "grade": "label"}
    made = read_files(
        "mine", files / "corpus.jsonl", files / "queries.jsonl", {"test": path}, qrels_columns=columns
    )
    assert made.split("test") == QRELS["test"]
    with pytest.raises(FormatError, match=r"expected a column for grade \(stars\); found label, asin"):
        list(numbered_qrels(path, columns=columns | {"grade": "stars"}))
    with pytest.raises(
        ValueError, match="no field of qrels is called 'grad'; the fields are qid, docno, grade"
    ):
        list(numbered_qrels(path, columns={"grad": "label"}))


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        ("qid,docno\nq1,d1\n", 1, ["column for grade", "found qid, docno"]),
        ("qid,docno,grade\nq1,d1,high\n", 2, ["integer grade", "'high'"]),
        ("qid,docno,grade\nq1,d1,1\nq1,d1,2\n", 3, ["already judged 1"]),
        ("qid,docno,grade\nq1,a b,1\n", 2, ["printable query and document keys"]),
    ],
)
def test_broken_judgements_in_csv_are_refused(tmp_path, content, line, words):
    path = one(tmp_path, "test.csv", content)
    with refused(path, line, *words):
        read_qrels(path)


def test_a_run_may_be_csv(tmp_path):
    path = one(tmp_path, "bm25.csv", "qid,rank,docno,score\nq1,1,d2,1.5\nq1,2,d1,-1e-3\n")
    assert read_run(path) == {"q1": {"d2": 1.5, "d1": -0.001}}
    with refused(one(tmp_path, "odd.csv", "qid,docno,score\nq1,d1,1\nq1,d2,high\n"), 3, "'high'"):
        read_run(tmp_path / "odd.csv")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("pairs.tsv", "q1\td1\nq1 d2\n"),
        ("pairs.tsv", "query-id\tcorpus-id\nq1\td1\nq1\td2\n"),
        ("pairs.txt", "qid docno\nq1 d1\nq1 d2\n"),
        ("pairs.csv", "docno,qid\nd1,q1\nd2,q1\n"),
    ],
)
def test_a_header_is_no_pair(tmp_path, name, content):
    assert read_pairs(one(tmp_path, name, content)) == {"q1": {"d1", "d2"}}


def test_generated_queries_may_be_csv(tmp_path):
    path = one(tmp_path, "queries.csv", 'd1,"one, two"\nd1,three\n')
    assert read_grouped(path) == {"d1": ["one, two", "three"]}
    with refused(one(tmp_path, "odd.csv", "d1,a\nd2\n"), 2, "two columns"):
        read_grouped(tmp_path / "odd.csv")


# --- what is written can be read

CHARACTERS = st.characters(exclude_categories=["Cs"])
TEXTS = st.text(CHARACTERS, max_size=12)
KEYS = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Cf", "Co", "Cn", "Zs", "Zl", "Zp"]), min_size=1, max_size=6
)


@st.composite
def collections(draw):
    documents = draw(
        st.lists(
            st.builds(Document, KEYS, TEXTS, TEXTS, TEXTS),
            min_size=1,
            max_size=5,
            unique_by=lambda document: document.docno,
        )
    )
    queries = draw(st.dictionaries(KEYS, TEXTS, min_size=1, max_size=5))
    grades = st.dictionaries(
        st.sampled_from([document.docno for document in documents]), st.integers(-2, 9), min_size=1
    )
    rows = st.dictionaries(st.sampled_from(sorted(queries)), grades)
    qrels = draw(st.dictionaries(st.sampled_from(["train", "dev", "test", "test.v2", "a-b_c"]), rows))
    order = draw(st.permutations(sorted(queries)))
    cut = draw(st.integers(0, len(order)))
    folds = draw(st.sampled_from([(), (tuple(order[:cut]), tuple(order[cut:]))]))
    return Collection(name="drawn", documents=tuple(documents), queries=queries, qrels=qrels, folds=folds)


@given(made=collections())
@settings(max_examples=150, deadline=None)
def test_what_is_written_reads_back_the_same(tmp_path_factory, made):
    folder = tmp_path_factory.mktemp("written") / "drawn"
    write_folder(made, folder)
    verify(folder)
    again = read_folder(folder)
    assert again.fingerprint == made.fingerprint
    assert list(again.documents) == list(made.documents)
    assert again.queries == made.queries
    assert again.qrels == made.qrels
    assert again.folds == made.folds


def test_the_same_collection_gives_the_same_bytes(tmp_path):
    made = read_folder(lay(tmp_path / "beir"))
    write_folder(made, tmp_path / "one")
    write_folder(read_folder(tmp_path / "one"), tmp_path / "two")
    for path in (tmp_path / "one").rglob("*.*"):
        assert path.read_bytes() == (tmp_path / "two" / path.relative_to(tmp_path / "one")).read_bytes()


def test_a_collection_can_be_written_over_the_folder_it_is_read_from(tmp_path):
    write_folder(read_folder(lay(tmp_path / "beir")), tmp_path / "out")
    made = read_folder(tmp_path / "out")
    write_folder(made, tmp_path / "out")
    same_as_beir(read_folder(tmp_path / "out"))


@pytest.mark.parametrize(
    "made",
    [
        Collection(name="n", documents=(Document("a b"),), queries={}, qrels={}),
        Collection(name="n", documents=(Document(""),), queries={}, qrels={}),
        Collection(name="n", documents=(Document("a"),), queries={"q\t1": "x"}, qrels={}),
        Collection(name="n", documents=(Document("a"), Document("a")), queries={}, qrels={}),
        Collection(name="n", documents=(), queries={}, qrels={}),
        Collection(name="n", documents=(Document("a"),), queries={}, qrels={"../x": {}}),
        Collection(name="n", documents=(Document("a"),), queries={}, qrels={"t": {"q": {"a": 1}}}),
        Collection(name="n", documents=(Document("a"),), queries={"q": ""}, qrels={"t": {"q": {"b": 1}}}),
        Collection(name="n", documents=(Document("a", "\ud800"),), queries={}, qrels={}),
    ],
    ids=[
        "docno with space",
        "empty docno",
        "qid with tab",
        "docno twice",
        "no documents",
        "split that is a path",
        "unknown query",
        "unknown document",
        "half a character",
    ],
)
def test_what_could_not_be_read_back_is_not_written(tmp_path, made):
    with pytest.raises(ValueError):
        write_folder(made, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


# --- what is broken is refused, with file, line and what was expected


@pytest.mark.parametrize(
    ("name", "content", "line", "words"),
    [
        ("corpus.jsonl", '{"_id": "d1", "text": "a"}\n{"_id": "d2", \n', 2, ["expected a JSON object"]),
        ("corpus.jsonl", '{"_id": "d1", "text": "a"}\n\n["d2"]\n', 3, ["expected a JSON object", "list"]),
        ("corpus.jsonl", '{"text": "a"}\n', 1, ["expected a field for docno", "_id"]),
        ("corpus.jsonl", '{"_id": "d1", "title": "a"}\n', 1, ["expected a field for", "text"]),
        ("corpus.jsonl", '{"_id": "d1", "text": 3}\n', 1, ["'text'", "expected", "string", "3"]),
        ("corpus.jsonl", '{"_id": "d1", "text": null}\n', 1, ["'text'", "expected", "string"]),
        ("corpus.jsonl", '{"_id": "d1", "title": ["x"], "text": "a"}\n', 1, ["'title'", "string"]),
        ("corpus.jsonl", '{"_id": "", "text": "a"}\n', 1, ["'_id'", "expected"]),
        ("corpus.jsonl", '{"_id": "a b", "text": "a"}\n', 1, ["'_id'", "white space", "'a b'"]),
        ("corpus.jsonl", '{"_id": 1.5, "text": "a"}\n', 1, ["'_id'", "1.5"]),
        ("corpus.jsonl", '{"_id": true, "text": "a"}\n', 1, ["'_id'", "True"]),
        ("corpus.jsonl", '{"_id": "d1", "text": "a"}\n{"_id": "d1", "text": "b"}\n', 2, ["'d1'", "already"]),
        ("corpus.jsonl", '{"_id": 1, "text": "a"}\n{"_id": "1", "text": "b"}\n', 2, ["'1'", "already"]),
        ("corpus.jsonl", b'{"_id": "d1", "text": "\xe9"}\n', 1, ["UTF-8"]),
        ("corpus.jsonl", "", 0, ["expected at least one document"]),
        ("corpus.jsonl", "\n \n", 0, ["expected at least one document"]),
        ("corpus.tsv", "docno\ttext\n", 0, ["expected at least one document"]),
        ("corpus.tsv", "docno\ttext\nd1\ta\nd2\n", 3, ["expected 2 columns", "found 1"]),
        ("corpus.tsv", "docno\ttext\nd1\ta\tb\n", 2, ["expected 2 columns", "found 3"]),
        ("corpus.tsv", "docno\tbod\nd1\ta\n", 1, ["a column for text", "found docno, bod"]),
        ("corpus.tsv", "docno\ttext\ttext\nd1\ta\tb\n", 1, ["distinct column names"]),
        ("corpus.tsv", b"docno\ttext\nd1\ta\nd2\tb\xff\n", 3, ["expected UTF-8", "byte 5"]),
        ("queries.jsonl", '{"_id": "q1"}\n', 1, ["expected a field for", "text"]),
        ("queries.jsonl", '{"_id": "q1", "text": "a"}\n{"_id": "q1", "text": "a"}\n', 2, ["'q1'", "twice"]),
        ("queries.tsv", "qid\tquery\nq1\ta\nq2\n", 3, ["expected 2 columns"]),
        ("qrels/test.tsv", "q1\td1\t1\nq1\tnope\t1\n", 2, ["'nope'", "not in the corpus"]),
        ("qrels/test.tsv", "q1\td1\t1\nnope\td1\t1\n", 2, ["'nope'", "not among the queries"]),
        ("qrels/test.tsv", "q1\td1\thigh1\n", 1, ["integer grade"]),
        ("qrels/test.tsv", "q1\td1\t1\nq1\t1\n", 2, ["2 columns"]),
        ("folds.json", '{"0": ["q1"], "1": ["nope"]}', 0, ["'nope'", "not among the queries"]),
        ("folds.json", '{"0": ["q1"], "1": ["q1"]}', 0, ["'q1'", "two folds"]),
        ("folds.json", '{"1": ["q1"]}', 0, ["expected", '{"0": [qid, ...]']),
        ("folds.json", '{"0": [1]}', 0, ["expected", '{"0": [qid, ...]']),
        ("folds.json", '["q1"]', 0, ["expected", '{"0": [qid, ...]']),
        ("folds.json", '{"0": ["q1"', 0, ["expected", '{"0": [qid, ...]']),
        ("folds.json", b'{"0": ["\xe9"]}', 0, ["expected"]),
    ],
)
@pytest.mark.parametrize("end", ["", ".gz"])
def test_a_broken_file_of_a_folder_is_refused(tmp_path, name, content, line, words, end):
    rivals = {"corpus.tsv": "corpus.jsonl", "queries.tsv": "queries.jsonl"}
    lay(tmp_path, BEIR, **{rivals.get(name, name): None, name + end: content})
    with refused(tmp_path / (name + end), line, *words):
        read_folder(tmp_path)


@pytest.mark.parametrize("name", [*BEIR, "folds.json"])
def test_a_truncated_gzip_file_is_refused(tmp_path, name):
    content = (BEIR | {"folds.json": '{"0": ["q1"], "1": ["q2"]}'})[name]
    whole = gzip.compress(content.encode())
    for length in (0, 2, 5, 12, len(whole) // 2, len(whole) - 4, len(whole) - 1):
        lay(tmp_path, BEIR, **{name: None})
        (tmp_path / name).unlink(missing_ok=True)
        (tmp_path / f"{name}.gz").write_bytes(whole[:length])
        with pytest.raises(FormatError, match=rf"{name}\.gz:\d+: .*truncated"):
            read_folder(tmp_path)


def test_a_truncated_gzip_file_is_refused_where_it_ends(tmp_path):
    lines = "".join(f'{{"_id": "d{n}", "text": "{n * 7919 % 1000003}"}}\n' for n in range(20_000))
    whole = gzip.compress(lines.encode())
    lay(tmp_path, BEIR, **{"corpus.jsonl": None})
    (tmp_path / "corpus.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FormatError, match="truncated") as caught:
        read_folder(tmp_path)
    assert 5_000 < caught.value.line < 15_000


@pytest.mark.parametrize("name", [*BEIR, "folds.json"])
def test_a_corrupt_gzip_file_is_refused(tmp_path, name):
    content = (BEIR | {"folds.json": '{"0": ["q1"], "1": ["q2"]}'})[name]
    whole = gzip.compress(content.encode())
    bad_checksum = whole[:-8] + bytes([whole[-8] ^ 1]) + whole[-7:]
    bad_data = whole[:10] + b"\xff\xff" + whole[12:]
    for broken in (content.encode(), bad_checksum, bad_data, whole + b"more"):
        lay(tmp_path, BEIR, **{name: None})
        (tmp_path / name).unlink(missing_ok=True)
        (tmp_path / f"{name}.gz").write_bytes(broken)
        with pytest.raises(FormatError, match=rf"{name}\.gz:\d+: expected a valid gzip file"):
            read_folder(tmp_path)


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl"])
def test_a_missing_file_is_refused_by_name(tmp_path, name):
    lay(tmp_path, BEIR, **{name: None})
    with refused(tmp_path, 0, "expected", name):
        read_folder(tmp_path)


def test_a_missing_folder_is_refused(tmp_path):
    with refused(tmp_path / "nowhere", 0, "no such folder", "expected", "corpus.jsonl"):
        read_folder(tmp_path / "nowhere")
    with refused(one(tmp_path, "file", "x"), 0, "no such folder"):
        open_collection(str(tmp_path / "file"))


@pytest.mark.parametrize("read", [read_topics, read_qrels, read_run, lambda path: list(DocumentFile(path))])
def test_a_missing_single_file_is_refused(tmp_path, read):
    with refused(tmp_path / "no.jsonl", 0, "no such file"):
        read(tmp_path / "no.jsonl")


@pytest.mark.parametrize("name", ["documents.xlsx", "documents", "documents.gz", "documents.jsonl.zip"])
def test_a_table_of_unknown_kind_is_refused(tmp_path, name):
    path = one(tmp_path, name, "x")
    with refused(path, 0, "expected", ".jsonl", ".tsv", ".csv"):
        list(DocumentFile(path))
    with refused(path, 0, "expected", ".jsonl", ".tsv", ".csv"):
        read_queries(path)


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ("corpus.jsonl.gz", ["corpus.jsonl", "corpus.jsonl.gz"]),
        ("corpus.tsv", ["corpus.jsonl", "corpus.tsv"]),
        ("topics.txt", ["queries.jsonl", "topics.txt"]),
        ("qrels/test.txt", ["'test'", "test.tsv", "test.txt"]),
        ("qrels/test.tsv.gz", ["'test'", "test.tsv"]),
    ],
)
def test_two_files_for_one_part_are_refused(tmp_path, second, words):
    lay(tmp_path, BEIR, **{second: "x"})
    with pytest.raises(FormatError, match="expected one") as caught:
        read_folder(tmp_path)
    assert all(word in str(caught.value) for word in words)
    assert str(caught.value).startswith(str(tmp_path))


def test_two_folds_files_are_refused(tmp_path):
    lay(tmp_path, BEIR, **{"folds.json": "{}", "folds-5.json.gz": "{}"})
    with refused(tmp_path, 0, "expected one", "folds.json", "folds-5.json.gz"):
        read_folder(tmp_path)


def test_error_knows_its_parts():
    error = FormatError(Path("a/b.tsv"), 7, "expected more")
    assert (error.path, error.line, error.message) == (Path("a/b.tsv"), 7, "expected more")
    assert str(error) == "a/b.tsv:7: expected more"
    assert isinstance(error, ValueError)


# --- a report that collects

PLANTED = {
    "corpus.jsonl": '{"_id": "d1", "text": "a"}\n{"_id": "d2"\n{"text": "c"}\n{"_id": "d1", "text": "d"}\n'
    '{"_id": "d5", "text": 5}\n[]\n{"_id": "d7", "text": "g"}\n',
    "queries.jsonl": '{"_id": "q1", "text": "a"}\n{"_id": "q1", "text": "b"}\n{"_id": "q3"}\n',
    "qrels/test.tsv": b"query-id\tcorpus-id\tscore\nq1\td1\tx\nq1\tnope\t1\nnope\td1\t1\nq1\nq1\t\xff\t1\n"
    b"q1\td7\t1\nq1\td7\t2\n",
    "qrels/train.txt.gz": "q1 0 d1 1\nq1 0 d7 much\n",
    "folds.json": '{"0": ["q1", "nope"], "1": ["q1"]}',
}
PROBLEMS = {
    ("corpus.jsonl", 2),
    ("corpus.jsonl", 3),
    ("corpus.jsonl", 4),
    ("corpus.jsonl", 5),
    ("corpus.jsonl", 6),
    ("queries.jsonl", 2),
    ("queries.jsonl", 3),
    ("test.tsv", 2),
    ("test.tsv", 3),
    ("test.tsv", 4),
    ("test.tsv", 5),
    ("test.tsv", 6),
    ("test.tsv", 8),
    ("train.txt.gz", 2),
    ("folds.json", 0),
}


def test_all_problems_are_found_in_one_go_and_nothing_is_written(tmp_path):
    lay(tmp_path / "broken", PLANTED)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    found = []
    made = read_folder(tmp_path / "broken", lambda path, line, message: found.append((path.name, line)))
    assert sorted(found) == sorted([*PROBLEMS, ("folds.json", 0)])
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert list(made.docnos) == ["d1", "d7"], "what is sound is there"
    assert made.queries == {"q1": "a"}
    assert made.qrels == {"test": {"q1": {"d7": 1}}, "train": {"q1": {"d1": 1}}}


def test_a_problem_that_ends_one_file_does_not_hide_those_of_the_others(tmp_path):
    lay(
        tmp_path,
        {
            "corpus.tsv": "docno\ttext\ttext\nd1\ta\tb\n",
            "queries.jsonl": BEIR["queries.jsonl"],
            "qrels/test.tsv": "q1\td1\t1.5\n",
            "folds.json": "{",
        },
    )
    (tmp_path / "qrels" / "train.tsv.gz").write_bytes(b"")
    found = []
    read_folder(tmp_path, lambda path, line, message: found.append((path.name, line)))
    assert {("corpus.tsv", 1), ("test.tsv", 1), ("train.tsv.gz", 1), ("folds.json", 0)} <= set(found)
