"""Losses that are not in the paper: by hand, against plain loops, and where they must agree with others."""

from math import exp, isclose, log, log1p

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gr2.training import losses
from gr2.training.config import ObjectiveConfig
from gr2.training.variants import QUERY_LOSSES, variant_objective

scores_of_docids = st.lists(
    st.tuples(st.integers(0, 4), st.floats(-20, 20), st.booleans()), min_size=1, max_size=10
)
"""Grade, score, and whether a docid of grade 0 is a negative."""


def row(docids):
    """One query as tensors: similarities, grades and negatives [1, D]."""
    grades = torch.tensor([[grade for grade, _, _ in docids]])
    similarities = torch.tensor([[score for _, score, _ in docids]], dtype=torch.float64)
    return similarities, grades, torch.tensor([[other for _, _, other in docids]]) & (grades == 0)


def test_listwise_by_hand():
    """Gains 3 and 1: three quarters of the first loss and a quarter of the second."""
    log_p = torch.tensor([-1.0, -5.0, -9.0])
    loss = losses.listwise(log_p, torch.tensor([[2, 1, 0], [0, 0, 3]]))
    assert loss.tolist() == pytest.approx([0.75 * 1 + 0.25 * 5, 9.0])


def test_soft_by_hand():
    """Weights 1, .25 and .75: a half, an eighth and three eighths."""
    log_p = torch.tensor([-2.0, -8.0, -16.0, -99.0])
    loss = losses.soft_ce(log_p, torch.tensor([[1.0, 0.25, 0.75, 0.0]]))
    assert loss.tolist() == pytest.approx([0.5 * 2 + 8 / 8 + 16 * 3 / 8])
    small = losses.soft_ce(log_p, torch.tensor([[0.1, 0.025, 0.075, 0.0]]))
    assert small.tolist() == pytest.approx(loss.tolist()), "only proportions count"


def test_decoupled_by_hand():
    """Grade 2 against grade 1 and the negative, grade 1 against the negative alone."""
    similarities, grades = torch.tensor([[1.0, 3.0, 2.0, 0.0]]), torch.tensor([[2, 2, 1, 0]])
    lower = exp(2) + exp(0)
    two = [log1p(lower / exp(1)), log1p(lower / exp(3))]
    one = log1p(exp(0) / exp(2))
    pair = losses.pair_loss(similarities, grades, grades == 0, against="lower")
    assert pair.tolist() == [pytest.approx([*two, one, 0.0])]
    loss = losses.mgcc(similarities, grades, grades == 0, levels=2, constraint="off", against="lower")
    assert float(loss) == pytest.approx((1.0 * sum(two) / 2 + 0.25 * one) / 2)


@settings(deadline=None)
@given(scores_of_docids)
def test_the_decoupled_pair_loss_against_loops(docids):
    pair = losses.pair_loss(*row(docids), against="lower")[0].tolist()
    for found, (grade, score, _) in zip(pair, docids, strict=True):
        lower = [s for g, s, other in docids if (0 < g < grade) or (g == 0 and other)]
        expected = log(exp(score) + sum(map(exp, lower))) - score if grade else 0.0
        assert isclose(found, expected, rel_tol=1e-9, abs_tol=1e-12)


@settings(deadline=None)
@given(scores_of_docids)
def test_equal_and_higher_grades_do_not_compete(docids):
    """Never above the loss among all, and equal to it for a docid that is the only one of the top grade."""
    s, grades, negatives = row(docids)
    among_all = losses.pair_loss(s, grades, negatives)
    lower = losses.pair_loss(s, grades, negatives, against="lower")
    assert (lower <= among_all + 1e-9).all()
    top = grades == grades.max()
    if grades.max() > 0 and int(top.sum()) == 1:
        torch.testing.assert_close(lower[top], among_all[top])


@settings(deadline=None)
@given(scores_of_docids)
def test_decoupled_with_one_grade_leaves_the_other_relevant_docids_out(docids):
    """As the supervised contrastive loss of each docid alone with the negatives, averaged."""
    s, grades, negatives = row([(min(grade, 1), score, other) for grade, score, other in docids])
    loss = losses.mgcc(s, grades, negatives, levels=1, constraint="off", against="lower")
    alone = []
    for place in torch.nonzero(grades[0])[:, 0].tolist():
        kept = [place, *torch.nonzero(negatives[0])[:, 0].tolist()]
        alone.append(losses.supervised_contrastive(s[:, kept], grades[:, kept], negatives[:, kept])[0])
    expected = torch.stack(alone).mean() if alone else torch.zeros((), dtype=s.dtype)
    torch.testing.assert_close(loss[0], expected)


@settings(deadline=None)
@given(scores_of_docids)
def test_with_one_grade_all_are_the_mean_of_the_losses(docids):
    s, grades, _ = row([(min(grade, 1), score, other) for grade, score, other in docids])
    log_p = s.log_softmax(1)
    own = -log_p[grades > 0]
    mean = own.mean() if len(own) else torch.zeros((), dtype=s.dtype)
    listwise = losses.listwise(log_p[0], grades)[0]
    torch.testing.assert_close(listwise, mean)
    torch.testing.assert_close(losses.mgcc(s, grades, grades == 0, levels=1)[0], mean)
    torch.testing.assert_close(losses.weighted_ce(log_p[0], grades)[0], mean)


@settings(deadline=None)
@given(scores_of_docids)
def test_soft_with_the_weights_of_grades_is_listwise(docids):
    s, grades, _ = row(docids)
    log_p = s.log_softmax(1)[0]
    soft, listwise = (QUERY_LOSSES[name](log_p, grades, 4) for name in ("soft", "listwise"))
    torch.testing.assert_close(soft, listwise, rtol=1e-6, atol=1e-9)


def test_a_teacher_s_weights_are_taken_as_they_are():
    log_p, weights = torch.tensor([-1.0, -3.0]), torch.tensor([[0.2, 0.6]])
    assert QUERY_LOSSES["soft"](log_p, weights, 4).tolist() == pytest.approx([0.25 * 1 + 0.75 * 3])


def test_the_variants_switch_to_them():
    usual = ObjectiveConfig()
    assert variant_objective("listwise", usual) == ObjectiveConfig(gamma=0.0, query_loss="listwise")
    assert variant_objective("soft", usual) == ObjectiveConfig(gamma=0.0, query_loss="soft")
    assert variant_objective("decoupled", usual) == ObjectiveConfig(against="lower", constraint="off")
    with pytest.raises(ValueError, match="against must be one of all, lower, not 'higher'"):
        losses.pair_loss(
            torch.zeros(1, 1), torch.ones(1, 1, dtype=torch.long), torch.zeros(1, 1) > 0, against="higher"
        )
