"""Graded judgements → offsets δ of document vectors: a convex regression on φ, by L-BFGS.

min over u of Σ_q L(φ(q, ·)) + λ‖u‖², where φ = φ₀ + s·⟨q̂, δ_d⟩ and L is any loss of `losses`: with a softmax
over the documents, −log P(d ∣ q) takes the place of −L_Pair, so MGCC and its ablations apply as they are. All
judgements of a query are used at once. The softmax runs over all documents, or over those that some training
query judged relevant, which is the paper's A_q: a document without a judgement is not irrelevant.

δ_d is the document's own u_d, or Σ_t x_dt·u_t over features t that documents share (their terms, the prefixes
of their codes), so that documents without a judgement learn too, or both.

Adam is the wrong tool here: every document gets a small push at every step and Adam ignores its size, so
unjudged documents drift (docs/log.md).

Shapes: Q queries, N documents, K the most judged documents of a query, W width, M shared features.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from gr2.training import losses
from gr2.training.config import ObjectiveConfig
from gr2.training.variants import QUERY_LOSSES, variant_objective

Shared = Literal["", "terms", "prefixes"]
CHUNK = 512
"""Queries whose scores exist at a time."""


@dataclass(frozen=True, kw_only=True)
class RegressionConfig:
    """How offsets are learned."""

    variant: str = "gr2"
    """The loss, by the name of its variant: gr2 (MGCC), no-lambda, no-max, MLE, CE or LR."""
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


@dataclass(frozen=True)
class Judged:
    """The judged documents of each query in one block."""

    documents: Tensor
    """[Q, K] places of the documents, 0 where there is none."""
    grades: Tensor
    """[Q, K] their grades, 0 where there is none."""
    levels: int
    """L."""

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, int]], docnos: Mapping[str, int]) -> "Judged":
        """Judgements by query (docno → grade); documents that are not in `docnos` are left out."""
        kept = [[(docnos[d], g) for d, g in row.items() if g > 0 and d in docnos] for row in rows]
        most = max(map(len, kept), default=0)
        documents = torch.zeros(len(kept), most, dtype=torch.long)
        grades = torch.zeros_like(documents)
        for place, row in enumerate(kept):
            for column, (document, grade) in enumerate(row):
                documents[place, column], grades[place, column] = document, grade
        return cls(documents, grades, int(grades.max()) if grades.numel() else 0)

    def relevant(self, count: int) -> Tensor:
        """[N] which documents are relevant to some query."""
        found = torch.zeros(count, dtype=torch.bool)
        found[self.documents[self.grades > 0]] = True
        return found


def fit_offsets(
    queries: Tensor,
    base: Tensor,
    judged: Judged,
    *,
    scale: float,
    config: RegressionConfig | None = None,
    features: sparse.csr_matrix | None = None,
    progress: Callable[[int, float], None] = lambda iteration, value: None,
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
    """
    config = config or RegressionConfig()
    count, width = base.shape[1], queries.shape[1]
    everywhere = torch.ones(count, dtype=torch.bool)
    members = judged.relevant(count) if config.negatives == "judged" else everywhere
    moving = torch.nonzero(members)[:, 0]  # the documents in the softmax
    place = torch.zeros(count, dtype=torch.long)
    place[moving] = torch.arange(len(moving))
    base = base[:, moving]
    own = torch.zeros(len(moving) if config.own else 0, width)
    features = _shared(features, config, count)
    shared = torch.zeros(features.shape[1], width)
    inside = features[moving.numpy()]  # [moving, M]
    loss = _loss(config.variant, judged.levels)
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
            value = loss(phi, place[judged.documents[part]], judged.grades[part])
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
    offsets = _product(features, shared)
    if config.own:
        offsets[moving] += own
    return offsets


def _shared(features: sparse.csr_matrix | None, config: RegressionConfig, count: int) -> sparse.csr_matrix:
    """The shared features of a configuration [N, M]; M is 0 without any."""
    if not config.shared:
        return sparse.csr_matrix((count, 0), dtype=np.float32)
    if features is None:
        raise ValueError(f"the documents' {config.shared} are needed to share offsets along them")
    return features


def _product(matrix: sparse.csr_matrix, dense: Tensor) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(matrix @ dense.numpy(), dtype=np.float32))


def _loss(variant: str, levels: int) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Scores [q, D], columns of the judged documents [q, K] and their grades → the summed loss."""
    switches = variant_objective(variant, ObjectiveConfig())

    def loss(phi: Tensor, documents: Tensor, grades: Tensor) -> Tensor:
        own = phi.gather(1, documents)
        total = torch.logsumexp(phi, 1, keepdim=True)
        pair = torch.where(grades > 0, total - own, 0.0)  # −log P of each judged document
        if switches.gamma:
            each = losses.mgcc_of_pairs(
                pair, grades, levels=levels, penalty=switches.penalty, constraint=switches.constraint
            )
        elif switches.query_loss == "lambda_rank":
            each = losses.lambda_rank_of_rows(own, grades)
        else:
            each = QUERY_LOSSES[switches.query_loss](-pair, grades, levels)
        return each.sum()

    return loss
