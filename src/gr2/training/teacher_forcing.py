"""Teacher forcing: texts and their target docids → log-likelihoods and representations.

Unnecessary work is skipped: docids of similar length are decoded together to save padding; with the trie
normaliser, a docid is decoded only up to its last branching node unless its representation is needed, and
only branching nodes reach the output layer.

Shapes: B texts, R docid rows, T docid tokens with start or end, S source tokens, W width, H width of ξ.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gr2.decode import NodePrior
from gr2.decode.paths import paths_of
from gr2.docids.trie import Trie
from gr2.model.config import Normaliser
from gr2.model.network import END, START, Network
from gr2.training import likelihoods

PASS_COST = 128
"""Cost of one more pass through the decoder, as the number of padding tokens it must save (measured)."""


class TeacherForcing:
    """All docids as tensors: the decoder's input, its target, and the trie nodes along the way."""

    def __init__(
        self,
        tokens: Sequence[Sequence[int]],
        trie: Trie,
        normaliser: Normaliser,
        *,
        smoothing: float = 0.0,
        device: torch.device | None = None,
    ) -> None:
        """Convert the docids to tensors.

        Args:
            tokens: the tokens of each docid, without the end token.
            trie: the trie of the same docids.
            normaliser: what a token's probability is normalised over.
            smoothing: label smoothing.
            device: the network's device.
        """
        device = device or torch.device("cpu")
        length = max(map(len, tokens)) + 1
        reads = np.full((len(tokens), length), START, np.int64)  # [docids, T]
        writes = np.full((len(tokens), length), END, np.int64)
        for index, row in enumerate(tokens):
            reads[index, 1 : len(row) + 1] = row
            writes[index, : len(row)] = row
        lengths = np.array([len(row) + 1 for row in tokens], np.int64)  # [docids] including the end token
        nodes = _nodes(trie, writes, lengths) if normaliser == "trie" else None
        needed = lengths if nodes is None else _needed(trie, nodes, lengths)
        self.smoothing, self.paths = smoothing, paths_of(trie, device)
        self.reads, self.writes, self.lengths, self.needed = (
            torch.from_numpy(array).to(device) for array in (reads, writes, lengths, needed)
        )
        self.nodes = None if nodes is None else torch.from_numpy(nodes).to(device)

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
        smoothing: float | None = None,
    ) -> tuple[Tensor | None, Tensor]:
        """Score the docid of each row for its text.

        Args:
            network: its decoder and head are used; the encoder has been run already.
            states: [B, S, W] the encoder states of the texts.
            mask: [B, S] False or 0 at padding.
            owner: [R] the index of each row's text.
            docids: [R] the index of each row's docid.
            prior: scores of the trie nodes for the texts, from `Network.prior_scores`.
            represent: also compute f_id.
            smoothing: label smoothing; None takes the configured one, 0 gives true log-likelihoods.

        Returns:
            f_id [R, H] or None, and log P(id ∣ text) [R].
        """
        smoothing = self.smoothing if smoothing is None else smoothing
        steps = (self.lengths if represent else self.needed)[docids]
        groups, found = _similar_lengths(steps), []
        for rows in groups:
            of, length = owner[rows], int(steps[rows].max())
            hidden = network.decode(states[of], mask[of], self.reads[docids[rows], :length])
            f_id = self._represent(network, hidden, docids[rows]) if represent else None
            found.append((f_id, self._likelihood(network, hidden, docids[rows], prior, of, smoothing)))
        back = torch.cat(groups).argsort()
        likelihood = torch.cat([each for _, each in found])[back]
        f_ids = [f_id for f_id, _ in found if f_id is not None]
        return (torch.cat(f_ids)[back] if represent else None), likelihood

    def _real(self, hidden: Tensor, docids: Tensor) -> Tensor:
        """[R, T] True at the steps that have a target token."""
        return torch.arange(hidden.shape[1], device=hidden.device) < self.lengths[docids][:, None]

    def _represent(self, network: Network, hidden: Tensor, docids: Tensor) -> Tensor:
        real = self._real(hidden, docids)
        real[:, 0] = False  # the start token does not belong to the docid
        return network.represent_docid(hidden, real)

    def _likelihood(
        self,
        network: Network,
        hidden: Tensor,
        docids: Tensor,
        prior: NodePrior | None,
        owner: Tensor,
        smoothing: float,
    ) -> Tensor:
        """Log-likelihoods [R] from decoder states [R, T, W]."""
        real, writes = self._real(hidden, docids), self.writes[docids, : hidden.shape[1]]
        if self.nodes is None:
            return likelihoods.log_likelihood(network.head(hidden).float(), writes, real, smoothing=smoothing)
        at = self.nodes[docids, : hidden.shape[1]][real]
        branching = self.paths.count(at) > 1
        row = torch.nonzero(real)[:, 0][branching]
        position, token, child = self.paths.children(at[branching])
        steps = likelihoods.trie_log_likelihood(
            network.head(hidden[real][branching]).float(),
            position,
            token,
            writes[real][branching],
            prior=None if prior is None else prior.score(owner[row[position]], child),
            smoothing=smoothing,
        )
        return steps.new_zeros(len(docids)).index_add(0, row, steps)


def _similar_lengths(steps: Tensor) -> list[Tensor]:
    """Rows in groups of similar length, longest first; a group is split if that saves more than it costs."""
    order = steps.argsort(descending=True, stable=True)
    lengths = steps[order].tolist()
    starts = [0]
    for place, length in enumerate(lengths):
        if (len(lengths) - place) * (lengths[starts[-1]] - length) > PASS_COST:
            starts.append(place)
    return [order[a:b] for a, b in zip(starts, [*starts[1:], len(lengths)], strict=True)]


Ints = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


def _nodes(trie: Trie, writes: Ints, lengths: Ints) -> Ints:
    """[docids, T] the node from which each token of a docid is chosen, 0 after its end."""
    nodes = np.zeros(writes.shape, np.int64)
    for depth in range(writes.shape[1] - 1):
        going = np.flatnonzero(lengths > depth + 1)
        row, token, child = trie.children(nodes[going, depth])
        taken = token == writes[going[row], depth]
        nodes[going[row[taken]], depth + 1] = child[taken]
    return nodes


def _needed(trie: Trie, nodes: Ints, lengths: Ints) -> Ints:
    """[docids] the number of steps of each docid up to its last branching node; at least 1."""
    place = np.arange(nodes.shape[1])
    branching = (trie.first[nodes + 1] - trie.first[nodes] > 1) & (place < lengths[:, None])
    needed: Ints = np.where(branching, place + 1, 1).max(1).astype(np.int64)
    return needed
