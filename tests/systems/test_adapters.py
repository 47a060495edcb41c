"""A model inside other toolkits: PyTerrier's operators and experiment, and a retriever of texts."""

import builtins
import random

import pandas as pd
import pytest
from helpers import tiny

from gr2.data.collection import Collection, Document
from gr2.data.documents import NAME, DocumentStore
from gr2.model.gr2 import GR2
from gr2.schemes.config import SchemeConfig
from gr2.schemes.registry import SchemeContext, build
from gr2.systems.adapters import Retriever, terrier
from gr2.training.fit import fit

TOPICS = pd.DataFrame([["1", "baka beke"], ["2", "duku"]], columns=["qid", "query"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    here, draw = tmp_path_factory.mktemp("model"), random.Random(2)
    backbone = str(tiny.save_checkpoint(here / "checkpoint", "encoder"))
    texts = [" ".join(draw.sample(tiny.WORDS, 6)) for _ in range(12)]
    documents = tuple(Document(f"d{n}", text[:9], text) for n, text in enumerate(texts))
    data = Collection(name="c", documents=documents, queries={}, qrels={})
    docids = build(
        SchemeContext(
            collection=data, backbone=backbone, folder=here, config=SchemeConfig(scheme="title", words=12)
        )
    )
    fit(data, docids, backbone, here / "model", tiny.training({"schedule.steps": 2, "batches.texts": 4}))
    return here / "model"


def test_a_terrier_transformer_ranks_as_the_model_does(folder):
    pytest.importorskip("pyterrier")
    model = GR2.from_pretrained(folder)
    found = terrier(model, k=5)(TOPICS)
    assert list(found.columns) == ["qid", "query", "docno", "score", "rank"]
    for qid, query in TOPICS.itertuples(index=False):
        rows = found[found.qid == qid]
        assert list(rows.docno) == [result.docno for result in model.search(query, k=5)]
        assert list(rows["rank"]) == list(range(5)) and set(rows["query"]) == {query}


def test_it_takes_part_in_terrier_s_operators_and_experiments(folder):
    pt = pytest.importorskip("pyterrier")
    retriever = terrier(GR2.from_pretrained(folder), k=5)
    assert len((retriever % 2)(TOPICS)) == 4
    assert "12 documents" in repr(retriever)
    best = retriever(TOPICS).docno.iloc[0]
    qrels = pd.DataFrame([["1", best, 1]], columns=["qid", "docno", "label"])
    table = pt.Experiment([retriever], TOPICS, qrels, ["recip_rank"])
    assert table["recip_rank"].iloc[0] == 1.0


def test_what_a_topic_carries_is_carried_on(folder):
    pytest.importorskip("pyterrier")
    found = terrier(GR2.from_pretrained(folder), k=2)(TOPICS.assign(query_0=["one", "two"]))
    assert found.query_0.tolist() == ["one", "one", "two", "two"]


def test_a_frame_without_queries_is_refused(folder):
    pytest.importorskip("pyterrier")
    with pytest.raises(Exception, match="query"):
        terrier(GR2.from_pretrained(folder))(TOPICS[["qid"]])


def test_without_terrier_it_says_what_to_install(folder, monkeypatch):
    usual = builtins.__import__

    def missing(name, *rest, **more):
        if name == "pyterrier":
            raise ImportError(name)
        return usual(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ValueError, match=r"gr2\[terrier\]"):
        terrier(GR2.from_pretrained(folder))


def test_a_retriever_returns_texts_with_what_is_known_of_them(folder):
    model, store = GR2.from_pretrained(folder), DocumentStore(folder / NAME)
    found = Retriever(model, store, k=3).invoke("baka beke")
    wanted = model.search("baka beke", 3)
    assert [passage.metadata["docno"] for passage in found] == [result.docno for result in wanted]
    assert [passage.metadata["docid"] for passage in found] == [result.docid for result in wanted]
    for passage in found:
        assert (
            passage.page_content == store.get([passage.metadata["docno"]])[passage.metadata["docno"]].contents
        )
