"""A batch and a network → L_total and its parts (paper Eq. total).

The variants of the paper are rows of `RECIPES`: data, not code. Two normalisers: `vocabulary` (softmax over
all docid tokens) and `trie` (softmax over the children of a node, so that forced tokens cost nothing); a
model is trained with the one it is searched with. This file knows no optimiser and no text.

Shapes: B queries, D docid rows, N texts, T docid tokens with start or end, S source tokens, V docid tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from gr2 import losses
from gr2.batches import Batch
from gr2.decode import NodePrior, Normaliser
from gr2.network import END, START, Network
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
        """Lay the docids out as what the decoder reads and what it shall write."""
        longest = max(map(len, tokens)) + 1
        self.trie, self.levels, self.config = trie, levels, config
        self.reads = torch.full((len(tokens), longest), START)  # [docids, T]
        self.writes = torch.full((len(tokens), longest), END)
        self.lengths = torch.tensor([len(row) + 1 for row in tokens])  # [docids] the end included
        for index, row in enumerate(tokens):
            self.reads[index, 1 : len(row) + 1] = torch.tensor(row)
            self.writes[index, : len(row)] = torch.tensor(row)
        self.nodes = _nodes(trie, tokens, longest) if config.normaliser == "trie" else None
        self.decided = self.lengths if self.nodes is None else _decided(trie, self.nodes, self.lengths)

    def __call__(
        self, network: Network, batch: Batch, states: Tensor, text_states: Tensor
    ) -> dict[str, Tensor]:
        """The parts of the loss and `total`, from the encoder's states of queries and texts."""
        parts: dict[str, Tensor] = {}
        zero = states.new_zeros(1)
        pairs, contrast, documents = zero, zero, zero
        if len(batch.docids):
            hidden, mask, likelihood = self._decode(
                network, states, batch.query_mask, batch.owner, batch.docids, whole=self.config.gamma > 0
            )
            pairs = self._pairs(likelihood, batch.grades)
            if self.config.gamma:
                contrast = self._mgcc(network, batch, states, hidden, mask)
                parts["mgcc"] = contrast.mean()
            parts["mle_q"] = pairs.mean()
        elif self.config.gamma and (others := batch.elsewhere.shape[1]):
            # The other ranks wait for this one's rows, though there are none, and for what it says of theirs.
            nothing = torch.zeros(0, network.xi_docid.out_features, requires_grad=True)
            contrast = 0.0 * gather_rows(nothing, others).sum()
        if len(batch.text_docids):
            each = torch.arange(len(text_states), device=text_states.device)
            _, _, likelihood = self._decode(network, text_states, batch.text_mask, each, batch.text_docids)
            documents = losses.mle_d(likelihood)
            parts["mle_d"] = documents.mean()
        parts["total"] = losses.total(contrast, pairs, documents, gamma=self.config.gamma)
        return parts

    def _decode(
        self,
        network: Network,
        states: Tensor,
        mask: Tensor,
        source: Tensor,
        docids: Tensor,
        *,
        whole: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Each docid under teacher forcing on the text of `states` that `source` [R] names.

        Unless the `whole` docid is wanted, for its representation, the decoder stops where all that follows
        is forced.

        Returns:
            Decoder states [R, T, W], where docid tokens stand [R, T], log-likelihoods [R].
        """
        lengths = (self.lengths if whole else self.decided)[docids]
        longest = int(lengths.max())
        reads, writes = self.reads[docids, :longest], self.writes[docids, :longest]
        place = torch.arange(longest)
        real = place < lengths[:, None]  # [R, T] steps at which something is written
        hidden = network.decode(states[source], mask[source], reads)
        if self.nodes is None:
            likelihood = losses.log_likelihood(
                network.head(hidden).float(), writes, real, smoothing=self.config.smoothing
            )
        else:
            prior = network.prior(states, mask) if network.prior is not None else None
            nodes = self.nodes[docids, :longest]
            likelihood = self._trie_likelihood(network, hidden, writes, real, nodes, prior, source)
        return hidden, real & (place > 0), likelihood

    def _trie_likelihood(
        self,
        network: Network,
        hidden: Tensor,
        writes: Tensor,
        real: Tensor,
        nodes: Tensor,
        prior: NodePrior | None,
        source: Tensor,
    ) -> Tensor:
        """Only steps at branching nodes have a probability to learn, so only they reach the head."""
        at = nodes[real].numpy()
        branching = torch.from_numpy(self.trie.first[at + 1] - self.trie.first[at] > 1)
        row = torch.nonzero(real)[:, 0][branching]
        position, token, child = map(torch.from_numpy, self.trie.children(at[branching.numpy()]))
        steps = losses.trie_log_likelihood(
            network.head(hidden[real][branching]).float(),
            position,
            token,
            writes[real][branching],
            prior=None if prior is None else prior.score(source[row[position]], child),
            smoothing=self.config.smoothing,
        )
        return steps.new_zeros(len(nodes)).index_add(0, row, steps)

    def _pairs(self, likelihood: Tensor, grades: Tensor) -> Tensor:
        if self.config.queries == "weighted":
            return losses.weighted_ce(likelihood, grades)
        pairs = losses.mle_q(likelihood, grades, levels=self.levels)
        if self.config.queries == "lambda_rank":
            pairs = pairs + losses.lambda_rank(likelihood, grades)
        return pairs

    def _mgcc(self, network: Network, batch: Batch, states: Tensor, hidden: Tensor, mask: Tensor) -> Tensor:
        f_q = network.represent_query(states, batch.query_mask).float()
        f_id = network.represent_docid(hidden, mask).float()
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


def _decided(trie: Trie, nodes: Tensor, lengths: Tensor) -> Tensor:
    """[docids] how many steps it takes until all that follows is forced; at least 1."""
    at = nodes.numpy()
    place = torch.arange(1, nodes.shape[1] + 1)  # [T]
    branching = torch.from_numpy(trie.first[at + 1] - trie.first[at] > 1) & (place <= lengths[:, None])
    return (branching * place).amax(1).clamp_min(1)


def recipe(name: str, **changes: object) -> ObjectiveConfig:
    """A variant by name, with changes; an unknown name lists the known ones."""
    if name not in RECIPES:
        raise ValueError(f"no recipe is called {name!r}; there are: {', '.join(RECIPES)}")
    return replace(RECIPES[name], **changes)  # type: ignore[arg-type]


def _nodes(trie: Trie, tokens: Sequence[Sequence[int]], longest: int) -> Tensor:
    """[docids, T] the node at which each token of a docid is written, 0 behind its end."""
    nodes = np.zeros((len(tokens), longest), np.int64)
    lengths = np.array([len(row) for row in tokens])
    padded = np.full((len(tokens), longest), END, np.int64)
    for index, sequence in enumerate(tokens):
        padded[index, : len(sequence)] = sequence
    for depth in range(longest - 1):
        going = np.flatnonzero(lengths > depth)
        row, token, child = trie.children(nodes[going, depth])
        taken = token == padded[going[row], depth]
        nodes[going[row[taken]], depth + 1] = child[taken]
    return torch.from_numpy(nodes)
