"""A trie becomes tensors on the decoder's device: what may follow many nodes, and what must.

This file knows no model and no score.

Shapes: R nodes asked about, C children found.
"""

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from gr2.trie import Trie


@dataclass(frozen=True)
class Paths:
    """The arrays of a trie as tensors, and the end of the forced stretch behind each node."""

    first: Tensor
    token: Tensor
    height: Tensor
    landing: Tensor
    """[nodes] Going down from a node while there is exactly one child: a branching node or a leaf."""
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
        """The token that leads into each node; into the root it is the token decoding starts from."""
        return torch.where(nodes > 0, self.token[nodes - 1].long(), start)

    def parent(self, nodes: Tensor) -> Tensor:
        """The parent of each node but the root."""
        return torch.searchsorted(self.first, nodes.int() - 1, right=True) - 1

    def stretch(self, top: Tensor, bottom: Tensor, most: int | None = None) -> tuple[Tensor, Tensor]:
        """The nodes from `top` down to `bottom`, at most so many: (nodes, row after row; how many per row).

        Every node but the last must have one child. The loop runs over the length of the longest stretch.
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
    """The tensors of a trie, made once for each device (without a copy on the CPU)."""
    known = _KNOWN.setdefault(trie, {})
    if device not in known:
        height = trie.height.astype(np.int32)
        arrays = (
            trie.first,
            trie.token,
            height,
            _landing(trie.first),
            trie.leaf,
            trie.leaf_docid,
        )
        known[device] = Paths(*(torch.from_numpy(array).to(device) for array in arrays))
    return known[device]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
def _landing(first: NDArray[np.int32]) -> NDArray[np.int32]:
    """Children have higher numbers than their parent, so one pass from the end knows every stretch."""
    landing = np.arange(len(first) - 1).astype(np.int32)
    for node in range(len(landing) - 1, -1, -1):
        if first[node + 1] - first[node] == 1:
            landing[node] = landing[first[node] + 1]
    return landing
