"""A trie as tensors on the decoder's device: children, parents and forced stretches of many nodes at once.

Shapes: R nodes asked about, C children found.
"""

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from gr2.docids.trie import Trie


@dataclass(frozen=True)
class Paths:
    """The arrays of a trie as tensors, and where the forced stretch below each node ends."""

    first: Tensor
    token: Tensor
    height: Tensor
    parents: Tensor
    landing: Tensor
    """[nodes] The first node that does not have exactly one child, from the node itself on down."""
    leaf: Tensor
    leaf_docid: Tensor

    def children(self, nodes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """All children of many nodes as (position in `nodes`, token, child node), each [C]."""
        start = self.first[nodes].long()
        count = self.first[nodes + 1].long() - start  # [R]
        row = torch.repeat_interleave(count)  # [C]
        skipped = count.cumsum(0) - count
        edge = torch.arange(len(row), device=row.device) + (start - skipped)[row]
        return row, self.token[edge].long(), edge + 1

    def count(self, nodes: Tensor) -> Tensor:
        """The number of children of each node; 0 for a leaf."""
        return self.first[nodes + 1] - self.first[nodes]

    def docid(self, leaves: Tensor) -> Tensor:
        """The docid index of each leaf."""
        return self.leaf_docid[torch.searchsorted(self.leaf, leaves.int())].long()

    def label(self, nodes: Tensor, start: int) -> Tensor:
        """The token of the edge into each node; for the root, the token that decoding starts from."""
        return self.token[nodes - 1].long().masked_fill(nodes == 0, start)

    def parent(self, nodes: Tensor) -> Tensor:
        """The parent of each node; -1 for the root."""
        return self.parents[nodes].long()

    def towards(self, leaves: NDArray[np.int64]) -> Tensor:
        """Which nodes lie on the paths from the root to these leaves [nodes]."""
        kept = torch.zeros(len(self.parents), dtype=torch.bool, device=self.parents.device)
        nodes = torch.from_numpy(leaves).to(kept.device)
        while len(nodes):
            kept[nodes] = True
            nodes = torch.unique(self.parent(nodes[nodes > 0]))
            nodes = nodes[~kept[nodes]]
        return kept

    def stretch(self, top: Tensor, bottom: Tensor, most: int | None = None) -> tuple[Tensor, Tensor]:
        """The nodes from `top` [R] down to `bottom` [R], at most `most` per row.

        Every node but the last of a row must have exactly one child.

        Returns:
            The nodes, row after row, and the number of nodes of each row [R].
        """
        columns, counts, node = [top], torch.ones_like(top), top
        walking = node != bottom
        while len(columns) != most and bool(walking.any()):
            node = torch.where(walking, self.first[node].long() + 1, node)
            columns.append(node)
            counts += walking
            walking = node != bottom
        if len(columns) == 1:
            return top, counts
        place = torch.arange(len(columns), device=top.device)
        return torch.stack(columns, 1)[place < counts[:, None]], counts


_KNOWN: WeakKeyDictionary[Trie, dict[torch.device, Paths]] = WeakKeyDictionary()


def paths_of(trie: Trie, device: torch.device) -> Paths:
    """The tensors of a trie, made once per device; on the CPU they share the trie's memory."""
    known = _KNOWN.setdefault(trie, {})
    if device not in known:
        height = trie.height.astype(np.int32)
        arrays = (
            trie.first,
            trie.token,
            height,
            trie.parents,
            _landing(trie.first),
            trie.leaf,
            trie.leaf_docid,
        )
        known[device] = Paths(*(torch.from_numpy(array).to(device) for array in arrays))
    return known[device]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
def _landing(first: NDArray[np.int32]) -> NDArray[np.int32]:
    """One pass from the last node to the first: children have higher numbers than their parent."""
    landing = np.arange(len(first) - 1).astype(np.int32)
    for node in range(len(landing) - 1, -1, -1):
        if first[node + 1] - first[node] == 1:
            landing[node] = landing[first[node] + 1]
    return landing
