"""Judgements as grades and weights, the losses on φ, and the softmax of large collections."""

import numpy as np
import pytest
import torch
from scipy import sparse

from gr2.model.look_ahead import Memory
from gr2.training import regression
from gr2.training.learner import ndcg
from gr2.training.regression import RegressionConfig, fit_offsets
from gr2.training.regression_loss import Judged, loss_of, pair_losses

DOCNOS = {f"d{i}": i for i in range(12)}


def problem(seed=0, queries=6, width=4, documents=12):
    """Unit vectors, φ₀ and judgements of documents 0 to 4, of three grades."""
    draw = np.random.default_rng(seed)
    vectors = draw.standard_normal((queries, width)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = [
        {f"d{d}": int(draw.integers(1, 4)) for d in draw.choice(5, 3, replace=False)} for _ in range(queries)
    ]
    base = draw.standard_normal((queries, documents)).astype(np.float32)
    return torch.from_numpy(vectors), torch.from_numpy(base), rows


# Judgements


def test_grades_and_weights_beside_each_other():
    judged = Judged.of([{"d3": 2, "gone": 3, "d1": 0}, {"d0": 1.0, "d2": 0.3}], DOCNOS)
    assert judged.levels == 2 and judged.documents.tolist() == [[3, 0], [0, 2]]
    assert judged.weights.flatten().tolist() == pytest.approx([1.0, 0.0, 1.0, 0.3])
    assert judged.grades.tolist() == [[2, 0], [2, 1]], "1 is the weight of grade 2, 0.3 is nearest to 1/3"
    assert judged.relevant(12).nonzero()[:, 0].tolist() == [0, 2, 3]


def test_weights_without_any_grade_are_one_level():
    judged = Judged.of([{"d0": 1.0, "d2": np.float32(0.01)}], DOCNOS)
    assert judged.levels == 1 and judged.grades.tolist() == [[1, 1]]
    assert judged.weights.tolist() == [pytest.approx([1.0, 0.01])]


def test_a_weight_above_1_is_refused():
    with pytest.raises(ValueError, match="weight from 0 to 1, found 2.0"):
        Judged.of([{"d0": 2.0}], DOCNOS)


def test_a_weight_is_a_gain_in_memory_and_ndcg():
    memory = Memory.of(np.ones((2, 1), np.float32), [{"d0": 0.8, "d1": 0.2}, {"d0": 2, "d1": 1}], DOCNOS)
    assert memory.gains.toarray()[:, :2].ravel().tolist() == pytest.approx([1, 0.25, 1, 1 / 3])
    scores = np.zeros(12, np.float32)
    scores[1], scores[0] = 2, 1
    expected = (0.2 + 0.8 / np.log2(3)) / (0.8 + 0.2 / np.log2(3))
    assert ndcg(scores[None], [{"d0": 0.8, "d1": 0.2}], DOCNOS)[0] == pytest.approx(expected)


# Losses


def test_soft_grades_of_a_teacher_by_hand():
    phi = torch.tensor([[2.0, 1.0, 0.0]])
    judged = Judged.of([{"d0": 1.0, "d2": 0.25}], DOCNOS)
    log_p = phi.log_softmax(1)[0].tolist()
    assert float(loss_of("soft")(phi, judged)) == pytest.approx(-(log_p[0] + 0.25 * log_p[2]) / 1.25)


@pytest.mark.parametrize("against", ["all", "lower"])
def test_the_mass_outside_is_that_of_the_documents_left_out(against):
    _, base, rows = problem()
    judged = Judged.of(rows, DOCNOS)
    whole = pair_losses(base, judged, against=against)
    outside = base[:, 5:].logsumexp(1, keepdim=True)
    part = pair_losses(base[:, :5], judged, outside, against=against)
    torch.testing.assert_close(part, whole)
    assert not torch.allclose(pair_losses(base[:, :5], judged, against=against), whole, atol=0.01)


@pytest.mark.parametrize("variant", ["gr2", "decoupled", "listwise", "soft"])
def test_a_query_whose_documents_are_all_judged_has_a_finite_gradient(variant):
    phi = torch.tensor([[0.0, 1.0], [0.0, 2.0]], requires_grad=True)
    loss_of(variant)(phi, Judged.of([{"d0": 2, "d1": 1}, {"d1": 2}], DOCNOS)).sum().backward()
    assert phi.grad.isfinite().all() and phi.grad[0, 0] < 0 and phi.grad[1, 1] < 0


# Large collections


def trace(vectors, base, judged, config, **options):
    """The offsets, and the value of the objective at every evaluation."""
    values = []
    found = fit_offsets(
        vectors,
        base,
        judged,
        scale=3.0,
        config=config,
        progress=lambda place, value: values.append(value),
        **options,
    )
    return found, values


@pytest.fixture
def small_limit(monkeypatch):
    """Collections of more than ten documents are large; two documents a query are moved."""
    monkeypatch.setattr(regression, "LIMIT", 10)
    monkeypatch.setattr(regression, "NEAREST", 2)


def union(base, judged):
    members = judged.relevant(base.shape[1])
    members[base.topk(2, 1).indices.flatten()] = True
    return members


@pytest.mark.parametrize("variant", ["gr2", "decoupled", "soft"])
def test_a_large_collection_starts_from_the_same_objective(small_limit, monkeypatch, variant):
    vectors, base, rows = problem()
    judged, config = Judged.of(rows, DOCNOS), RegressionConfig(variant=variant, negatives="all")
    assert not union(base, judged).all(), "some documents are outside"
    _, large = trace(vectors, base, judged, config)
    monkeypatch.setattr(regression, "LIMIT", 12)
    _, whole = trace(vectors, base, judged, config)
    assert large[0] == pytest.approx(whole[0], rel=1e-6), "δ is 0 everywhere"
    assert large[-1] > whole[-1], "documents outside do not move"


def test_documents_outside_stay_in_the_softmax(small_limit):
    """The offsets are the minimum over all documents with δ = 0 outside, found by another way."""
    vectors, base, rows = problem()
    judged, config = Judged.of(rows, DOCNOS), RegressionConfig(negatives="all", decay=0.5, iterations=200)
    found, _ = trace(vectors, base, judged, config)
    members = union(base, judged)
    assert (found[~members] == 0).all() and (found[members].norm(dim=1) > 0).all()
    delta = torch.zeros(12, 4, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([delta], max_iter=400, line_search_fn="strong_wolfe")

    def minimum(softmax):
        def closure():
            optimiser.zero_grad()
            fixed = delta * members[:, None]
            phi = (base.double() + 3 * vectors.double() @ fixed.T).masked_fill(~softmax, -torch.inf)
            value = loss_of("gr2")(phi, judged).sum() + 0.5 * fixed.square().sum()
            value.backward()
            return value

        optimiser.step(closure)
        return (delta * members[:, None]).detach().float()

    torch.testing.assert_close(found, minimum(torch.ones_like(members)), atol=0.005, rtol=0)
    assert (found - minimum(members)).abs().max() > 0.02, "without the mass outside it is another minimum"


def test_documents_outside_that_are_far_off_make_no_difference(small_limit, monkeypatch):
    vectors, base, rows = problem()
    base[:, 5:] -= 30
    judged = Judged.of([{**row, "d9": 1} for row in rows], DOCNOS)
    config = RegressionConfig(negatives="all", iterations=60)
    large, _ = trace(vectors, base, judged, config)
    monkeypatch.setattr(regression, "LIMIT", 12)
    whole, _ = trace(vectors, base, judged, config)
    torch.testing.assert_close(large, whole, atol=1e-3, rtol=0)
    assert large.norm() > 1


def test_if_the_best_are_all_documents_nothing_changes(monkeypatch):
    vectors, base, rows = problem()
    judged, config = Judged.of(rows, DOCNOS), RegressionConfig(negatives="all")
    whole, _ = trace(vectors, base, judged, config)
    monkeypatch.setattr(regression, "LIMIT", 10)
    large, _ = trace(vectors, base, judged, config)
    assert torch.equal(large, whole)


def test_judged_negatives_have_no_mass_outside(small_limit, monkeypatch):
    vectors, base, rows = problem()
    judged = Judged.of(rows, DOCNOS)
    large, _ = trace(vectors, base, judged, RegressionConfig())
    monkeypatch.setattr(regression, "LIMIT", 12)
    whole, _ = trace(vectors, base, judged, RegressionConfig())
    assert torch.equal(large, whole)


def test_documents_outside_move_with_the_features_that_they_share(small_limit):
    vectors, base, rows = problem()
    judged = Judged.of(rows, DOCNOS)
    features = sparse.csr_matrix(np.random.default_rng(5).random((12, 3)).astype(np.float32))
    config = RegressionConfig(negatives="all", own=False, shared="terms")
    found, _ = trace(vectors, base, judged, config, features=features)
    assert (found[~union(base, judged)].norm(dim=1) > 0.01).all()
