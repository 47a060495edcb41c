"""What to judge next: queries on which systems disagree, by an overlap that a longer computation confirms."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gr2.judge.next_queries import DEPTH, PERSISTENCE, disagreement, next_queries, overlap

LISTS = st.lists(st.sampled_from("abcdefghijklmno"), unique=True, max_size=12)


def slow_overlap(one, two):
    """The definition, term by term."""
    top = weights = 0.0
    for size in range(1, DEPTH + 1):
        left, right = one[:size], two[:size]
        if size > max(len(one), len(two)):
            break
        common = sum(docno in right for docno in left)
        weight = PERSISTENCE ** (size - 1)
        top += weight * common / max(len(left), len(right))
        weights += weight
    return top / weights if weights else 1.0


@given(LISTS, LISTS)
def test_overlap_is_its_definition_and_does_not_depend_on_the_order_of_systems(one, two):
    assert overlap(one, two) == pytest.approx(slow_overlap(one, two))
    assert overlap(one, two) == overlap(two, one)
    assert 0 <= overlap(one, two) <= 1


@given(LISTS)
def test_a_list_overlaps_wholly_with_itself_and_not_at_all_with_other_documents(ranked):
    assert overlap(ranked, ranked) == pytest.approx(1)
    assert overlap(ranked, [docno.upper() for docno in ranked]) == (0 if ranked else 1)


def test_a_difference_at_the_top_counts_more_than_the_same_one_below():
    same = list("abcdefghij")
    top, bottom = ["x", *same[1:]], [*same[:9], "x"]
    assert overlap(same, top) < overlap(same, bottom) < 1


def test_what_lies_below_the_depth_is_not_compared():
    assert overlap(list("abcdefghijk"), list("abcdefghijx")) == pytest.approx(1)


def test_what_one_system_alone_found_is_disagreement():
    assert overlap("ab", "") == 0
    assert 0 < overlap("ab", "a") < 1


@given(st.lists(LISTS, min_size=2, max_size=4))
def test_disagreement_is_the_mean_over_every_two_systems(lists):
    pairs = list(combinations(lists, 2))
    assert disagreement(lists) == pytest.approx(1 - sum(slow_overlap(*pair) for pair in pairs) / len(pairs))


def test_unjudged_queries_come_first_then_those_with_most_disagreement_then_the_order_of_the_log():
    words = {"1": "ab", "2": "ab", "3": "ab", "4": "ab"}
    vectors = {"1": "ab", "2": "cd", "3": "ac", "4": "cd"}
    found = next_queries([words, vectors], ["4", "3", "1", "2"], judged={"4"})
    assert [one.qid for one in found] == ["2", "3", "1", "4"]
    assert [one.judged for one in found] == [False, False, False, True]
    assert found[0].disagreement == 1 and found[2].disagreement == pytest.approx(0)
    ties = next_queries([words, {**words, "1": "cd", "3": "cd"}], ["3", "1", "4", "2"])
    assert [one.qid for one in ties] == ["3", "1", "4", "2"]


def test_a_query_that_a_system_did_not_answer_has_an_empty_list():
    [one] = next_queries([{"1": "ab"}, {}], ["1"])
    assert one.disagreement == 1


def test_one_system_cannot_disagree():
    with pytest.raises(ValueError, match="at least two systems, found 1"):
        next_queries([{"1": "ab"}], ["1"])
