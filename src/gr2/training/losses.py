"""Similarities and log-likelihoods of graded docids → losses (paper: MGCC, Learning and optimization).

`similarity` → `pair_loss` → `grade_constraint` → `grade_penalty` → `mgcc` order representations by grade;
`mle_q` and `mle_d` train the docids, from the log-likelihoods of `likelihoods`; `total` adds the terms. The
ablations are arguments (−λ: ``penalty="uniform"``, −Max: ``constraint="off"``) or functions (CE:
`weighted_ce`, LR: `lambda_rank`), and so are losses that are not in the paper (``against="lower"``,
`listwise`, `soft_ce`). All are pure functions on tensors; they keep the precision of their inputs,
which should be float32 or better.

Legend: B queries, D docid rows of the batch (a docid of two queries is two rows), H width, N documents,
L grades (1 is the lowest, L the highest; 0 means "not one of this query's own docids"). Equation numbers are
the paper's.
"""

from math import inf
from typing import Any, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from gr2.training.config import Against, Constraint, Penalty, Similarity


def similarity(f_q: Tensor, f_id: Tensor, *, kind: Similarity = "cosine", temperature: float = 0.1) -> Tensor:
    """sim(f_q, f_id) / τ of every query and every docid (inside Eq. 4): [B, H], [D, H] → [B, D].

    The ReLU of ξ (Eq. 7) can produce a zero vector, whose cosine is 0 here and whose gradient stays small.
    """
    _known("kind", kind, Similarity)
    if kind == "cosine":
        f_q, f_id = _unit(f_q), _unit(f_id)
    return f_q @ f_id.mT / temperature  # [B, D]


def pair_loss(similarities: Tensor, grades: Tensor, negatives: Tensor, *, against: Against = "all") -> Tensor:
    """−L_Pair (Eq. 4): the cross-entropy of each of a query's docids among all of A_q; 0 for other docids.

    A_q contains the query's own docids of every grade and its negatives. A docid that is relevant to q but is
    in the batch for another query has grade 0 and is not a negative: it is left out of A_q.

    Args:
        similarities: [B, D] from `similarity`; entries outside A_q are ignored, even if infinite.
        grades: [B, D] integers.
        negatives: [B, D] true if the docid is a negative of the query.
        against: "all": each docid among all of A_q. "lower": each docid among itself, the query's docids of
            lower grades and its negatives, so that docids of equal or higher grades do not compete with it.

    >>> similarities, grades = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[2, 1, 0]])
    >>> pair_loss(similarities, grades, grades == 0)
    tensor([[0.4076, 1.4076, 0.0000]])
    >>> pair_loss(similarities, grades, grades == 0, against="lower")
    tensor([[0.4076, 0.3133, 0.0000]])
    """
    # paper: Eq. 4 is a log-probability, negated only in Eq. 9; the max there needs the positive loss.
    # paper: the indicator [f_q ≠ f_a] is omitted, because no query is among the docids.
    # paper: not in it: against="lower".
    _known("against", against, Against)
    own = grades > 0
    if against == "all":
        return torch.where(own, log_mass(similarities, own | negatives) - similarities, 0.0)  # [B, D]
    loss = torch.where(own, similarities, 0.0)  # each of the query's docids is replaced below
    for grade in sorted(set(grades[own].tolist())):
        at = grades == grade  # [B, D]
        lower = log_mass(similarities, negatives | (own & (grades < grade)))  # [B, 1]
        ahead = torch.where(at, similarities, 0.0) - lower  # [B, D] ∞ if there is nothing lower
        loss = torch.where(at, -F.logsigmoid(ahead), loss)
    return loss  # [B, D]


def log_mass(scores: Tensor, members: Tensor) -> Tensor:
    """The logsumexp of each row's scores over its members, −∞ without any; gradients are finite: [B, 1]."""
    some = members.any(1, keepdim=True)
    among = scores.masked_fill(~members, -inf).masked_fill(~some, 0.0)  # an all −inf row has NaN gradients
    return among.logsumexp(1, keepdim=True).masked_fill(~some, -inf)


def grade_constraint(pair: Tensor, grades: Tensor, *, mode: Constraint = "pair") -> Tensor:
    """max(L_Pair, L_Max of the next higher grade) (Eq. 8 and the max of Eq. 9): [B, D], [B, D] → [B, D].

    The loss of a docid is raised to at least the bound set by the query's higher grades; a query's highest
    grade is unchanged, and absent grades are skipped. The gradient goes to the larger side; on exact ties
    torch splits it: half to each side, and equal parts among the docids that set the bound.

    Args:
        pair: [B, D] from `pair_loss`.
        grades: [B, D] integers; where a grade is 0, `pair` is returned unchanged.
        mode: "next": the bound is the largest loss of the next higher grade, as printed in the paper.
            "pair": the largest loss of all higher grades; the same as "next" for up to two grades.
            "level_mean": the largest of the higher grades' mean losses, as in the cited
            hierarchical-contrastive code. "off": no bound (the −Max variant).

    >>> pair, grades = torch.tensor([[0.9, 0.5, 0.1, 0.3]]), torch.tensor([[3, 3, 2, 1]])
    >>> for mode in ("pair", "next", "level_mean", "off"):
    ...     grade_constraint(pair, grades, mode=mode)
    tensor([[0.9000, 0.5000, 0.9000, 0.9000]])
    tensor([[0.9000, 0.5000, 0.9000, 0.3000]])
    tensor([[0.9000, 0.5000, 0.7000, 0.7000]])
    tensor([[0.9000, 0.5000, 0.1000, 0.3000]])
    """
    # paper: Eq. 9 compares with the next grade only ("next"). With three or more grades, its prose ("will
    # never be higher than that constructed from a lower relevance grade") requires the maximum of "pair".
    _known("mode", mode, Constraint)
    if mode == "off":
        return pair
    constrained, bound = pair, pair.new_full((len(pair), 1), -inf)
    for grade in sorted(set(grades[grades > 0].tolist()), reverse=True):
        at = grades == grade  # [B, D]
        constrained = torch.where(at, torch.maximum(pair, bound), constrained)
        if mode == "level_mean":
            level = pair.masked_fill(~at, 0.0).sum(1, keepdim=True) / at.sum(1, keepdim=True).clamp_min(1)
        else:
            level = pair.masked_fill(~at, -inf).amax(1, keepdim=True)
        if mode != "next":
            level = torch.maximum(bound, level)
        bound = torch.where(at.any(1, keepdim=True), level, bound)  # [B, 1] kept if the grade is absent
    return constrained


def grade_penalty(levels: int, *, reading: Penalty = "prose") -> Tensor:
    """λ_1 … λ_L (Eq. 9), in double precision: [L].

    Args:
        levels: L.
        reading: "prose": 1/(L − l + 1)², more for higher grades. "literal": 1/l². "pow2": 2^(1/l), which is 2
            instead of 1 for a single grade. "uniform": 1 (the −λ variant).

    >>> grade_penalty(2), grade_penalty(2, reading="literal")
    (tensor([0.2500, 1.0000], dtype=torch.float64), tensor([1.0000, 0.2500], dtype=torch.float64))
    """
    # paper: the printed values give the lowest grade the most weight, but the prose ("higher penalties to
    # positive pairs constructed from higher grades") gives it to the highest; the default follows the prose.
    _known("reading", reading, Penalty)
    grade = torch.arange(1, levels + 1, dtype=torch.float64)  # [L]
    if reading == "prose":
        return (levels - grade + 1) ** -2
    if reading == "literal":
        return grade**-2
    return 2 ** (1 / grade) if reading == "pow2" else torch.ones_like(grade)


def mgcc(
    similarities: Tensor,
    grades: Tensor,
    negatives: Tensor,
    *,
    levels: int,
    penalty: Penalty = "prose",
    constraint: Constraint = "pair",
    against: Against = "all",
) -> Tensor:
    """L_MGCC of each query (Eq. 9): 1/L Σ_l λ_l · mean of the constrained loss of its docids of grade l: [B].

    An absent grade adds 0, so a query without docids gives 0. With L = 1 this is `supervised_contrastive`.

    Args:
        similarities: [B, D], see `pair_loss`.
        grades: [B, D] integers, at most `levels`.
        negatives: [B, D] booleans.
        levels: L, the number of grades of the collection, not of the batch.
        penalty: the interpretation of λ, see `grade_penalty`.
        constraint: the bound on the loss of lower grades, see `grade_constraint`.
        against: the docids that a docid is contrasted with, see `pair_loss`.

    >>> similarities, grades = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[2, 1, 0]])
    >>> mgcc(similarities, grades, grades == 0, levels=2)
    tensor([0.3798])
    >>> mgcc(similarities, grades, grades == 0, levels=2, penalty="uniform")
    tensor([0.9076])
    >>> mgcc(similarities, grades, grades == 0, levels=2, constraint="off", against="lower")
    tensor([0.2430])
    """
    pair = pair_loss(similarities, grades, negatives, against=against)
    return mgcc_of_pairs(pair, grades, levels=levels, penalty=penalty, constraint=constraint)


def mgcc_of_pairs(
    pair: Tensor,
    grades: Tensor,
    *,
    levels: int,
    penalty: Penalty = "prose",
    constraint: Constraint = "pair",
) -> Tensor:
    """L_MGCC of each query from the losses −L_Pair of its docids [B, D], wherever these come from: [B].

    With the trie normaliser the probabilities of all docids sum to 1, so −log P(id ∣ q) is such a loss too.
    """
    means = _grade_means(grade_constraint(pair, grades, mode=constraint), grades, levels)  # [B, L]
    return (means * grade_penalty(levels, reading=penalty).to(means)).sum(1) / levels  # [B]


def supervised_contrastive(similarities: Tensor, grades: Tensor, negatives: Tensor) -> Tensor:
    """The mean loss of a query's docids regardless of grade, to which Eq. 9 reduces when L = 1: [B].

    With grades above 1, A_q stays the same and all docids have the same weight.
    """
    pair = pair_loss(similarities, grades, negatives)
    return _grade_means(pair, (grades > 0).long(), 1)[:, 0]


def mle_q(log_likelihoods: Tensor, grades: Tensor, *, levels: int) -> Tensor:
    """L_MLE^q of each query (Eq. 11): −log P(id ∣ q), mean within a grade, then 1/L Σ over grades: [B].

    Args:
        log_likelihoods: [D] log-likelihood of each docid row given its own query.
        grades: [B, D] integers, at most `levels`; an absent grade adds 0.
        levels: L.
    """
    return _grade_means(-log_likelihoods.expand(grades.shape), grades, levels).sum(1) / levels  # [B]


def mle_d(log_likelihoods: Tensor) -> Tensor:
    """L_MLE^d of each document (below Eq. 11): −log P(id ∣ d): [N] → [N]."""
    return -log_likelihoods


def weighted_ce(log_likelihoods: Tensor, grades: Tensor) -> Tensor:
    """The CE variant: mean of −log P(id ∣ q) over a query's docids, weighted by grade: [D], [B, D] → [B].

    >>> weighted_ce(torch.tensor([-3.0, -6.0, -5.0]), torch.tensor([[2, 1, 0], [0, 0, 0]]))
    tensor([4., 0.])
    """
    return soft_ce(log_likelihoods, grades.clamp_min(0))


def listwise(log_likelihoods: Tensor, grades: Tensor) -> Tensor:
    """ListNet: the cross-entropy Σ_d p_d · (−log P(d ∣ q)), p_d ∝ 2^g − 1 over a query's own docids: → [B].

    >>> listwise(torch.tensor([-3.0, -6.0, -5.0]), torch.tensor([[2, 1, 0], [0, 0, 0]]))
    tensor([3.7500, 0.0000])
    """
    # paper: not in it; ListNet is of Cao et al., ICML 2007, here with the gain of nDCG as its target.
    return soft_ce(log_likelihoods, 2.0 ** grades.clamp_min(0).to(log_likelihoods) - 1)


def soft_ce(log_likelihoods: Tensor, weights: Tensor) -> Tensor:
    """Soft grades: Σ_d w_d · (−log P(d ∣ q)) / Σ_d w_d of each query: [D] or [B, D], [B, D] → [B].

    The weights are a teacher's, or those of integer grades (`grade_weights`); with the latter it is
    `listwise`, because the divisor 2^L − 1 cancels. A docid of weight 0 is not one of the query's own.

    >>> soft_ce(torch.tensor([-3.0, -6.0, -5.0]), torch.tensor([[1.0, 0.5, 0.0], [0.0, 0.0, 0.0]]))
    tensor([4., 0.])
    """
    # paper: not in it; soft grades are among its future work.
    weight = weights.to(log_likelihoods)  # [B, D]
    loss = torch.where(weight > 0, -log_likelihoods, 0.0)
    mass = weight.sum(1)
    return (weight * loss).sum(1) / torch.where(mass > 0, mass, 1.0)  # [B]


def grade_weights(grades: Tensor, levels: int) -> Tensor:
    """The weights of soft grades [B, D]: (2^g − 1)/(2^L − 1) of integers; floats are a teacher's, kept.

    >>> grade_weights(torch.tensor([[2, 1, 0]]), 2), grade_weights(torch.tensor([[0.7, 0.2, 0.0]]), 2)
    (tensor([[1.0000, 0.3333, 0.0000]]), tensor([[0.7000, 0.2000, 0.0000]]))
    """
    # paper: not in it.
    if grades.is_floating_point():
        return grades
    return (2.0 ** grades.clamp_min(0) - 1) / (2.0**levels - 1)


def lambda_rank(scores: Tensor, grades: Tensor, *, sigma: float = 1.0) -> Tensor:
    """The LR variant, LambdaRank on docid scores such as log-likelihoods: [D], [B, D] → [B].

    The mean over the pairs of a query's docids with g_i > g_j of |ΔnDCG_ij| · log(1 + exp(−σ(s_i − s_j))).
    ΔnDCG is the change of nDCG if the two were swapped, with gain 2^g − 1 and no cutoff, ranked by the
    current scores (ties by row) among the query's own docids; no gradient flows through it. A query without
    such a pair gives 0.
    """
    own = grades > 0
    width = int(own.sum(1).max()) if own.numel() else 0  # K, maximum docids per query
    by_score = scores.detach().argsort(descending=True, stable=True)  # [D]
    first = own[:, by_score].byte().argsort(dim=1, descending=True, stable=True)[:, :width]
    order = by_score[first]  # [B, K] each query's own docids, best first, then others
    return _lambda_rank_sorted(scores[order], grades.clamp_min(0).gather(1, order), sigma)


def lambda_rank_of_rows(scores: Tensor, grades: Tensor, *, sigma: float = 1.0) -> Tensor:
    """LambdaRank where each query has scores of its own docids, row by row: [B, K], [B, K] → [B].

    >>> lambda_rank_of_rows(torch.tensor([[0.0, 0.0]]), torch.tensor([[1, 2]]))
    tensor([0.1409])
    """
    best = scores.detach().masked_fill(grades <= 0, -inf).argsort(dim=1, descending=True, stable=True)
    return _lambda_rank_sorted(scores.gather(1, best), grades.clamp_min(0).gather(1, best), sigma)


def _lambda_rank_sorted(score: Tensor, grade: Tensor, sigma: float) -> Tensor:
    """LambdaRank of docids that are sorted by score, best first; grade 0 is padding [B, K] → [B]."""
    gain = (2.0 ** grade.to(score)) - 1
    discount = 1 / torch.arange(2, score.shape[1] + 2, device=score.device, dtype=score.dtype).log2()  # [K]
    ideal = (gain.sort(1, descending=True).values * discount).sum(1)[:, None, None]  # [B, 1, 1]
    change = _differences(gain).abs() * _differences(discount).abs() / ideal  # [B, K, K] NaN without docids
    ordered = (_differences(grade) > 0) & (grade > 0)[:, None, :]  # [B, K, K] i is better than j
    margin = _differences(score).masked_fill(~ordered, 0.0)
    loss = change.masked_fill(~ordered, 0.0) * -F.logsigmoid(sigma * margin)
    return loss.sum((1, 2)) / ordered.sum((1, 2)).clamp_min(1)  # [B]


def total(mgcc: Tensor, mle_q: Tensor, mle_d: Tensor, *, gamma: float = 1.0) -> Tensor:
    """L_total = γ·L_MGCC + L_MLE^q + L_MLE^d (Eq. 10): [B], [B], [N] → scalar; an empty term adds 0.

    >>> total(torch.tensor([1.0, 3.0]), torch.tensor([5.0, 7.0]), torch.tensor([]), gamma=0.5)
    tensor(7.)
    """
    # paper: sums over queries and documents; here means, so that batch size does not change the step size.
    parts = [part.sum() / max(1, part.numel()) for part in (mgcc, mle_q, mle_d)]
    return gamma * parts[0] + parts[1] + parts[2]


def _grade_means(values: Tensor, grades: Tensor, levels: int) -> Tensor:
    """The mean of the values [B, D] over the docids of each grade 1 … L, 0 for an absent grade: [B, L]."""
    if grades.numel() and (top := int(grades.max())) > levels:
        raise ValueError(f"levels is {levels}, but a docid of the batch has grade {top}")
    at = grades[:, :, None] == torch.arange(1, levels + 1, device=grades.device)  # [B, D, L]
    return torch.where(at, values[:, :, None], 0.0).sum(1) / at.sum(1).clamp_min(1)


def _unit(vectors: Tensor) -> Tensor:
    """Rows scaled to unit norm; a zero row stays zero (`F.normalize` would give it a gradient of 10¹²)."""
    length = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors / torch.where(length > 0, length, 1.0)


def _differences(values: Tensor) -> Tensor:
    """values_i − values_j along the last dimension: [..., K] → [..., K, K]."""
    return values[..., :, None] - values[..., None, :]


def _known(name: str, value: str, choices: Any) -> None:
    """Reject an unknown value, which must not silently fall back to a default."""
    if value not in get_args(choices):
        raise ValueError(f"{name} must be one of {', '.join(get_args(choices))}, not {value!r}")
