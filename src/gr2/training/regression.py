"""Graded judgements → offsets δ of document vectors: a convex regression on φ, by L-BFGS.

min over u of Σ_q L(φ(q, ·)) + λ‖u‖², where φ = φ₀ + s·⟨q̂, δ_d⟩ and L is any loss of `regression_loss`. All
judgements of a query are used at once. The softmax runs over all documents, or over those that some training
query judged relevant, which is the paper's A_q: a document without a judgement is not irrelevant.

δ_d is the document's own u_d, or Σ_t x_dt·u_t over features t that documents share (their terms, the prefixes
of their codes), so that documents without a judgement learn too, or both.

Beyond `LIMIT` documents, "all" moves only those that are judged or among the `NEAREST` best of φ₀ for some
training query; the rest stay in the softmax with the mass that they have under φ₀, a constant of each query.
With offsets of their own this is the same objective, and only the offsets of those documents are fixed at 0.
With shared offsets it is an approximation: documents outside move with their features when they are scored,
but not in the softmax that is fitted.

With fewer queries than dimensions, u is fitted in a basis of the span of the queries: the gradient never
leaves it, so the optimum is the same, with a fraction of the numbers.

Adam is the wrong tool here: every document gets a small push at every step and Adam ignores its size, so
unjudged documents drift (docs/log.md).

Shapes: Q queries, N documents, K the most judged documents of a query, W width, M shared features.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from gr2.training.regression_loss import Judged, loss_of

Shared = Literal["", "terms", "prefixes", "codes"]
CHUNK = 512
"""Queries whose scores exist at a time."""
LIMIT = 50_000
"""Documents up to which a softmax over all of them moves all of them."""
NEAREST = 1000
"""Documents of each query, best by φ₀, that move beyond that."""


@dataclass(frozen=True, kw_only=True)
class RegressionConfig:
    """How offsets are learned."""

    variant: str = "gr2"
    """The loss, by the name of its variant: gr2 (MGCC), no-lambda, no-max, MLE, CE, LR, listwise,
    decoupled or soft."""
    decay: float = 0.1
    """λ, the weight of ‖δ‖²."""
    negatives: Literal["judged", "all"] = "judged"
    """Documents in the softmax: those relevant to some training query (the paper's A_q), or all."""
    own: bool = True
    """Whether every document has an offset of its own."""
    shared: Shared = ""
    """Features whose offsets documents share; empty shares nothing."""
    iterations: int = 30
    """Iterations of L-BFGS."""


def fit_offsets(
    queries: Tensor,
    base: Tensor,
    judged: Judged,
    *,
    scale: float,
    config: RegressionConfig | None = None,
    features: sparse.csr_matrix | None = None,
    progress: Callable[[int, float], None] = lambda iteration, value: None,
    of_features: bool = False,
) -> Tensor:
    """The offsets δ [N, W] that order the judged documents best.

    Args:
        queries: [Q, W] unit vectors of the training queries.
        base: [Q, N] φ₀ of every document for each of them.
        judged: their judgements.
        scale: s.
        config: loss, λ, negatives, and which offsets there are.
        features: [N, M] x, needed if the configuration shares offsets.
        progress: called with the number of evaluations and the value of the objective.
        of_features: return the offsets u of the features [M, W] instead.
    """
    config = config or RegressionConfig()
    count = base.shape[1]
    queries, basis = _in_basis(queries)
    width = queries.shape[1]
    members = _members(base, judged, config)
    outside = _outside(base, members) if config.negatives == "all" else None
    moving = torch.nonzero(members)[:, 0]  # the documents whose scores are fitted
    place = torch.zeros(count, dtype=torch.long)
    place[moving] = torch.arange(len(moving))
    base = base[:, moving]
    own = torch.zeros(len(moving) if config.own else 0, width)
    features = _shared(features, config, count)
    shared = torch.zeros(features.shape[1], width)
    inside = features[moving.numpy()]  # [moving, M]
    loss, placed = loss_of(config.variant), judged.placed(place)
    optimiser = torch.optim.LBFGS(
        [own, shared], max_iter=config.iterations, history_size=8, line_search_fn="strong_wolfe"
    )
    evaluations = 0

    def objective() -> float:
        nonlocal evaluations
        delta = _product(inside, shared) + (own if config.own else 0.0)  # [moving, W]
        delta.requires_grad_(True)
        total = config.decay * float(own.square().sum() + shared.square().sum())
        for start in range(0, len(queries), CHUNK):
            part = slice(start, start + CHUNK)
            phi = base[part] + scale * (queries[part] @ delta.T)  # [q, moving]
            value = loss(phi, placed.only(part), None if outside is None else outside[part]).sum()
            value.backward()  # type: ignore[no-untyped-call]
            total += float(value.detach())
        slope = torch.zeros_like(delta) if delta.grad is None else delta.grad
        own.grad = slope[: len(own)] + 2 * config.decay * own
        shared.grad = _product(inside.T, slope) + 2 * config.decay * shared
        evaluations += 1
        progress(evaluations, total)
        return total

    if len(own) or len(shared):
        optimiser.step(objective)  # type: ignore[no-untyped-call]
    if of_features:
        return shared if basis is None else shared @ basis
    offsets = _product(features, shared)
    if config.own:
        offsets[moving] += own
    return offsets if basis is None else offsets @ basis


def _in_basis(queries: Tensor) -> tuple[Tensor, Tensor | None]:
    """The coordinates of Q < W queries in an orthonormal basis [Q, W] of their span; else as they are."""
    if len(queries) >= queries.shape[1]:
        return queries, None
    basis = torch.linalg.qr(queries.T).Q.T
    return queries @ basis.T, basis


def _members(base: Tensor, judged: Judged, config: RegressionConfig) -> Tensor:
    """[N] the documents whose scores are fitted."""
    count = base.shape[1]
    if config.negatives == "all" and count <= LIMIT:
        return torch.ones(count, dtype=torch.bool)
    found = judged.relevant(count)
    if config.negatives == "all":
        for rows in torch.split(base, CHUNK):
            found[rows.topk(min(NEAREST, count), 1).indices.flatten()] = True
    return found


def _outside(base: Tensor, members: Tensor) -> Tensor | None:
    """[Q, 1] the log of the mass that documents outside have under φ₀; None if there are none."""
    if members.all():
        return None
    return torch.cat([rows[:, ~members].logsumexp(1, keepdim=True) for rows in torch.split(base, CHUNK)])


def _shared(features: sparse.csr_matrix | None, config: RegressionConfig, count: int) -> sparse.csr_matrix:
    """The shared features of a configuration [N, M]; M is 0 without any."""
    if not config.shared:
        return sparse.csr_matrix((count, 0), dtype=np.float32)
    if features is None:
        raise ValueError(f"the documents' {config.shared} are needed to share offsets along them")
    return features


def _product(matrix: sparse.csr_matrix, dense: Tensor) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(matrix @ dense.numpy(), dtype=np.float32))
