"""A model inside LangChain and Haystack, each of which is tested where it is installed."""

import asyncio

import pytest

from gr2.data.documents import NAME, DocumentStore
from gr2.integrations.text_search import TextSearch
from gr2.model.gr2 import GR2

QUERIES = ("baka beke", "duku", "baka", "beke duku")


@pytest.fixture(scope="module")
def expected(folder):
    """For each query, docno, score, title and text of the four best documents."""
    model, store = GR2.from_pretrained(folder), DocumentStore(folder / NAME)
    found = {}
    for query in QUERIES:
        results = model.search(query, 4)
        texts = store.get([result.docno for result in results])
        found[query] = [(r.docno, r.score, texts[r.docno].title, texts[r.docno].text) for r in results]
    return found


def test_results_come_with_their_documents(folder, expected):
    search = TextSearch(folder)
    for query in QUERIES:
        found = [(r.docno, r.score, document.title, document.text) for r, document in search(query, 4)]
        assert found == expected[query]
        assert [(r.docno, document.docno) for r, document in search(query, 2)] == [
            (docno, docno) for docno, *_ in expected[query][:2]
        ]


def test_langchain_s_retriever(folder, expected):
    pytest.importorskip("langchain_core", reason="not installed: pip install 'gr2[langchain]'")
    from gr2.integrations.langchain import GR2Retriever

    def shown(documents):
        return [(d.id, d.metadata["score"], d.metadata["title"], d.page_content) for d in documents]

    retriever = GR2Retriever(model=str(folder), k=4)
    assert shown(retriever.invoke(QUERIES[0])) == expected[QUERIES[0]]
    assert shown(asyncio.run(retriever.ainvoke(QUERIES[1]))) == expected[QUERIES[1]]
    chain = retriever | (lambda documents: [d.id for d in documents])
    assert chain.batch(list(QUERIES)) == [[row[0] for row in expected[query]] for query in QUERIES]
    assert len(GR2Retriever(model=str(folder), k=2).invoke("duku")) == 2


def test_haystack_s_component(folder, expected):
    haystack = pytest.importorskip("haystack", reason="not installed: pip install 'gr2[haystack]'")
    from gr2.integrations.haystack import GR2Retriever

    def shown(found):
        return [(d.id, d.score, d.meta["title"], d.content) for d in found["documents"]]

    pipeline = haystack.Pipeline()
    pipeline.add_component("retriever", GR2Retriever(str(folder), top_k=4))
    trusted = ["gr2.integrations.haystack"]
    again = haystack.Pipeline.loads(pipeline.dumps(), allowed_modules=trusted)
    for query in QUERIES:
        for one in (pipeline, again):
            assert shown(one.run({"retriever": {"query": query}})["retriever"]) == expected[query]
    few = again.run({"retriever": {"query": "duku", "top_k": 1}})
    assert shown(few["retriever"]) == expected["duku"][:1]
