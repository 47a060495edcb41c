"""BM25 against the formula written out."""

import math
import random

import numpy as np
import pytest

from gr2.bm25 import BM25, BM25Config
from gr2.data.collection import Document
from gr2.data.runs import Run

WORDS = "apple banana cherry grape lemon mango melon peach pear plum".split()


def random_documents(count: int, seed: int = 0) -> list[Document]:
    generator = random.Random(seed)
    return [
        Document(f"d{i}", "", " ".join(generator.choices(WORDS, k=generator.randint(3, 30))))
        for i in range(count)
    ]


def lucene_bm25(query: str, documents: list[Document], k1: float, b: float) -> dict[str, float]:
    """BM25 as Lucene has it, from the formula: idf · tf / (tf + k1 · (1 − b + b · length / average))."""
    texts = {document.docno: document.contents.split() for document in documents}
    average = sum(map(len, texts.values())) / len(texts)
    scores = dict.fromkeys(texts, 0.0)
    for term in query.split():
        holding = sum(term in text for text in texts.values())
        idf = math.log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
        for docno, text in texts.items():
            tf = text.count(term)
            scores[docno] += idf * tf / (tf + k1 * (1 - b + b * len(text) / average))
    return {docno: score for docno, score in scores.items() if score > 0}


@pytest.mark.parametrize(("k1", "b"), [(0.9, 0.4), (1.5, 0.75)])
def test_bm25_is_lucenes_formula(k1, b):
    documents = random_documents(50)
    run = BM25.index(documents, BM25Config(k1=k1, b=b, language="none")).search(
        {"q": "apple plum melon"}, k=50
    )
    wanted = lucene_bm25("apple plum melon", documents, k1, b)
    assert dict(run.rankings["q"]) == pytest.approx(wanted, abs=1e-5)


def test_a_saved_index_answers_the_same_and_a_flipped_byte_is_refused(tmp_path):
    index = BM25.index(random_documents(30), BM25Config(k1=1.2, b=0.3))
    queries = {"q": "apples", "none": "zebra", "empty": ""}
    index.save(tmp_path / "index")
    loaded = BM25.load(tmp_path / "index")
    assert loaded.config == index.config
    assert loaded.search(queries) == index.search(queries)
    file = next(tmp_path.glob("index/*.npy"))
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(bytes(content))
    with pytest.raises(ValueError, match=file.name):
        BM25.load(tmp_path / "index")


@pytest.mark.parametrize("method", ["lucene", "bm25+"])
def test_postings_are_read_from_the_disk_and_score_the_same(method, tmp_path):
    index = BM25.index(random_documents(30), BM25Config(method=method))
    index.save(tmp_path / "index")
    loaded = BM25.load(tmp_path / "index")
    for name in ("data", "indices", "indptr"):
        array = loaded._retriever.scores[name]
        assert type(array) is np.ndarray and isinstance(array.base, np.memmap), name
    texts = ["apple plum", "melon", "zebra", ""]
    np.testing.assert_array_equal(loaded.scores(texts), index.scores(texts))
    assert loaded.nbytes == index.nbytes and (loaded.weights() != index.weights()).nnz == 0


def test_ties_at_the_cut_follow_the_tie_rule_and_fewer_results_are_a_prefix_of_more():
    documents = [Document(f"d{i:02}", "", "apple plum") for i in range(40)] + random_documents(40, seed=2)
    documents = [Document(f"{i:02}{d.docno}", "", d.text) for i, d in enumerate(documents)]
    index = BM25.index(documents, BM25Config(language="none"))
    whole = index.search({"q": "apple"}, k=100)
    assert whole == Run.from_dict(whole.to_dict(), "bm25")
    for k in (1, 3, 17, 40):
        assert index.search({"q": "apple"}, k=k).docnos("q") == whole.docnos("q")[:k]


def test_queries_that_match_nothing_return_nothing():
    index = BM25.index(random_documents(5))
    run = index.search({"none": "zebra", "empty": "", "stop words": "the of and"}, k=3)
    assert all(run.docnos(qid) == () for qid in ("none", "empty", "stop words"))
    assert index.search({}).rankings == {}


def test_bm25_with_one_document_more_k_than_documents_and_bad_k():
    index = BM25.index([Document("only", "Apple", "")])
    assert index.search({"q": "apple"}, k=100).docnos("q") == ("only",)
    with pytest.raises(ValueError, match="at least 1"):
        index.search({"q": "apple"}, k=0)
    with pytest.raises(ValueError, match="at least one document"):
        BM25.index([])
