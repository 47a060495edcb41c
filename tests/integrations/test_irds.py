"""pydocs, and any other collection, as data sets of ir_datasets."""

import pytest

ir_datasets = pytest.importorskip("ir_datasets", reason="not installed: pip install 'gr2[data]'")

from helpers import tiny  # noqa: E402

from gr2.data.formats import open_collection  # noqa: E402
from gr2.data.pydocs import judgements  # noqa: E402
from gr2.integrations import irds  # noqa: E402


@pytest.fixture
def registered(monkeypatch):
    """A collection of one's own, for the length of one test: how often it was read."""
    known = dict(ir_datasets.registry._registered)
    monkeypatch.setattr(ir_datasets.registry, "_registered", known)
    times = []

    def shop():
        times.append(1)
        return tiny.graded()

    irds.register("gr2/shop", shop, ("train", "dev", "test"))
    return times


def test_a_collection_is_read_once_it_is_used_and_comes_back_as_it_was(registered):
    assert not registered
    found, whole = open_collection("ir:gr2/shop"), tiny.graded()
    assert tuple(found.documents) == tuple(whole.documents)
    assert found.qrels == whole.qrels and found.fingerprint == whole.fingerprint
    assert len(registered) == 1


def test_documents_are_looked_up(registered):
    whole = {document.docno: document for document in tiny.graded().documents}
    found, (first, *_, last) = ir_datasets.load("gr2/shop/dev"), whole
    store = found.docs_store()
    assert list(store.get_many([last, "no such document", first])) == [last, first]
    assert store.get(last).default_text() == whole[last].contents
    assert found.docs_count() == len(whole) and not ir_datasets.load("gr2/shop").has_queries()


def test_queries_and_judgements_are_looked_up(registered):
    whole, found = tiny.graded(), ir_datasets.load("gr2/shop/dev")
    qid, grades = next(iter(whole.split("dev").items()))
    assert found.queries.lookup(qid).text == whole.queries[qid]
    assert found.qrels.asdict()[qid] == grades
    assert found.qrels.defs == {0: "not relevant", 1: "grade 1 of 3", 2: "grade 2 of 3", 3: "grade 3 of 3"}


def test_pydocs_is_registered_with_its_splits():
    documents = {document.doc_id for document in ir_datasets.load("gr2/pydocs").docs_iter()}
    assert {"csv.reader", "bisect.bisect_left"} <= documents
    for split in ("train", "dev", "test"):
        found = ir_datasets.load(f"gr2/pydocs/{split}")
        wanted = {qid: (text, grades) for qid, name, text, grades in judgements() if name == split}
        judged = {(row.query_id, row.doc_id): row.relevance for row in found.qrels_iter()}
        assert judged == {
            (qid, docno): grade
            for qid, (_, grades) in wanted.items()
            for docno, grade in grades.items()
            if docno in documents
        }
        assert {query.query_id: query.text for query in found.queries_iter()} == {
            qid: wanted[qid][0] for qid, _ in judged
        }
    assert ir_datasets.load("gr2/pydocs/sentences").has_qrels()


def test_pyterrier_knows_them(registered):
    pt = pytest.importorskip("pyterrier", reason="not installed: pip install 'gr2[terrier]'")
    dataset, whole = pt.get_dataset("irds:gr2/shop/test"), tiny.graded().split("test")
    assert set(dataset.get_topics().qid) == set(whole)
    corpus = [row["docno"] for row in dataset.get_corpus_iter(verbose=False)]
    assert corpus == list(tiny.graded().docnos)
    assert len(dataset.get_qrels()) == sum(map(len, whole.values()))
    docno = next(iter(tiny.graded().docnos))
    found = pt.text.get_text(dataset, "text").transform(pt.new.ranked_documents([[1]], docno=[[docno]]))
    assert found.text.tolist() == [next(iter(tiny.graded().documents)).text]
