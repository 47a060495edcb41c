"""The training losses against plain loops over scalars: values and gradients, on batches as they come."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers import mgcc_oracle as oracle

from gr2.training.losses import (
    grade_constraint,
    grade_penalty,
    lambda_rank,
    mgcc,
    mle_q,
    pair_loss,
    similarity,
    weighted_ce,
)

BATCHES = 240
MODES = ("pair", "next", "level_mean", "off")
READINGS = ("prose", "literal", "pow2", "uniform")
KINDS = ("cosine", "dot")
TOLERANCE = 1e-9


def random_batch(seed):
    """A batch of random judgements and representations; every situation named in `test_situations` occurs."""
    rng = np.random.default_rng(seed)
    queries, levels = int(rng.integers(1, 7)), int(rng.choice([1, 2, 3, 4, 5], p=[0.15, 0.15, 0.2, 0.2, 0.3]))
    pool = [f"d{n}" for n in range(rng.integers(2, 15))]
    judgements, brought, self_negatives = [], [], []
    for _ in range(queries):
        usable = np.arange(1, levels + 1)
        if rng.random() < 0.5:  # the other grades stay empty
            usable = rng.choice(usable, size=rng.integers(1, levels + 1), replace=False)
        judged = {}
        for docid in rng.choice(pool, size=rng.integers(0, min(len(pool), 10) + 1), replace=False):
            judged[str(docid)] = int(rng.choice(usable)) if rng.random() < 0.85 else int(rng.choice([0, -2]))
        relevant = [docid for docid, grade in judged.items() if grade > 0]
        judgements.append(judged)
        brought.append([docid for docid in relevant if rng.random() < 0.85])
        wrong = [docid for docid in pool if judged.get(docid, 0) <= 0]
        self_negatives.append(
            list(rng.permutation(wrong)[: rng.integers(0, 3)]) if rng.random() < 0.3 else []
        )
    if not any(brought):  # a batch has at least one row
        judgements[0]["d0"], brought[0] = levels, ["d0"]
    common = bool(rng.random() < 0.25)
    grades, negatives = oracle.batch(judgements, brought, self_negatives, one_row_per_docid=common)
    if rng.random() < 0.1:
        negatives = [[False] * len(row) for row in negatives]
    rows = len(grades[0])
    order = rng.permutation(rows)  # a query's own docids need not stand together
    width = int(rng.integers(1, 6))
    return SimpleNamespace(
        judgements=judgements,
        brought=brought,
        common=common,
        levels=levels,
        grades=[[row[d] for d in order] for row in grades],
        negatives=[[row[d] for d in order] for row in negatives],
        f_q=torch.tensor(rng.normal(size=(queries, width))),
        f_id=torch.tensor(rng.normal(size=(rows, width))),
        scores=torch.tensor(rng.normal(scale=3, size=rows)),
        weights=torch.tensor(rng.normal(size=queries)),  # the queries' losses are summed by, for gradients
        readings=torch.tensor(rng.normal(size=len(READINGS))),  # and so are the penalty's readings
        kind=KINDS[seed % 2],
        temperature=float(rng.choice([0.1, 0.5, 1.0])),
        sigma=float(rng.choice([0.5, 1.0, 2.0])),
    )


def tensors(batch):
    """Grades and negatives as the code under test takes them."""
    return torch.tensor(batch.grades), torch.tensor(batch.negatives, dtype=torch.bool)


def stacked(table):
    """Nested lists of scalars as one tensor without a graph."""
    return torch.tensor(
        [[oracle.number(x) for x in row] if isinstance(row, list) else oracle.number(row) for row in table],
        dtype=torch.float64,
    )


def gradients_of_scalars(outputs, weights, leaves):
    """d(Σ weight · output)/d(leaf) of a table of scalar leaves, as one tensor."""
    total = sum(w.item() * output for w, output in zip(weights, outputs, strict=True))
    flat = [leaf for row in leaves for leaf in row] if isinstance(leaves[0], list) else leaves
    if not isinstance(total, torch.Tensor) or not total.requires_grad:
        return torch.zeros(len(flat), dtype=torch.float64)
    found = torch.autograd.grad(total, flat, retain_graph=True, allow_unused=True)
    return torch.tensor([0.0 if g is None else g.item() for g in found], dtype=torch.float64)


def gradients(outputs, weights, leaves):
    """The same of the code under test."""
    if not outputs.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]
    return torch.autograd.grad((weights * outputs).sum(), leaves, retain_graph=True, materialize_grads=True)


def same(ours, theirs, what):
    assert ours.dtype == torch.float64, what
    torch.testing.assert_close(
        ours, theirs, rtol=TOLERANCE, atol=TOLERANCE, msg=lambda text: f"{what}: {text}"
    )


# ----------------------------------------------------------------------------------------------- the batches


def test_situations():
    """The random batches hold every situation that training meets, each several times."""
    seen = dict.fromkeys(
        (
            "gap between grades",
            "one grade",
            "no docids",
            "five grades",
            "L = 1",
            "three grades",
            "no negatives",
        )
        + ("shared, two rows", "shared, one row", "self-negative", "not sampled", "one query"),
        0,
    )
    widths = set()
    for seed in range(BATCHES):
        batch = random_batch(seed)
        widths.add(batch.f_q.shape[1])
        seen["L = 1"] += batch.levels == 1
        seen["one query"] += len(batch.grades) == 1
        seen["no negatives"] += not any(map(any, batch.negatives))
        rows = list(zip(*batch.grades, strict=True))
        seen["shared, one row"] += any(sum(g > 0 for g in row) > 1 for row in rows)
        docids = [docid for docids in batch.brought for docid in docids]
        seen["shared, two rows"] += not batch.common and len(docids) > len(set(docids))
        seen["self-negative"] += any(not any(row) for row in rows)
        for of_query, judged, docids in zip(batch.grades, batch.judgements, batch.brought, strict=True):
            grades = oracle.present(of_query)
            seen["no docids"] += not grades
            seen["one grade"] += len(grades) == 1
            seen["three grades"] += len(grades) >= 3
            seen["five grades"] += len(grades) == 5
            seen["gap between grades"] += bool(grades) and grades[0] - grades[-1] + 1 > len(grades)
            seen["not sampled"] += len(docids) < sum(g > 0 for g in judged.values())
    assert min(seen.values()) >= 5, seen
    assert widths == {1, 2, 3, 4, 5}


def test_batch_by_hand():
    """Who is whose negative."""
    judgements = [{"a": 2, "b": 1, "c": 1, "z": 0}, {"b": 3, "d": 1, "a": -2}, {}]
    brought = [["a", "b"], ["b", "d"], []]
    self_negatives = [["z"], [], ["a"]]
    # Rows: a, b of query 0; b, d of query 1; z returned for query 0; a returned for query 2.
    grades, negatives = oracle.batch(judgements, brought, self_negatives)
    assert grades == [[2, 1, 0, 0, 0, 0], [0, 0, 3, 1, 0, 0], [0, 0, 0, 0, 0, 0]]
    assert negatives == [
        [False, False, False, True, True, False],  # query 1's b is relevant here; d and its own z are not
        [True, False, False, False, False, False],  # a is judged spam: a negative; b is its own
        [True, True, True, True, False, True],  # nothing judged: everything that others bring, and its own a
    ]
    grades, negatives = oracle.batch(judgements, brought, one_row_per_docid=True)  # rows: a, b, d
    assert grades == [[2, 1, 0], [0, 3, 1], [0, 0, 0]]
    assert negatives == [[False, False, True], [True, False, False], [True, True, True]]


# --------------------------------------------------------------------------------------------- random batches


@pytest.mark.parametrize("seed", range(BATCHES))
def test_mgcc(seed):
    """Every step's values, and the loss's gradients to f_q and f_id, in every mode and reading."""
    batch = random_batch(seed)
    grades, negatives = tensors(batch)
    f_q, f_id = batch.f_q.clone().requires_grad_(), batch.f_id.clone().requires_grad_()
    slow_q = oracle.scalars(batch.f_q, requires_grad=True)
    slow_id = oracle.scalars(batch.f_id, requires_grad=True)

    how = {"kind": batch.kind, "temperature": batch.temperature}
    sims, slow_sims = similarity(f_q, f_id, **how), oracle.similarity(slow_q, slow_id, **how)
    same(sims, stacked(slow_sims), "similarity")
    pair = pair_loss(sims, grades, negatives)
    slow_pair = oracle.pair_loss(slow_sims, batch.grades, batch.negatives)
    same(pair, stacked(slow_pair), "pair_loss")

    leaves = [leaf for row in slow_q + slow_id for leaf in row]
    for mode in MODES:
        slow_constrained = oracle.grade_constraint(slow_pair, batch.grades, mode=mode)
        same(grade_constraint(pair, grades, mode=mode), stacked(slow_constrained), f"constraint {mode}")
        ours, theirs = [], []
        for reading in READINGS:
            options = {"levels": batch.levels, "penalty": reading}
            ours.append(mgcc(sims, grades, negatives, constraint=mode, **options))
            theirs.append(oracle.mgcc_of_constrained(slow_constrained, batch.grades, **options))
            same(ours[-1], stacked(theirs[-1]), f"mgcc {mode} {reading}")
        # One backward pass for the four readings: their random weights leave no room for errors to cancel.
        weights = torch.outer(batch.readings, batch.weights).flatten()
        got = torch.cat([g.flatten() for g in gradients(torch.cat(ours), weights, (f_q, f_id))])
        wanted = gradients_of_scalars([x for losses in theirs for x in losses], weights, leaves)
        same(got, wanted, f"mgcc {mode}, gradient")


@pytest.mark.parametrize("seed", range(BATCHES))
def test_log_likelihood_losses(seed):
    """MLE over grades, grade-weighted cross-entropy and LambdaRank: values and gradients."""
    batch = random_batch(seed)
    grades, _ = tensors(batch)
    scores = batch.scores.clone().requires_grad_()
    slow = oracle.scalars(batch.scores, requires_grad=True)
    for name, ours, theirs in (
        (
            "mle_q",
            mle_q(scores, grades, levels=batch.levels),
            oracle.mle_q(slow, batch.grades, levels=batch.levels),
        ),
        ("weighted_ce", weighted_ce(scores, grades), oracle.weighted_ce(slow, batch.grades)),
        (
            "lambda_rank",
            lambda_rank(scores, grades, sigma=batch.sigma),
            oracle.lambda_rank(slow, batch.grades, sigma=batch.sigma),
        ),
    ):
        same(ours, stacked(theirs), name)
        (got,) = gradients(ours, batch.weights, (scores,))
        same(got, gradients_of_scalars(theirs, batch.weights, slow), f"{name}, gradient")


@pytest.mark.parametrize("seed", range(20))
def test_constraint_alone(seed):
    """Gradients of ℓ' to ℓ, pair by pair, and what the modes promise about the order of grades."""
    rng = np.random.default_rng(10_000 + seed)
    grades = rng.integers(0, 6, size=(4, 9))
    pair = torch.tensor(rng.exponential(size=(4, 9)) * (grades > 0))
    weights = torch.tensor(rng.normal(size=(4, 9)) * (grades > 0))
    slow = oracle.scalars(pair, requires_grad=True)
    leaf = pair.clone().requires_grad_()
    for mode in MODES:
        ours = grade_constraint(leaf, torch.tensor(grades), mode=mode)
        theirs = oracle.grade_constraint(slow, grades.tolist(), mode=mode)
        same(ours, stacked(theirs), mode)
        (got,) = torch.autograd.grad((weights * ours).sum(), leaf)
        flat = [x for row in theirs for x in row]
        same(got.flatten(), gradients_of_scalars(flat, weights.flatten(), slow), f"{mode}, gradient")
        for q, d in zip(*np.nonzero(grades), strict=True):
            assert ours[q, d] >= pair[q, d]
            higher = ours[q, torch.tensor(grades[q] > grades[q, d])]
            if mode == "pair" and len(higher):
                assert ours[q, d] >= higher.max()


@pytest.mark.parametrize("levels", range(1, 6))
@pytest.mark.parametrize("reading", READINGS)
def test_penalty(levels, reading):
    ours = grade_penalty(levels, reading=reading)
    theirs = torch.tensor(oracle.grade_penalty(levels, reading=reading), dtype=torch.float64)
    assert ours.shape == (levels,)
    torch.testing.assert_close(ours.double(), theirs, rtol=1e-6, atol=0)


def test_union():
    """A_q is a union: a row that is marked both as q's own and as a negative is in it once."""
    sims = torch.tensor([[0.0, math.log(3)]], dtype=torch.float64)
    pair = pair_loss(sims, torch.tensor([[1, 0]]), torch.tensor([[True, True]]))
    same(pair, torch.tensor([[math.log(4), 0.0]], dtype=torch.float64), "union")


@pytest.mark.parametrize("scale", (1e2, 1e4))
def test_large_similarities(scale):
    """Dot products that overflow exp: still exact, still finite gradients."""
    for seed in range(10):
        batch = random_batch(seed)
        grades, negatives = tensors(batch)
        sims = similarity(batch.f_q * scale, batch.f_id, kind="dot").requires_grad_()
        slow = oracle.scalars(sims.detach(), requires_grad=True)
        ours = mgcc(sims, grades, negatives, levels=batch.levels)
        theirs = oracle.mgcc(slow, batch.grades, batch.negatives, levels=batch.levels)
        same(ours, stacked(theirs), "large")
        (got,) = gradients(ours, batch.weights, (sims,))
        same(got.flatten(), gradients_of_scalars(theirs, batch.weights, slow), "large, gradient")


def test_defaults():
    """Without options: cosine at τ = 0.1, the prose's penalty, the constraint by pairs, σ = 1."""
    batch = random_batch(3)
    grades, negatives = tensors(batch)
    slow = oracle.similarity(oracle.scalars(batch.f_q), oracle.scalars(batch.f_id))
    sims = similarity(batch.f_q, batch.f_id)
    same(sims, stacked(slow), "similarity")
    theirs = oracle.mgcc(slow, batch.grades, batch.negatives, levels=batch.levels)
    same(mgcc(sims, grades, negatives, levels=batch.levels), stacked(theirs), "mgcc")
    theirs = oracle.grade_constraint(oracle.pair_loss(slow, batch.grades, batch.negatives), batch.grades)
    same(grade_constraint(pair_loss(sims, grades, negatives), grades), stacked(theirs), "constraint")
    theirs = oracle.lambda_rank(oracle.scalars(batch.scores), batch.grades)
    same(lambda_rank(batch.scores, grades), stacked(theirs), "lambda_rank")
    assert grade_penalty(2).tolist() == [0.25, 1.0]


# -------------------------------------------------------------------------------------------------- by hand

# Query 0 brings a, b (grade 4), c, d (grade 2) and e (grade 1); L = 4, nobody has grade 3. Query 1 brings n
# (grade 1) and s (grade 2); s is also judged relevant to query 0, so it is no member of A_0. exp(sim):
#
#              a   b   c   d   e   n   s      Σ over A_q
#   query 0    1  16   8   2  32   5  (99)    1+16+8+2+32+5 = 64
#   query 1    1   1   1   1   1   2   1      8
#
# ℓ in units of log 2, query 0: a log2(64/1) = 6, b 2, c 3, d 5, e 1; query 1: n log2(8/2) = 2, s 3.
#
# ℓ' of query 0     a  b   c  d   e
#   off             6  2   3  5   1
#   next            6  2   6  6   5    grade 2 under max(6, 2) = 6; grade 1 under the plain max(3, 5) = 5
#   pair            6  2   6  6   6    grade 1 under grade 2's constrained 6
#   level_mean      6  2   4  5   4    means: grade 4 (6+2)/2 = 4, grade 2 (3+5)/2 = 4; running maximum 4
# ℓ' of query 1: s 3; n 2 when off, else 3.
#
# λ = 1/16, 1/9, 1/4, 1 (prose). Query 0, ¼·(λ_1·e' + λ_2·mean(c', d') + λ_4·mean(a', b')):
#   off         ¼(1/16 +  4 /9 + 4) = 649/576
#   next        ¼(5/16 +  6 /9 + 4) = 239/192
#   pair        ¼(6/16 +  6 /9 + 4) = 121/96
#   level_mean  ¼(4/16 + 4.5/9 + 4) = 19/16
# Query 1, ¼·(λ_1·n' + λ_2·s'): off ¼(2/16 + 3/9) = 11/96, else ¼(3/16 + 3/9) = 25/192.
# With λ = 1, 1/4, 1/9, 1/16 (literal), pair: ¼(6 + 6/4 + 4/16) = 31/16 and ¼(3 + 3/4) = 15/16.
# With λ = 1 (uniform), pair: ¼(6 + 6 + 4) = 4 and ¼(3 + 3) = 3/2.
# With λ = 2, √2, 2^⅓, 2^¼ (pow2), pair: ¼(12 + 6√2 + 4·2^¼) and ¼(6 + 3√2).
HAND_GRADES = torch.tensor([[4, 4, 2, 2, 1, 0, 0], [0, 0, 0, 0, 0, 1, 2]])
HAND_NEGATIVES = torch.tensor([[0, 0, 0, 0, 0, 1, 0], [1, 1, 1, 1, 1, 0, 0]], dtype=torch.bool)
HAND_SIMS = torch.tensor([[1, 16, 8, 2, 32, 5, 99], [1, 1, 1, 1, 1, 2, 1]], dtype=torch.float64).log()
HAND_CONSTRAINED = {
    "off": [[6, 2, 3, 5, 1, 0, 0], [0, 0, 0, 0, 0, 2, 3]],
    "next": [[6, 2, 6, 6, 5, 0, 0], [0, 0, 0, 0, 0, 3, 3]],
    "pair": [[6, 2, 6, 6, 6, 0, 0], [0, 0, 0, 0, 0, 3, 3]],
    "level_mean": [[6, 2, 4, 5, 4, 0, 0], [0, 0, 0, 0, 0, 3, 3]],
}
HAND_LOSS = {
    ("off", "prose"): [649 / 576, 11 / 96],
    ("next", "prose"): [239 / 192, 25 / 192],
    ("pair", "prose"): [121 / 96, 25 / 192],
    ("level_mean", "prose"): [19 / 16, 25 / 192],
    ("pair", "literal"): [31 / 16, 15 / 16],
    ("pair", "uniform"): [4, 3 / 2],
    ("pair", "pow2"): [(12 + 6 * 2**0.5 + 4 * 2**0.25) / 4, (6 + 3 * 2**0.5) / 4],
}


@pytest.mark.parametrize("who", ("gr2", "oracle"))
def test_mgcc_by_hand(who):
    log2 = math.log(2)
    if who == "gr2":
        pair = pair_loss(HAND_SIMS, HAND_GRADES, HAND_NEGATIVES)
    else:
        table = oracle.scalars(HAND_SIMS)
        pair = oracle.pair_loss(table, HAND_GRADES.tolist(), HAND_NEGATIVES.tolist())
    for mode, wanted in HAND_CONSTRAINED.items():
        if who == "gr2":
            got = grade_constraint(pair, HAND_GRADES, mode=mode)
        else:
            got = stacked(oracle.grade_constraint(pair, HAND_GRADES.tolist(), mode=mode))
        same(got / log2, torch.tensor(wanted, dtype=torch.float64), mode)
    for (mode, reading), wanted in HAND_LOSS.items():
        options = {"levels": 4, "penalty": reading, "constraint": mode}
        if who == "gr2":
            got = mgcc(HAND_SIMS, HAND_GRADES, HAND_NEGATIVES, **options)
        else:
            got = stacked(oracle.mgcc(table, HAND_GRADES.tolist(), HAND_NEGATIVES.tolist(), **options))
        same(got / log2, torch.tensor(wanted, dtype=torch.float64), f"{mode} {reading}")


def test_gradient_by_hand():
    """Query 0, pair, prose: c', d' and e' all are ℓ(a), so their share of the gradient goes to a alone.

    Weights of ℓ(a): ¼(1/16 + 1/9 + ½) = 97/576, of ℓ(b): ¼·½ = 72/576; together 169/576.
    ∂ℓ(i)/∂s(j) = p(j) − [i = j], so a gets 169/576·1/64 − 97/576, b 169/576·16/64 − 72/576, every other
    member 169/576·p, and s nothing.
    """
    sims = HAND_SIMS.clone().requires_grad_()
    mgcc(sims, HAND_GRADES, HAND_NEGATIVES, levels=4)[0].backward()
    p = torch.tensor([1, 16, 8, 2, 32, 5, 0], dtype=torch.float64) / 64
    wanted = 169 / 576 * p
    wanted[0] -= 97 / 576
    wanted[1] -= 72 / 576
    same(sims.grad[0], wanted, "query 0")
    same(sims.grad[1], torch.zeros(7, dtype=torch.float64), "query 1")


@pytest.mark.parametrize("who", ("gr2", "oracle"))
def test_log_likelihood_losses_by_hand(who):
    """Log-likelihoods −1, −2, −4 of docids of grade 1, 3, 1, and −8 of another query's docid; L = 3.

    MLE: ⅓·((1 + 4)/2 + 2) = 3/2; the other query, grade 2: ⅓·8.
    Weighted: (1·1 + 3·2 + 1·4)/5 = 11/5; the other query 8.
    LambdaRank: ranks 1, 2, 3 with gains 1, 7, 1. Let D = 1/log2(3), so the discounts are 1, D, ½ and the
    ideal is 7 + D + ½. Grade 3 (rank 2) against rank 1: |7 − 1|·(1 − D), margin −2 + 1 = −1; against
    rank 3: 6·(D − ½), margin −2 + 4 = 2. The mean over the two pairs. The other query has no pair: 0.
    """
    grades = torch.tensor([[1, 3, 1, 0], [0, 0, 0, 2]])
    scores = torch.tensor([-1.0, -2.0, -4.0, -8.0], dtype=torch.float64)
    discount = 1 / math.log2(3)
    ranked = 6 * (1 - discount) * math.log(1 + math.e) + 6 * (discount - 0.5) * math.log(1 + math.exp(-2))
    if who == "gr2":
        found = [mle_q(scores, grades, levels=3), weighted_ce(scores, grades), lambda_rank(scores, grades)]
    else:
        slow, table = oracle.scalars(scores), grades.tolist()
        found = [
            stacked(losses)
            for losses in (
                oracle.mle_q(slow, table, levels=3),
                oracle.weighted_ce(slow, table),
                oracle.lambda_rank(slow, table),
            )
        ]
    wanted = [[3 / 2, 8 / 3], [11 / 5, 8], [ranked / (7 + discount + 0.5) / 2, 0]]
    for name, got, expected in zip(("mle_q", "weighted_ce", "lambda_rank"), found, wanted, strict=True):
        same(got, torch.tensor(expected, dtype=torch.float64), name)
