"""Document vectors and a trie → the node prior: scores of trie nodes that are added to the decoder's logits.

A cut is a set of trie nodes that contains exactly one node of every docid's path. Each node of the cut has
one vector, the mean of the document vectors below it, and the score ``scale · ⟨query, vector⟩ +
log(documents below)``. A node above the cut has the logsumexp of the scores below it, so the probabilities of
children along a path multiply to the softmax over the cut. With the cut at the leaves, an untrained decoder
ranks exactly like the dense encoder. A limit on the number of vectors moves the cut up where documents differ
least; below the cut the decoder decides alone. A query is the mean of its encoder states or, if the backbone
is not a sentence encoder, of its word embeddings (`gr2.model.word_prior`). paper: does not have this.

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
from gr2.docids.trie import Trie
from gr2.model.padding import pooled_query
from gr2.model.word_prior import WordSpace, unit_rows

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


class Prior(nn.Module):
    """The vectors of a cut, their weights, and the range of vectors below each node."""

    low: Tensor
    high: Tensor
    weight: Tensor
    turn: Tensor | None
    """[P, P] if queries are means of word embeddings."""

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

        A copy, because the rounding of a matrix product may depend on memory alignment: in memory allocated
        by torch, a model gives the same bytes before and after saving.
        """
        super().__init__()
        self.register_buffer("low", low)  # [nodes]
        self.register_buffer("high", high)  # [nodes] equal to low below the cut
        self.register_buffer("weight", weight.clone())  # [K] log of the number of documents below
        self.vectors = nn.Parameter(vectors.clone())  # [K, P]
        self.scale = nn.Parameter(torch.tensor(float(scale)))
        self.register_buffer("turn", None if turn is None else turn.clone())
        self.centre = None if centre is None else nn.Parameter(centre.clone())  # [P]

    @property
    def reads_words(self) -> bool:
        """Whether `forward` takes word embeddings instead of the encoder's states."""
        return self.turn is not None

    @classmethod
    def of_words(cls, trie: Trie, space: WordSpace, *, most: int | None = None) -> "Prior":
        """A prior whose queries are means of word embeddings."""
        plain = cls.build(trie, space.vectors, most=most)
        centre, turn = torch.from_numpy(space.centre), torch.from_numpy(space.turn)
        parts = (plain.low, plain.high, plain.weight, plain.vectors.detach())
        return cls(*parts, plain.scale.item(), centre=centre, turn=turn)

    @classmethod
    def build(cls, trie: Trie, vectors: Floats, *, most: int | None = None, scale: float = 20.0) -> "Prior":
        """Cut the trie and average the document vectors below each node of the cut.

        Args:
            trie: all docids.
            vectors: [docids, P] with unit norm, by docid index.
            most: maximum number of vectors; None allows one per document.
            scale: the initial factor of dot products; it is trained.
        """
        start, count = leaf_ranges(trie)
        by_leaf = vectors[_docids_in_order(trie, start)]
        sums = np.concatenate([np.zeros((1, vectors.shape[1])), np.cumsum(by_leaf, 0, dtype=np.float64)])
        cut = _cut(trie, start, count, sums, len(trie) if most is None else most)
        first = start[cut]
        total = sums[first + count[cut]] - sums[first]
        means = unit_rows(total / count[cut][:, None])
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
        """A prior with the shapes and devices of stored tensors, for `load_state_dict`."""
        low, high, weight, vectors = (
            torch.zeros_like(stored[n]) for n in ("low", "high", "weight", "vectors")
        )
        more = {name: torch.zeros_like(stored[name]) for name in ("centre", "turn") if name in stored}
        return cls(low, high, weight, vectors, 0.0, **more)

    @property
    def nbytes(self) -> int:
        """The size in bytes of all tensors that grow with the collection."""
        return sum(tensor.nbytes for tensor in (self.low, self.high, self.weight, self.vectors))

    def forward(self, states: Tensor, mask: Tensor) -> NodePrior:
        """States or word embeddings [B, S, P] and mask [B, S] → the scores of nodes for each query."""
        pooled = pooled_query(states, mask)  # [B, P]
        if self.turn is not None and self.centre is not None:
            pooled = F.normalize((pooled - self.centre) @ self.turn, dim=1)
        scores = self.scale * pooled @ self.vectors.T + self.weight
        return NodePrior(low=self.low, high=self.high, scores=scores)


def leaf_ranges(trie: Trie) -> tuple[Ints, Ints]:
    """The first leaf below each node and the number of leaves below it, with leaves in path order."""
    count = trie.below.astype(np.int64)
    before = np.cumsum(count) - count  # over all nodes, breadth-first
    start = np.zeros(trie.nodes, np.int64)
    for level in _levels(trie):
        up = trie.parents[level]
        start[level] = start[up] + before[level] - before[trie.first[up] + 1]
    return start, count


def _levels(trie: Trie) -> list[slice]:
    """The nodes of each depth from 1 on: ranges, because nodes are numbered breadth-first."""
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
    """At most `most` nodes that partition the leaves; the node with the largest spread is split first."""
    if most < 1:
        raise ValueError(f"a node prior needs at least 1 vector, not {most}")

    def spread(node: int) -> float:
        a, n = start[node], count[node]
        mean = (sums[a + n] - sums[a]) / n
        return float(n * (1 - mean @ mean))  # of unit vectors: the sum of squared distances to their mean

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
    """Which nodes are strictly below the cut."""
    reached = np.zeros(trie.nodes, bool)
    reached[cut] = True
    below = np.zeros(trie.nodes, bool)
    for level in _levels(trie):
        up = trie.parents[level]
        below[level] = reached[up] | below[up]
    return below
