"""Significance: against scipy and exhaustive enumeration, and tables that say what was found."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from gr2.evaluate.measures import Convention, Evaluation
from gr2.evaluate.significance import compare, holm, permutation_p, t_test_p
from gr2.evaluate.tables import comparison_table, render

VALUES = st.lists(st.integers(-5, 5), min_size=2, max_size=9)


def evaluation(name: str, values: list[float], measure: str = "P@20") -> Evaluation:
    return Evaluation(name, {measure: {f"q{i:03}": value for i, value in enumerate(values)}})


@given(VALUES, VALUES)
def test_t_test_equals_scipys_paired_test(left, right):
    size = min(len(left), len(right))
    delta = np.array(left[:size], float) - np.array(right[:size], float)
    if delta.std() > 0:
        assert t_test_p(delta) == pytest.approx(stats.ttest_rel(left[:size], right[:size]).pvalue)


@settings(deadline=None, max_examples=30)
@given(VALUES)
def test_permutation_test_agrees_with_all_sign_flips(values):
    delta = np.array(values, float) / 5
    sums = [abs(np.dot(signs, delta)) for signs in itertools.product((-1, 1), repeat=len(delta))]
    exact = np.mean([total >= abs(delta.sum()) - 1e-9 for total in sums])
    assert permutation_p(delta, 20_000, seed=1) == pytest.approx(exact, abs=0.02)


def test_permutation_test_is_seeded():
    delta = np.random.default_rng(0).normal(0.1, 1, 50)
    assert permutation_p(delta, 999, seed=3) == permutation_p(delta, 999, seed=3)
    assert permutation_p(delta, 999, seed=3) != permutation_p(delta, 999, seed=4)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_never_lowers_a_p_value_and_keeps_their_order(p_values):
    corrected = holm(p_values)
    assert all(c >= p for c, p in zip(corrected, p_values, strict=True))
    assert all(c <= min(1.0, p * len(p_values)) + 1e-12 for c, p in zip(corrected, p_values, strict=True))
    order = np.argsort(p_values, kind="stable")
    assert all(corrected[a] <= corrected[b] for a, b in itertools.pairwise(order))


@pytest.mark.parametrize(
    ("p_values", "corrected"),
    [
        # Holm (1979): the smallest times m, the next times m − 1, …; none below the one before it; at most 1.
        ([0.01, 0.02, 0.03, 0.04], [0.04, 0.06, 0.06, 0.06]),
        ([0.04, 0.001, 0.02], [0.04, 0.003, 0.04]),
        ([0.5, 0.4, 0.3], [0.9, 0.9, 0.9]),
        ([0.9, 0.8], [1.0, 1.0]),
        ([0.02], [0.02]),
        ([], []),
    ],
)
def test_holm_by_hand(p_values, corrected):
    assert holm(p_values) == pytest.approx(corrected)


@given(st.lists(st.floats(0, 1), max_size=7))
def test_holm_is_its_published_formula(p_values):
    """p̃_(i) = max over j ≤ i of min(1, (m − j + 1) · p_(j)), for the values in ascending order."""
    ascending, size = sorted(p_values), len(p_values)
    formula = [max(min(1.0, (size - j) * ascending[j]) for j in range(i + 1)) for i in range(size)]
    by_value = dict(zip(ascending, formula, strict=True))  # of equal values the last, which is the largest
    assert sorted(holm(p_values)) == pytest.approx(formula)
    assert all(found <= by_value[p] + 1e-12 for found, p in zip(holm(p_values), p_values, strict=True))


def test_equal_systems_differ_in_nothing():
    one, two = evaluation("one", [0.1, 0.5, 0.9]), evaluation("two", [0.1, 0.5, 0.9])
    (row,) = compare([one, two]).differences
    assert (row.mean, row.t, row.permutation) == (0.0, 1.0, 1.0)


def test_a_difference_without_variance_gets_no_letter_from_the_t_test():
    one, two = evaluation("one", [1.0, 1.0]), evaluation("two", [0.0, 0.0])
    assert compare([one, two]).beaten("one", "P@20") == ""


def test_letters_name_the_systems_that_are_beaten():
    noise = np.random.default_rng(0).normal(0, 0.01, 60)
    good = evaluation("good", list(0.8 + noise))
    poor = evaluation("poor", list(0.2 - noise))
    same = evaluation("same", list(0.8 + noise[::-1]))
    comparison = compare([poor, good, same])
    assert comparison.beaten("good", "P@20") == "a"
    assert comparison.beaten("same", "P@20") == "a"
    assert comparison.beaten("poor", "P@20") == ""
    assert comparison_table(comparison).splitlines()[2].split() == ["b", "good", f"{0.8 + noise.mean():.4f}a"]
    assert "<sup>a</sup>" in comparison_table(comparison, "markdown")


def test_with_a_baseline_only_it_is_compared():
    systems = [evaluation(name, list(np.random.default_rng(i).random(9))) for i, name in enumerate("xyz")]
    assert {(d.system, d.other) for d in compare(systems, baseline="y").differences} == {
        ("x", "y"),
        ("y", "z"),
    }
    assert len(compare(systems).differences) == 3


def test_holm_is_taken_over_all_pairs_of_a_measure():
    systems = [evaluation(name, list(np.random.default_rng(i).random(20))) for i, name in enumerate("xyz")]
    rows = compare(systems).differences
    assert [row.t_holm for row in rows] == holm([row.t for row in rows]) != [row.t for row in rows]
    smallest = min(rows, key=lambda row: row.t)
    assert smallest.t_holm == pytest.approx(min(1.0, 3 * smallest.t)), "three pairs"
    assert [r.permutation_holm for r in rows] == holm([r.permutation for r in rows])


def test_what_cannot_be_compared_is_refused():
    one = evaluation("one", [0.1, 0.2])
    with pytest.raises(ValueError, match="same queries"):
        compare([one, evaluation("two", [0.1, 0.2, 0.3])])
    with pytest.raises(ValueError, match="same queries in the same way"):
        compare([one, Evaluation("two", dict(one.values), Convention(gain="linear"))])
    with pytest.raises(ValueError, match="different names"):
        compare([one, one])
    with pytest.raises(ValueError, match="baseline"):
        compare([one], baseline="none")


def test_json_holds_every_query_and_p_value():
    content = json.loads(
        json.dumps(compare([evaluation("a", [0.0, 1.0]), evaluation("b", [1.0, 1.0])]).to_json())
    )
    assert content["systems"][0]["values"] == {"P@20": {"q000": 0.0, "q001": 1.0}}
    assert content["convention"] == {"gain": "exponential", "max_grade": 4}
    assert {"t", "permutation", "t_holm", "permutation_holm", "mean"} <= content["differences"][0].keys()


def test_csv_quotes_what_needs_it():
    assert render(["a", "b"], [['x,"y"', "1"]], "csv") == 'a,b\n"x,""y""",1'
