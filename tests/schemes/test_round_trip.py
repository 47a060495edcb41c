"""Proposals in the order of likelihood and round trip, and questions that find their document."""

import math

import pytest

from gr2.bm25 import BM25
from gr2.data.collection import Collection, Document
from gr2.schemes.fusion.pairs import Pairs, pairs_of
from gr2.schemes.round_trip import NOT_FOUND, by_round_trip, compare_orders, found_first, ranks_of, sampled
from gr2.schemes.self_retrieval import SETTINGS

DOCUMENTS = (Document("cats", "", "cats purr softly"), Document("dogs", "", "dogs bark and dogs purr"))
INDEX = BM25.index(DOCUMENTS, SETTINGS)
PROPOSALS = {"cats": [("dogs", -0.1), ("purr", -0.2), ("cats purr", -0.9)], "dogs": [("bark", -1.0)]}


def ordered(proposals, weight):
    return by_round_trip(proposals, ranks_of(proposals, INDEX), weight)


def test_a_proposal_is_moved_by_the_rank_of_its_document():
    found = ordered(PROPOSALS, 2.0)
    assert [text for text, _ in found["cats"]] == ["purr", "cats purr", "dogs"]
    scores = dict(found["cats"])
    assert scores["purr"] == -0.2 and scores["cats purr"] == -0.9
    assert scores["dogs"] == pytest.approx(-0.1 + 2 * math.log(NOT_FOUND))
    assert found["dogs"] == [("bark", -1.0)]


def test_a_rank_below_the_first_costs_its_logarithm():
    found = ordered({"dogs": [("purr", 0.0)]}, 0.5)
    assert found["dogs"] == [("purr", pytest.approx(0.5 * math.log(1 / 2)))]


def test_without_weight_the_order_is_that_of_likelihood():
    assert ordered(PROPOSALS, 0.0) == PROPOSALS


def test_both_orders_are_compared_by_their_first_proposals():
    """By likelihood both documents have `dogs`, which finds one; with the round trip each finds its own."""
    proposals = {"cats": [("dogs", -0.1), ("cats", -0.2)], "dogs": [("dogs", -0.3), ("purr", -0.4)]}
    ranks = ranks_of(proposals, INDEX)
    likelihood, both = compare_orders(proposals, ranks, 2.0)
    assert (likelihood.round_trip, likelihood.documents) == (0.0, 2) and both.round_trip == 2.0
    assert (likelihood.unique, likelihood.mrr) == (0.0, 0.5)
    assert (both.unique, both.mrr) == (1.0, 1.0)
    assert [one.round_trip for one in compare_orders(proposals, ranks, 0.0)] == [0.0, 1.0]
    some = compare_orders(proposals, {"cats": ranks["cats"]}, 2.0)
    assert [one.documents for one in some] == [1, 1] and some[0].mrr == 0.0


def test_a_sample_of_proposals_is_spread_over_the_docnos():
    proposals = {f"d{i:02}": [("x", 0.0)] for i in reversed(range(20))}
    assert sorted(sampled(proposals, 3)) == ["d00", "d09", "d19"]
    assert sampled(proposals, 50) == proposals


def test_questions_that_find_their_document_first():
    assert found_first(PROPOSALS, INDEX, 1) == {"cats": ["purr"], "dogs": ["bark"]}
    assert found_first(PROPOSALS, INDEX, 5)["cats"] == ["purr", "cats purr"]


NAMES = ("cats", "dogs", "owls", "ants")


def with_wide_queries() -> Collection:
    """Queries with one document each, one with four, and one whose document has none of its words."""
    documents = tuple(Document(name, name, f"animals called {name}") for name in NAMES)
    queries = {f"q{i}": f"{NAMES[i % 4]} {i}" for i in range(201)} | {"wide": "animals", "odd": "cats purr"}
    qrels = {f"q{i}": {NAMES[i % 4]: 1} for i in range(201)}
    qrels |= {"wide": dict.fromkeys(NAMES, 1), "odd": {"dogs": 1}}
    return Collection(name="c", documents=documents, queries=queries, qrels={"train": qrels})


def test_queries_that_many_documents_answer_can_be_left_out():
    data = with_wide_queries()
    assert "animals" in pairs_of(data).queries and len(pairs_of(data)) == 206
    assert "animals" not in pairs_of(data, most_answers=3).queries
    found = pairs_of(data, most_answers=4)
    assert found.queries.count("animals") == 4 and len(found) == 205


def test_queries_that_do_not_find_their_document_are_left_out_with_them():
    data = with_wide_queries()
    assert ("dogs", "cats purr") in told(pairs_of(data))
    assert ("dogs", "cats purr") not in told(pairs_of(data, most_answers=1))
    assert told(pairs_of(data, most_answers=1)) == {(NAMES[i % 4], f"{NAMES[i % 4]} {i}") for i in range(201)}


def told(found: Pairs) -> set[tuple[str, str]]:
    return set(zip(found.docnos, found.queries, strict=True))


def test_own_questions_join_the_pairs_once():
    data = Collection(name="c", documents=DOCUMENTS, queries={}, qrels={})
    pairs = Pairs(["cats"], ["cats purr softly"], ["who purrs"], "queries")
    found = pairs.with_questions(data, {"dogs": ["who barks"], "cats": ["who purrs", "what is soft"]})
    assert list(zip(found.docnos, found.queries, strict=True)) == [
        ("cats", "who purrs"),
        ("cats", "what is soft"),
        ("dogs", "who barks"),
    ]
    assert found.documents[2] == "dogs bark and dogs purr" and found.targets == "queries and own questions"
    assert pairs.with_questions(data, {}) is pairs
