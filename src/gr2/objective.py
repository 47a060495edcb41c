"""A batch and a network → L_total and its parts (paper Eq. total).

The variants of the paper are rows of `RECIPES`: data, not code. Two normalisers: `vocabulary` (softmax over
all docid tokens) and `trie` (softmax over the children of a node, so that forced tokens cost nothing); a
model is trained with the one it is searched with. This file knows no optimiser and no text.

Shapes: B queries, D docid rows, N texts, S source tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from gr2 import losses
from gr2.batches import Batch
from gr2.decode import Normaliser
from gr2.forcing import TeacherForcing
from gr2.network import Network
from gr2.ranks import gather_rows
from gr2.trie import Trie


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig:
    """L_total = γ·L_MGCC + L_MLE^q + L_MLE^d and its switches; the defaults are the paper's."""

    gamma: float = 1.0
    """Weight of L_MGCC; 0 leaves it and the representations out."""
    penalty: losses.Penalty = "prose"
    """Which reading of λ; `uniform` is the variant −λ."""
    constraint: losses.Constraint = "pair"
    """How the grade constraint compares grades; `off` is the variant −Max."""
    temperature: float = 0.1
    """τ."""
    similarity: losses.Similarity = "cosine"
    """Of f_q and f_id."""
    queries: Literal["mle", "weighted", "lambda_rank"] = "mle"
    """How query-docid pairs are trained: L_MLE^q, its grade-weighted form (CE), or with LambdaRank (LR)."""
    normaliser: Normaliser = "vocabulary"
    """Over what a token's probability is normalised."""
    smoothing: float = 0.1
    """Label smoothing."""


RECIPES: Mapping[str, ObjectiveConfig] = {
    "gr2": ObjectiveConfig(),
    "-lambda": ObjectiveConfig(penalty="uniform"),
    "-Max": ObjectiveConfig(constraint="off"),
    "MLE": ObjectiveConfig(gamma=0.0),
    "CE": ObjectiveConfig(gamma=0.0, queries="weighted"),
    "LR": ObjectiveConfig(gamma=0.0, queries="lambda_rank"),
}
"""The paper's variants by name; −RF is `gr2` on pseudo-query docids."""


class Objective:
    """The loss of a training run: its docids as tensors, its trie, its switches."""

    def __init__(
        self, tokens: Sequence[Sequence[int]], trie: Trie, levels: int, config: ObjectiveConfig
    ) -> None:
        """Take all docids, their trie, and L, the number of grades."""
        self.levels, self.config = levels, config
        self.forced = TeacherForcing(tokens, trie, config.normaliser, smoothing=config.smoothing)

    def __call__(
        self, network: Network, batch: Batch, states: Tensor, text_states: Tensor
    ) -> dict[str, Tensor]:
        """The parts of the loss and `total`, from the encoder's states of queries and texts."""
        parts: dict[str, Tensor] = {}
        zero = states.new_zeros(1)
        pairs, contrast, documents = zero, zero, zero
        if len(batch.docids):
            f_id, likelihood = self.forced(
                network,
                states,
                batch.query_mask,
                batch.owner,
                batch.docids,
                prior=network.prefer(batch.queries, states, batch.query_mask),
                represent=self.config.gamma > 0,
            )
            pairs = self._pairs(likelihood, batch.grades)
            if f_id is not None:
                contrast = self._mgcc(network, batch, states, f_id)
                parts["mgcc"] = contrast.mean()
            parts["mle_q"] = pairs.mean()
        elif self.config.gamma and (others := batch.elsewhere.shape[1]):
            # The other ranks wait for this one's rows, though there are none, and for what it says of theirs.
            nothing = torch.zeros(0, network.xi_docid.out_features, requires_grad=True)
            contrast = 0.0 * gather_rows(nothing, others).sum()
        if len(batch.text_docids):
            each = torch.arange(len(batch.text_docids))
            prior = network.prefer(batch.texts, text_states, batch.text_mask)
            _, likelihood = self.forced(
                network, text_states, batch.text_mask, each, batch.text_docids, prior=prior
            )
            documents = losses.mle_d(likelihood)
            parts["mle_d"] = documents.mean()
        parts["total"] = losses.total(contrast, pairs, documents, gamma=self.config.gamma)
        return parts

    def _pairs(self, likelihood: Tensor, grades: Tensor) -> Tensor:
        if self.config.queries == "weighted":
            return losses.weighted_ce(likelihood, grades)
        pairs = losses.mle_q(likelihood, grades, levels=self.levels)
        if self.config.queries == "lambda_rank":
            pairs = pairs + losses.lambda_rank(likelihood, grades)
        return pairs

    def _mgcc(self, network: Network, batch: Batch, states: Tensor, f_id: Tensor) -> Tensor:
        f_q = network.represent_query(states, batch.query_mask).float()
        f_id = f_id.float()
        grades, negatives = batch.grades, batch.negatives
        if others := batch.elsewhere.shape[1]:
            f_id = torch.cat([f_id, gather_rows(f_id, others)])
            grades, negatives = F.pad(grades, (0, others)), torch.cat([negatives, batch.elsewhere], 1)
        similarities = losses.similarity(
            f_q, f_id, kind=self.config.similarity, temperature=self.config.temperature
        )
        return losses.mgcc(
            similarities,
            grades,
            negatives,
            levels=self.levels,
            penalty=self.config.penalty,
            constraint=self.config.constraint,
        )


def recipe(name: str, **changes: object) -> ObjectiveConfig:
    """A variant by name, with changes; an unknown name lists the known ones."""
    if name not in RECIPES:
        raise ValueError(f"no recipe is called {name!r}; there are: {', '.join(RECIPES)}")
    return replace(RECIPES[name], **changes)  # type: ignore[arg-type]
