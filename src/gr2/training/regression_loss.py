"""Scores φ of documents and graded judgements → the loss of each query, by the name of a variant.

With a softmax over the documents, −log P(d ∣ q) takes the place of −L_Pair, so MGCC, its ablations and the
other losses of `losses` apply to φ as they are. paper: not in it; its losses are of representations and of
the likelihoods of docids.

Shapes: Q queries, D documents in the softmax, K the most judged documents of a query, N all documents.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, log2
from numbers import Integral
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from gr2.model.look_ahead import Judgement
from gr2.training import losses
from gr2.training.config import Against, ObjectiveConfig
from gr2.training.variants import QUERY_LOSSES, query_losses, variant_objective


@dataclass(frozen=True)
class Judged:
    """The judged documents of each query in one block, with integer grades and with weights."""

    documents: Tensor
    """[Q, K] places of the documents, 0 where there is none."""
    grades: Tensor
    """[Q, K] their grades, 0 where there is none; of a teacher's weight, the grade of the nearest weight."""
    weights: Tensor
    """[Q, K] a teacher's weights, or those of the grades (`losses.grade_weights`), 0 where there is none."""
    levels: int
    """L."""

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Judgement]], docnos: Mapping[str, int]) -> "Judged":
        """Judgements by query; documents that are not in `docnos` are left out.

        Args:
            rows: docno → grade, an integer, or a teacher's weight, a float in (0, 1].
            docnos: the place of each document.

        >>> judged = Judged.of([{"a": 2, "b": 1}, {"b": 0.9, "c": 0.2}], {"a": 0, "b": 1, "c": 2})
        >>> judged.grades.tolist(), judged.levels
        ([[2, 1], [2, 1]], 2)
        >>> judged.weights
        tensor([[1.0000, 0.3333],
                [0.9000, 0.2000]])
        """
        kept = [[(docnos[d], value) for d, value in row.items() if value > 0 and d in docnos] for row in rows]
        levels = max((_level(value) for row in kept for _, value in row), default=0)
        documents = torch.zeros(len(kept), max(map(len, kept), default=0), dtype=torch.long)
        grades, weights = torch.zeros_like(documents), torch.zeros(documents.shape)
        for place, row in enumerate(kept):
            for column, (document, value) in enumerate(row):
                documents[place, column] = document
                grades[place, column] = _grade(value, levels)
                weights[place, column] = _weight(value, levels)
        return cls(documents, grades, weights, levels)

    def relevant(self, count: int) -> Tensor:
        """[N] which documents are relevant to some query."""
        found = torch.zeros(count, dtype=torch.bool)
        found[self.documents[self.grades > 0]] = True
        return found

    def placed(self, place: Tensor) -> "Judged":
        """The same with documents at other places, given for each of the present ones [N]."""
        return replace(self, documents=place[self.documents])

    def only(self, part: slice) -> "Judged":
        """Some of the queries."""
        return Judged(self.documents[part], self.grades[part], self.weights[part], self.levels)


class RegressionLoss(Protocol):
    """Scores [Q, D], judgements and the mass outside [Q, 1] → the loss of each query [Q]."""

    def __call__(self, phi: Tensor, judged: Judged, outside: Tensor | None = None) -> Tensor:
        """The loss of each query."""


def loss_of(variant: str) -> RegressionLoss:
    """The loss of a variant.

    The mass outside is the logsumexp of the scores of documents that are in the softmax, but not among
    the D; None if there are none.
    """
    switches = variant_objective(variant, ObjectiveConfig())

    def loss(phi: Tensor, judged: Judged, outside: Tensor | None = None) -> Tensor:
        pair = pair_losses(phi, judged, outside, against=switches.against)
        if switches.gamma:
            return losses.mgcc_of_pairs(
                pair,
                judged.grades,
                levels=judged.levels,
                penalty=switches.penalty,
                constraint=switches.constraint,
            )
        each = [_of_pairs(name, phi, pair, judged) for name in query_losses(switches.query_loss)]
        return torch.stack(each).sum(0)

    return loss


def _of_pairs(name: str, phi: Tensor, pair: Tensor, judged: Judged) -> Tensor:
    """One of the losses of query-docid pairs [Q]; LambdaRank needs the order of the scores alone."""
    if name == "lambda_rank":
        return losses.lambda_rank_of_rows(phi.gather(1, judged.documents), judged.grades)
    given = judged.weights if name == "soft" else judged.grades
    return QUERY_LOSSES[name](-pair, given, judged.levels)


def pair_losses(
    phi: Tensor, judged: Judged, outside: Tensor | None = None, *, against: Against = "all"
) -> Tensor:
    """−log P(d ∣ q) of each judged document [Q, K], 0 where there is none; see `losses.pair_loss`."""
    own, known = phi.gather(1, judged.documents), judged.grades > 0
    if against == "all":
        total = _added(phi.logsumexp(1, keepdim=True), outside)
        return torch.where(known, total - own, 0.0)
    others = torch.ones_like(phi, dtype=torch.bool)
    others[torch.nonzero(known)[:, 0], judged.documents[known]] = False
    rest = _added(losses.log_mass(phi, others), outside)  # [Q, 1] all that is not judged, as one negative
    grades = F.pad(judged.grades, (1, 0))  # [Q, 1 + K]
    negatives = F.pad(rest > -inf, (0, own.shape[1]))
    return losses.pair_loss(torch.cat([rest, own], 1), grades, negatives, against=against)[:, 1:]


def _added(inside: Tensor, outside: Tensor | None) -> Tensor:
    return inside if outside is None else torch.logaddexp(inside, outside)


def _level(judgement: Judgement) -> int:
    """The grade; a teacher's weight needs one level at least."""
    return int(judgement) if isinstance(judgement, Integral) else 1


def _weight(judgement: Judgement, levels: int) -> float:
    if isinstance(judgement, Integral):
        return float((2.0**judgement - 1) / (2.0**levels - 1))
    if not judgement <= 1:
        raise ValueError(f"expected a grade, or a teacher's weight from 0 to 1, found {judgement!r}")
    return float(judgement)


def _grade(judgement: Judgement, levels: int) -> int:
    """The grade; of a teacher's weight the one whose weight is nearest on the scale of grades."""
    if isinstance(judgement, Integral):
        return int(judgement)
    return max(1, round(log2(1 + judgement * (2.0**levels - 1))))
