"""BM25 against the formula written out, the controls against hand-made cases, and what they leak."""

import math
import random

import pytest

from gr2.baselines.controls import neighbours, popularity
from gr2.baselines.sparse import BM25, BM25Config
from gr2.data import Collection, Document
from gr2.leaks import Leaks, memory, seen_and_unseen
from gr2.runs import Run
from gr2.similarity import TfIdf, nearest_by_jaccard, words

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


def test_popularity_is_one_list_by_summed_grades():
    train = {"a": {"x": 1, "y": 3, "never": 0}, "b": {"x": 1}, "c": {"x": 2, "z": 1}}
    run = popularity(train, {"q1": "", "q2": ""}, k=2)
    assert run.docnos("q1") == run.docnos("q2") == ("x", "y")
    assert "never" not in popularity(train, {"q": ""}).docnos("q")


def test_neighbours_copy_the_judgements_of_similar_training_queries():
    train = {"a": {"cat": 3, "pet": 1}, "b": {"dog": 2}, "c": {"car": 1}}
    texts = {"a": "why do cats purr", "b": "why do dogs bark", "c": "engine oil"}
    run = neighbours(train, texts, {"q": "do cats purr", "far": "quantum"})
    assert run.docnos("q")[0] == "cat"
    assert set(run.docnos("q")) == {"cat", "pet", "dog"}
    assert run.docnos("far") == ()


def test_jaccard_finds_the_brute_force_nearest():
    generator = random.Random(1)
    texts, others = (
        [" ".join(generator.sample(WORDS, generator.randint(1, 6))) for _ in range(n)] for n in (20, 30)
    )
    for text, (index, similarity) in zip(texts, nearest_by_jaccard(texts, others), strict=True):
        mine = set(words(text))
        all_of_them = [len(mine & set(words(o))) / len(mine | set(words(o))) for o in others]
        assert similarity == pytest.approx(max(all_of_them))
        assert all_of_them[index] == pytest.approx(similarity)


def test_similarity_of_nothing_is_nothing():
    assert nearest_by_jaccard(["a b"], []) == [(-1, 0.0)]
    assert nearest_by_jaccard(["", "..."], ["a"]) == [(0, 0.0), (0, 0.0)]
    assert TfIdf(["cats", ""]).cosines("").tolist() == [0.0, 0.0]
    assert TfIdf(["cats", ""]).cosines("cat").tolist() == pytest.approx([1.0, 0.0])


def leaky() -> Collection:
    return Collection(
        name="leaky",
        documents=tuple(Document(d, "", d) for d in ("x", "y", "z")),
        queries={
            "t1": "aspirin prevents heart attack",
            "t2": "vitamin c cures colds",
            "q1": "aspirin prevents heart attacks",
            "q2": "coffee keeps people awake",
            "q3": "tea",
        },
        qrels={
            "train": {"t1": {"x": 1}, "t2": {"y": 0}},
            "test": {"q1": {"x": 1}, "q2": {"y": 1}, "q3": {"x": 1, "z": 1}},
        },
    )


def test_the_leak_report_finds_twins_and_what_training_has_seen():
    leaks = Leaks(leaky())
    assert leaks.near_twins == {"q1": "t1"}
    assert leaks.memory == {"q1": "all", "q2": "none", "q3": "some"}
    assert seen_and_unseen(leaks.memory) == {
        "all": {"q1", "q2", "q3"},
        "seen": {"q1", "q3"},
        "unseen": {"q2"},
    }
    controls = {e.name: e.values["Hits@1"] for e in leaks.controls(("Hits@1",))}
    assert controls["popularity"] == {"q1": 1.0, "q2": 0.0, "q3": 1.0}
    assert controls["neighbours"]["q1"] == 1.0


def test_groups_appear_only_when_both_exist():
    assert list(seen_and_unseen(memory({}, {"q": {"d": 1}}))) == ["all"]
    assert list(seen_and_unseen(memory({"t": {"d": 1}}, {"q": {"d": 1}}))) == ["all"]
