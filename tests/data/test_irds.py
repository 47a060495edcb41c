"""Collections by their ir_datasets id, from data sets that each test registers itself."""

from typing import NamedTuple

import pytest
from ir_datasets.formats import GenericDoc, GenericQuery, TrecQuery

from gr2.data.collection import Document
from gr2.data.formats import open_collection, read_folder, write_folder


class WebPage(NamedTuple):
    """As MS MARCO's documents."""

    doc_id: str
    url: str
    title: str
    body: str

    def default_text(self):
        return f"{self.title} {self.body}"


class Capture(NamedTuple):
    """As GOV2's and ClueWeb's: the body is bytes and the data set knows what the text is."""

    doc_id: str
    url: str
    body: bytes

    def default_text(self):
        return self.body.decode().replace("<p>", "").strip()


class Article(NamedTuple):
    """Title and abstract."""

    doc_id: str
    title: str
    abstract: str

    def default_text(self):
        return f"{self.title} {self.abstract}"


class WebQuery(NamedTuple):
    """As TREC Web's: a query and what was meant by it."""

    query_id: str
    query: str
    description: str


PAGES = [
    WebPage("d1", "http://x/1", "Cats", "purr"),
    WebPage("d2", "http://x/2", "", "bark"),
    WebPage("d3", "http://x/3", "Cows", ""),
]
QUERIES = [GenericQuery("1", "purring animal"), GenericQuery("2", "loud animal")]
QRELS = [("1", "d1", 2), ("1", "d2", -2), ("2", "d2", 1)]


def test_an_id_with_judgements_of_its_own_is_the_test_split(register):
    register("gr2-pets/web", docs=PAGES, queries=QUERIES, qrels=QRELS)
    made = open_collection("ir:gr2-pets/web")
    assert list(made.documents) == [
        Document("d1", "Cats", "purr", "http://x/1"),
        Document("d2", "", "bark", "http://x/2"),
        Document("d3", "Cows", "", "http://x/3"),
    ]
    assert made.queries == {"1": "purring animal", "2": "loud animal"}
    assert made.qrels == {"test": {"1": {"d1": 2, "d2": 0}, "2": {"d2": 1}}}
    assert made.grades == 2
    assert made.name == "gr2-pets-web"
    assert list(made.docnos) == ["d1", "d2", "d3"]


@pytest.mark.parametrize(
    ("row", "document"),
    [
        (GenericDoc("d", "only text"), Document("d", "", "only text")),
        (Capture("d", "http://x", b"<p> all the text "), Document("d", "", "all the text", "http://x")),
        (Article("d", "Title", "what it says"), Document("d", "Title", "what it says")),
        (WebPage("d", "", "", ""), Document("d")),
    ],
)
def test_every_kind_of_document_gives_its_text(register, row, document):
    register("gr2-kinds", docs=[row])
    assert list(open_collection("ir:gr2-kinds").documents) == [document]


@pytest.mark.parametrize(
    "row",
    [
        GenericQuery("7", "the words"),
        TrecQuery("7", "the words", "a sentence about them", "a paragraph about them"),
        WebQuery("7", "the words", "a sentence about them"),
    ],
)
def test_every_kind_of_query_gives_what_a_user_types(register, row):
    register("gr2-kinds", docs=PAGES, queries=[row], qrels=[("7", "d1", 1)])
    assert open_collection("ir:gr2-kinds").queries == {"7": "the words"}


def test_an_id_brings_the_splits_below_it(register):
    register("gr2-splits", docs=PAGES)
    register("gr2-splits/train", docs=PAGES, queries=QUERIES[:1], qrels=QRELS[:2])
    register("gr2-splits/dev", docs=PAGES, queries=QUERIES)
    register("gr2-splits/test", docs=PAGES, queries=QUERIES[1:], qrels=QRELS[2:])
    made = open_collection("ir:gr2-splits")
    assert made.qrels == {"train": {"1": {"d1": 2, "d2": 0}}, "test": {"2": {"d2": 1}}}
    assert made.queries == {"1": "purring animal", "2": "loud animal"}


def test_documents_are_streamed_anew_each_time(register):
    passes = []

    def rows():
        passes.append(1)
        return iter(PAGES)

    register("gr2-stream", docs=rows, queries=QUERIES, qrels=QRELS)
    made = open_collection("ir:gr2-stream")
    assert passes == [], "nothing is read before it is asked for"
    assert len(list(made.documents)) == len(list(made.documents)) == 3
    assert len(passes) == 2


def test_what_comes_from_an_id_can_be_written_as_a_folder(register, tmp_path):
    register("gr2-pets", docs=PAGES, queries=QUERIES, qrels=QRELS)
    made = open_collection("ir:gr2-pets")
    write_folder(made, tmp_path / "pets")
    assert read_folder(tmp_path / "pets").fingerprint == made.fingerprint


@pytest.mark.parametrize("id", ["gr2-nowhere", "", "gr2/../x", "beir/"])
def test_an_unknown_id_is_a_sentence(id):
    with pytest.raises(ValueError, match=f"no ir_datasets id is called '{id}'.*looks like"):
        open_collection(f"ir:{id}")


def test_an_id_without_documents_is_a_sentence(register):
    register("gr2-bare", queries=QUERIES, qrels=QRELS)
    with pytest.raises(ValueError, match="'gr2-bare' has no documents"):
        open_collection("ir:gr2-bare")


def failing(rows, error):
    """A reader that breaks off after these rows."""

    def read():
        yield from rows
        raise error

    return read


@pytest.mark.parametrize("error", [OSError("connection refused"), RuntimeError("connection refused")])
def test_documents_that_cannot_be_fetched_are_a_sentence(register, error):
    register("gr2-far", docs=failing(PAGES[:1], error), queries=QUERIES, qrels=QRELS)
    made = open_collection("ir:gr2-far")
    with pytest.raises(ValueError, match="could not read 'gr2-far': connection refused"):
        _ = made.fingerprint


@pytest.mark.parametrize("part", ["queries", "qrels"])
def test_queries_and_judgements_that_cannot_be_fetched_are_a_sentence(register, part):
    broken = {part: failing([], OSError("connection refused"))}
    register("gr2-far", **{"docs": PAGES, "queries": QUERIES, "qrels": QRELS} | broken)
    with pytest.raises(ValueError, match="could not read 'gr2-far': connection refused"):
        open_collection("ir:gr2-far")


def test_two_documents_with_one_docno_are_refused(register):
    register("gr2-twice", docs=[*PAGES, PAGES[0]], queries=QUERIES, qrels=QRELS)
    with pytest.raises(ValueError, match="'d1'"):
        _ = open_collection("ir:gr2-twice").docnos
