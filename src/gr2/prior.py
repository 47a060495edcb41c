"""Document vectors and a trie → what a decoder knows about a node before it has read a docid: the node prior.

A cut through the trie is a set of nodes that has exactly one of each docid's path. Each node of the cut owns
the mean of the document vectors below it; a query likes it by ``scale · ⟨query, vector⟩ + log(documents)``,
and a node above the cut by the logsumexp of what lies below it, so that on the way down the probabilities of
children multiply to those of the cut. Cut at the leaves, an untrained decoder ranks as the dense encoder
does; a cap on the vectors draws the cut further up, where documents differ least, and leaves the rest to the
decoder. A query is the mean of its encoder states, or, where the encoder makes no sentence vectors, of its
words (`gr2.words`). paper: not in it.

Shapes: B queries, K nodes of the cut, P width of a vector.
"""

import heapq
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from gr2.decode import NodePrior
from gr2.trie import Trie
from gr2.words import WordSpace

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


class Prior(nn.Module):
    """The vectors of a cut, how much they count, and which of them lie below each node."""

    low: Tensor
    high: Tensor
    weight: Tensor
    turn: Tensor | None
    """[P, P] where queries are read by their words."""

    def __init__(
        self,
        low: Tensor,
        high: Tensor,
        weight: Tensor,
        vectors: Tensor,
        scale: float,
        *,
        centre: Tensor | None = None,
        turn: Tensor | None = None,
    ) -> None:
        """Copy the parts; use `Prior.build`.

        Memory of numpy's lies anywhere, and a matrix product may be rounded by where its factors lie: in
        torch's own memory a model gives the same bytes before it is saved and after.
        """
        super().__init__()
        self.register_buffer("low", low)  # [nodes]
        self.register_buffer("high", high)  # [nodes] nothing below the cut: high == low
        self.register_buffer("weight", weight.clone())  # [K] log of the documents below
        self.vectors = nn.Parameter(vectors.clone())  # [K, P]
        self.scale = nn.Parameter(torch.tensor(float(scale)))
        self.register_buffer("turn", None if turn is None else turn.clone())
        self.centre = None if centre is None else nn.Parameter(centre.clone())  # [P]

    @property
    def reads_words(self) -> bool:
        """Whether it takes word embeddings instead of the encoder's states."""
        return self.turn is not None

    @classmethod
    def of_words(cls, trie: Trie, space: WordSpace, *, most: int | None = None) -> "Prior":
        """One whose queries are read by their words."""
        plain = cls.build(trie, space.vectors, most=most)
        centre, turn = torch.from_numpy(space.centre), torch.from_numpy(space.turn)
        parts = (plain.low, plain.high, plain.weight, plain.vectors.detach())
        return cls(*parts, plain.scale.item(), centre=centre, turn=turn)

    @classmethod
    def build(cls, trie: Trie, vectors: Floats, *, most: int | None = None, scale: float = 20.0) -> "Prior":
        """Cut the trie and average the documents' vectors.

        Args:
            trie: of all docids.
            vectors: [docids, P], unit length, by docid index.
            most: vectors at most; None is one for each document.
            scale: what dot products are multiplied by at the start; it is learned.
        """
        start, count = leaf_ranges(trie)
        by_leaf = vectors[_docids_in_order(trie, start)]
        sums = np.concatenate([np.zeros((1, vectors.shape[1])), np.cumsum(by_leaf, 0, dtype=np.float64)])
        cut = _cut(trie, start, count, sums, len(trie) if most is None else most)
        first = start[cut]
        total = sums[first + count[cut]] - sums[first]
        means = _unit(total / count[cut][:, None])
        low = np.searchsorted(first, start)
        high = np.searchsorted(first, start + count)
        below = _below(trie, cut)
        high[below] = low[below]
        return cls(
            torch.from_numpy(low.astype(np.int32)),
            torch.from_numpy(high.astype(np.int32)),
            torch.from_numpy(np.log(count[cut]).astype(np.float32)),
            torch.from_numpy(means.astype(np.float32)),
            scale,
        )

    @classmethod
    def empty(cls, stored: dict[str, Tensor]) -> "Prior":
        """One of the same shape as the stored tensors, for `load_state_dict`."""
        low, high, weight, vectors = (
            torch.zeros_like(stored[n]) for n in ("low", "high", "weight", "vectors")
        )
        more = {name: torch.zeros_like(stored[name]) for name in ("centre", "turn") if name in stored}
        return cls(low, high, weight, vectors, 0.0, **more)

    @property
    def nbytes(self) -> int:
        """The bytes that grow with the collection."""
        return sum(tensor.nbytes for tensor in (self.low, self.high, self.weight, self.vectors))

    def forward(self, states: Tensor, mask: Tensor) -> NodePrior:
        """States, or words, [B, S, P] and mask [B, S] → what each query thinks of each node."""
        pooled = pooled_query(states, mask)  # [B, P]
        if self.turn is not None and self.centre is not None:
            pooled = F.normalize((pooled - self.centre) @ self.turn, dim=1)
        scores = self.scale * pooled @ self.vectors.T + self.weight
        return NodePrior(low=self.low, high=self.high, scores=scores)


def pooled_query(states: Tensor, mask: Tensor) -> Tensor:
    """The mean of the states [B, S, P] where there is a token, of unit length: [B, P]."""
    each = mask.unsqueeze(-1).to(states)
    return F.normalize((states * each).sum(1) / each.sum(1).clamp_min(1), dim=1)


def leaf_ranges(trie: Trie) -> tuple[Ints, Ints]:
    """With leaves in the order of their paths: the first one below each node and how many there are."""
    count = trie.below.astype(np.int64)
    before = np.cumsum(count) - count  # over all nodes, breadth-first
    parent = _parents(trie)
    start = np.zeros(trie.nodes, np.int64)
    for level in _levels(trie):
        up = parent[level]
        start[level] = start[up] + before[level] - before[trie.first[up] + 1]
    return start, count


def _parents(trie: Trie) -> Ints:
    """The parent of each node; the root's is itself."""
    owners = np.repeat(np.arange(trie.nodes), np.diff(trie.first))
    return np.concatenate([[0], owners]).astype(np.int64)


def _levels(trie: Trie) -> list[slice]:
    """The nodes of each depth from 1 on, as ranges: nodes are numbered breadth-first."""
    levels, low, high = [], 0, 1
    while (low := high) < (high := int(trie.first[high]) + 1):
        levels.append(slice(low, high))
    return levels


def _docids_in_order(trie: Trie, start: Ints) -> Ints:
    """Docid indices in the order of their paths."""
    order = np.empty(len(trie), np.int64)
    order[start[trie.leaf]] = trie.leaf_docid
    return order


def _cut(trie: Trie, start: Ints, count: Ints, sums: NDArray[np.float64], most: int) -> Ints:
    """Nodes that split the leaves into at most `most` parts; the widest spread part is opened first."""
    if most < 1:
        raise ValueError(f"a node prior needs at least 1 vector, not {most}")

    def spread(node: int) -> float:
        a, n = start[node], count[node]
        mean = (sums[a + n] - sums[a]) / n
        return float(n * (1 - mean @ mean))  # unit vectors: the sum of squared distances to their mean

    heap, closed, size = [(0.0, 0)], [], 1
    while heap:
        _, node = heapq.heappop(heap)
        while int(trie.first[node + 1] - trie.first[node]) == 1:
            node = int(trie.first[node]) + 1
        children = range(int(trie.first[node]) + 1, int(trie.first[node + 1]) + 1)
        if not children or size + len(children) - 1 > most:
            closed.append(node)
            continue
        size += len(children) - 1
        for child in children:
            heapq.heappush(heap, (-spread(child), child))
    cut = np.array(closed, np.int64)
    return cut[np.argsort(start[cut])]


def _below(trie: Trie, cut: Ints) -> NDArray[Any]:
    """Which nodes lie strictly below the cut."""
    reached = np.zeros(trie.nodes, bool)
    reached[cut] = True
    parent, below = _parents(trie), np.zeros(trie.nodes, bool)
    for level in _levels(trie):
        below[level] = reached[parent[level]] | below[parent[level]]
    return below


def _unit(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(length > 0, length, 1.0)
