"""The controls against hand-made cases, and what training queries leak."""

import random

import pytest

from gr2.data.collection import Collection, Document
from gr2.evaluate.controls import neighbours, popularity
from gr2.evaluate.leaks import Leaks, seen_and_unseen, train_overlap
from gr2.evaluate.similarity import TfIdf, nearest_by_jaccard
from gr2.text import words

WORDS = "apple banana cherry grape lemon mango melon peach pear plum".split()


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
    assert leaks.train_overlap == {"q1": "all", "q2": "none", "q3": "some"}
    assert seen_and_unseen(leaks.train_overlap) == {
        "all": {"q1", "q2", "q3"},
        "seen": {"q1", "q3"},
        "unseen": {"q2"},
    }
    controls = {e.name: e.values["Hits@1"] for e in leaks.controls(("Hits@1",))}
    assert controls["popularity"] == {"q1": 1.0, "q2": 0.0, "q3": 1.0}
    assert controls["neighbours"]["q1"] == 1.0


def test_groups_appear_only_when_both_exist():
    assert list(seen_and_unseen(train_overlap({}, {"q": {"d": 1}}))) == ["all"]
    assert list(seen_and_unseen(train_overlap({"t": {"d": 1}}, {"q": {"d": 1}}))) == ["all"]
