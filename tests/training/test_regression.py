"""The graded regression: every loss as hand-called, its optimum, and what is selected."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from gr2.bm25 import BM25Config
from gr2.data.collection import Document
from gr2.data.runs import Run
from gr2.evaluate.measures import Convention, evaluate
from gr2.model.config import LookAheadConfig
from gr2.model.look_ahead import LookAhead
from gr2.training import losses
from gr2.training.regression import Judged, RegressionConfig, _loss, fit_offsets
from gr2.training.selection import Candidate, TrainingSet, candidates, learn, ndcg, select

DOCNOS = {f"d{i}": i for i in range(12)}


def problem(seed=0, queries=8, width=5):
    draw = np.random.default_rng(seed)
    vectors = draw.standard_normal((queries, width)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    judged = [
        {f"d{d}": int(draw.integers(1, 4)) for d in draw.choice(9, 3, replace=False)} for _ in range(queries)
    ]
    base = draw.standard_normal((queries, 12)).astype(np.float32)
    return torch.from_numpy(vectors), torch.from_numpy(base), judged


def by_hand(variant, phi, judged):
    """The loss of each query from its whole row of scores, by the functions of `losses`."""
    total = 0.0
    for scores, row in zip(phi, judged, strict=True):
        grades = torch.zeros(1, 12, dtype=torch.long)
        for docno, grade in row.items():
            grades[0, DOCNOS[docno]] = grade
        log_p = torch.log_softmax(scores, 0)
        if variant == "LR":
            total += losses.lambda_rank(scores[grades[0] > 0], grades[:, grades[0] > 0])[0]
        elif variant == "MLE":
            total += losses.mle_q(log_p, grades, levels=3)[0]
        elif variant == "CE":
            total += losses.weighted_ce(log_p, grades)[0]
        else:
            switch = {"no-lambda": {"penalty": "uniform"}, "no-max": {"constraint": "off"}}.get(variant, {})
            total += losses.mgcc(scores[None], grades, grades == 0, levels=3, **switch)[0]
    return total


@pytest.mark.parametrize("variant", ["gr2", "no-lambda", "no-max", "MLE", "CE"])
def test_each_loss_is_the_one_of_its_name(variant):
    _, base, rows = problem()
    judged = Judged.of(rows, DOCNOS)
    found = _loss(variant, judged.levels)(base, judged.documents, judged.grades)
    assert float(found) == pytest.approx(float(by_hand(variant, base, rows)), rel=1e-5)


def test_lr_is_lambda_rank_alone():
    _, base, rows = problem()
    judged = Judged.of(rows, DOCNOS)
    found = _loss("LR", judged.levels)(base, judged.documents, judged.grades)
    assert float(found) == pytest.approx(float(by_hand("LR", base, rows)), rel=1e-4)


@pytest.mark.parametrize("negatives", ["all", "judged"])
def test_the_offsets_are_the_minimum(negatives):
    """scipy finds nothing better from the same start, with the objective written out."""
    vectors, base, rows = problem()
    judged = Judged.of(rows, DOCNOS)
    config = RegressionConfig(decay=0.5, negatives=negatives, iterations=200)
    found = fit_offsets(vectors, base, judged, scale=3.0, config=config)
    members = judged.relevant(12) if negatives == "judged" else torch.ones(12, dtype=torch.bool)
    assert (found[~members] == 0).all()

    def objective(flat):
        delta = torch.tensor(flat.reshape(12, 5), dtype=torch.float64)
        phi = (base.double() + 3 * vectors.double() @ delta.T).masked_fill(~members, -torch.inf)
        return float(_loss("gr2", 3)(phi, judged.documents, judged.grades)) + 0.5 * float(
            delta.square().sum()
        )

    best = minimize(objective, found.double().numpy().ravel(), method="L-BFGS-B", options={"maxiter": 20})
    assert objective(found.double().numpy().ravel()) <= best.fun + 1e-3
    assert objective(found.double().numpy().ravel()) < objective(np.zeros(60))


def test_it_is_deterministic_and_lambda_pulls_to_zero():
    vectors, base, rows = problem()
    judged = Judged.of(rows, DOCNOS)
    one, two = (fit_offsets(vectors, base, judged, scale=3.0) for _ in range(2))
    assert torch.equal(one, two)
    strong = fit_offsets(vectors, base, judged, scale=3.0, config=RegressionConfig(decay=100.0))
    assert strong.norm() < 0.1 * one.norm()


def test_ndcg_is_that_of_the_measures():
    draw = np.random.default_rng(1)
    scores = draw.standard_normal(12).astype(np.float32)
    row = {"d1": 3, "d5": 1, "d7": 2, "gone": 0}
    run = Run.from_dict({"q": {docno: float(scores[i]) for docno, i in DOCNOS.items()}})
    expected = evaluate(run, {"q": row}, ["nDCG@20"], Convention(gain="exponential")).means["nDCG@20"]
    assert ndcg(scores, row, DOCNOS) == pytest.approx(expected)


def setting(recur: bool, queries=40, width=16):
    """Queries of four topics, whose documents are those of the topic, or nearby ones of their own."""
    draw = np.random.default_rng(3)

    def unit(rows):
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)

    topics = np.eye(4, width)[np.arange(queries) % 4]
    vectors = unit(topics + 0.3 * draw.standard_normal((queries, width)))
    own = np.array([[3 * (i % 4 if recur else i) + j for j in range(3)] for i in range(queries)])
    matrix = draw.standard_normal((3 * queries, width))
    if not recur:
        matrix[own.ravel()] = np.repeat(vectors, 3, 0) + 0.1 * matrix[own.ravel()]
    documents = [Document(f"d{i:03}", text=f"word{i}") for i in range(len(matrix))]
    judged = [{f"d{d:03}": 1 + place for place, d in enumerate(row)} for row in own]
    plain = LookAhead.build(documents, unit(matrix), LookAheadConfig(bm25=BM25Config(language="none")))
    return plain, TrainingSet([f"text {i}" for i in range(queries)], vectors, judged)


def test_what_carries_over_is_learned_and_nothing_else():
    plain, queries = setting(recur=True)
    found = select(plain, queries)
    assert found.chosen != Candidate()
    better = learn(plain, queries, found.chosen)
    places = {docno: i for i, docno in enumerate(plain.docnos)}
    means = []
    for one in (plain, better):
        scores = one.scores(queries.texts, queries.vectors)
        means.append(np.mean([ndcg(*pair, places) for pair in zip(scores, queries.judged, strict=True)]))
    assert means[1] > means[0] + 0.1
    apart, queries = setting(recur=False)
    assert select(apart, queries).chosen == Candidate()
    assert select(apart, queries) == select(apart, queries), "the same seed, the same choice"


def test_nothing_is_the_first_candidate_and_each_is_different():
    found = candidates()
    assert found[0] == Candidate() and len(set(found)) == len(found)
    assert len({str(one) for one in found}) == len(found)
