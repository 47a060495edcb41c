"""Weighted kappa against a value computed by hand and against scikit-learn; conflicts by distance."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gr2.judge.agreement import agreement, agreements, weighted_kappa
from gr2.judge.judgements import Judgement

ANN, BOB = [0, 0, 1, 2, 2, 3], [0, 1, 1, 2, 3, 0]


def test_kappa_by_hand():
    # Differences 0 1 0 0 1 3. Ann gave 0: 2, 1: 1, 2: 2, 3: 1; Bob 0: 2, 1: 2, 2: 1, 3: 1 (of 6 each).
    # Chance, linear: Ann 0 → (0·2 + 1·2 + 2·1 + 3·1) = 7, 1 → (2 + 0 + 1 + 2) = 5, 2 → (4 + 2 + 0 + 1) = 7,
    # 3 → (6 + 4 + 1 + 0) = 11; in all 2·7 + 5 + 2·7 + 11 = 44 of 36. Observed: 5 of 6.
    assert weighted_kappa(ANN, BOB, "linear") == pytest.approx(1 - (5 / 6) / (44 / 36))
    # Quadratic: 0 → 0 + 2 + 4 + 9 = 15, 1 → 2 + 0 + 1 + 4 = 7, 2 → 8 + 2 + 0 + 1 = 11, 3 → 18 + 8 + 1 = 27;
    # in all 2·15 + 7 + 2·11 + 27 = 86 of 36. Observed: 11 of 6.
    assert weighted_kappa(ANN, BOB, "quadratic") == pytest.approx(1 - (11 / 6) / (86 / 36))


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1),
    st.sampled_from(["linear", "quadratic"]),
)
def test_kappa_is_that_of_scikit_learn(pairs, weights):
    metrics = pytest.importorskip("sklearn.metrics", reason="the extra `plots` is not installed")
    one, two = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    found = weighted_kappa(one, two, weights)
    assert found == pytest.approx(weighted_kappa(two, one, weights), nan_ok=True)
    if len({*one, *two}) > 1:
        expected = metrics.cohen_kappa_score(one, two, weights=weights, labels=[0, 1, 2, 3, 4])
        assert found == pytest.approx(expected, nan_ok=True)


def test_kappa_where_it_is_undefined():
    assert math.isnan(weighted_kappa([], []))
    assert math.isnan(weighted_kappa([2, 2], [2, 2]))
    assert weighted_kappa([2, 1], [2, 1]) == 1
    with pytest.raises(ValueError, match="found 1, 2"):
        weighted_kappa([1], [1, 2])


def test_conflicts_come_by_distance_and_only_common_pairs_count():
    rows = [Judgement("q", f"d{i}", grade, "ann", "1") for i, grade in enumerate([0, 4, 1, 2])]
    rows += [Judgement("q", f"d{i}", grade, "bob", "1") for i, grade in enumerate([1, 0, 1])]
    rows += [Judgement("q", "d9", 1, "cyd", "1")]
    found = agreement(rows, "ann", "bob")
    assert (found.pairs, found.same) == (3, 1)
    assert [(each.docno, each.grades, each.distance) for each in found.conflicts] == [
        ("d1", (4, 0), 4),
        ("d0", (0, 1), 1),
    ]
    assert found.linear == pytest.approx(weighted_kappa([0, 4, 1], [1, 0, 1], "linear"))
    assert [each.judges for each in agreements(rows)] == [("ann", "bob")]
