"""Texts and the docids they shall lead to → log-likelihoods and representations: teacher forcing.

What need not be computed is not: docids of like length are decoded together, a docid is read no further than
its last token that has a probability (behind it, all is forced) unless its representation is wanted, and with
the trie normaliser only branching nodes reach the output layer. Knows no loss, no grades and no optimiser.

Shapes: B texts, R docid rows, T docid tokens with start or end, S source tokens, W width, H width of ξ.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gr2 import losses
from gr2.decode import NodePrior, Normaliser
from gr2.network import END, START, Network
from gr2.trie import Trie

PASS = 128
"""What one more pass through the decoder costs, in tokens: it has to save as much padding (measured)."""


class TeacherForcing:
    """All docids as tensors: what the decoder reads, what it shall write, and at which nodes."""

    def __init__(
        self, tokens: Sequence[Sequence[int]], trie: Trie, normaliser: Normaliser, *, smoothing: float = 0.0
    ) -> None:
        """Lay the docids out.

        Args:
            tokens: of each docid, without the end.
            trie: of the same docids.
            normaliser: over what a token's probability is normalised.
            smoothing: label smoothing.
        """
        longest = max(map(len, tokens)) + 1
        self.trie, self.smoothing = trie, smoothing
        self.reads = torch.full((len(tokens), longest), START)  # [docids, T]
        self.writes = torch.full((len(tokens), longest), END)
        self.lengths = torch.tensor([len(row) + 1 for row in tokens])  # [docids] the end included
        for index, row in enumerate(tokens):
            self.reads[index, 1 : len(row) + 1] = torch.tensor(row)
            self.writes[index, : len(row)] = torch.tensor(row)
        self.nodes = _nodes(trie, tokens, longest) if normaliser == "trie" else None
        self.needed = self.lengths if self.nodes is None else _needed(trie, self.nodes, self.lengths)

    def __call__(
        self,
        network: Network,
        states: Tensor,
        mask: Tensor,
        owner: Tensor,
        docids: Tensor,
        *,
        prior: NodePrior | None = None,
        represent: bool = False,
    ) -> tuple[Tensor | None, Tensor]:
        """The docid of each row, written for its text.

        Args:
            network: encoder and decoder; its encoder has been read already.
            states: [B, S, W] the encoder's states of the texts.
            mask: [B, S] where they have a token.
            owner: [R] the text of each row.
            docids: [R] the docid of each row.
            prior: what the texts think of each node, by `Network.prefer`.
            represent: whether f_id is wanted.

        Returns:
            f_id [R, H] if wanted, and log P(id ∣ text) [R].
        """
        steps = (self.lengths if represent else self.needed)[docids]
        groups, found = _alike(steps), []
        for rows in groups:
            of, longest = owner[rows], int(steps[rows].max())
            hidden = network.decode(states[of], mask[of], self.reads[docids[rows], :longest])
            f_id = self._represent(network, hidden, docids[rows]) if represent else None
            found.append((f_id, self._likelihood(network, hidden, docids[rows], prior, of)))
        back = torch.cat(groups).argsort()
        likelihood = torch.cat([each for _, each in found])[back]
        return (
            torch.cat([f_id for f_id, _ in found if f_id is not None])[back] if represent else None
        ), likelihood

    def _real(self, hidden: Tensor, docids: Tensor) -> Tensor:
        """[R, T] the steps at which something is written."""
        return torch.arange(hidden.shape[1]) < self.lengths[docids][:, None]

    def _represent(self, network: Network, hidden: Tensor, docids: Tensor) -> Tensor:
        real = self._real(hidden, docids)
        real[:, 0] = False  # the start token is not the docid's
        return network.represent_docid(hidden, real)

    def _likelihood(
        self, network: Network, hidden: Tensor, docids: Tensor, prior: NodePrior | None, owner: Tensor
    ) -> Tensor:
        """Log-likelihoods [R] from decoder states [R, T, W]."""
        real, writes = self._real(hidden, docids), self.writes[docids, : hidden.shape[1]]
        if self.nodes is None:
            return losses.log_likelihood(network.head(hidden).float(), writes, real, smoothing=self.smoothing)
        at = self.nodes[docids, : hidden.shape[1]][real].numpy()
        branching = torch.from_numpy(self.trie.first[at + 1] - self.trie.first[at] > 1)
        row = torch.nonzero(real)[:, 0][branching]
        position, token, child = map(torch.from_numpy, self.trie.children(at[branching.numpy()]))
        steps = losses.trie_log_likelihood(
            network.head(hidden[real][branching]).float(),
            position,
            token,
            writes[real][branching],
            prior=None if prior is None else prior.score(owner[row[position]], child),
            smoothing=self.smoothing,
        )
        return steps.new_zeros(len(docids)).index_add(0, row, steps)


def _alike(steps: Tensor) -> list[Tensor]:
    """Rows in groups of like length, longest first: cut where it saves more padding than a pass costs."""
    order = steps.argsort(descending=True, stable=True)
    lengths = steps[order].tolist()
    starts = [0]
    for place, length in enumerate(lengths):
        if (len(lengths) - place) * (lengths[starts[-1]] - length) > PASS:
            starts.append(place)
    return [order[a:b] for a, b in zip(starts, [*starts[1:], len(lengths)], strict=True)]


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


def _needed(trie: Trie, nodes: Tensor, lengths: Tensor) -> Tensor:
    """[docids] the steps of each docid up to its last branching node; at least 1."""
    at, place = nodes.numpy(), torch.arange(nodes.shape[1])
    branching = torch.from_numpy(trie.first[at + 1] - trie.first[at] > 1) & (place < lengths[:, None])
    return torch.where(branching, place + 1, 1).amax(1)
