"""Docids as token ids → a prefix trie in numpy arrays: what a decoder may generate next (paper: Inference).

Docids are sorted, and every token that a docid does not share with the one before is a node. Nodes are
numbered breadth-first, so the children of a node are consecutive: two numbers give them. The end of a docid
is a child like any other, so a docid may be a prefix of another.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import index
from pathlib import Path
from typing import Any, Literal, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gr2 import store
from gr2.docids import trie_arrays as arrays
from gr2.docids.trie_arrays import LIMIT, Int32, Int64

__all__ = ["ARRAYS", "LIMIT", "Trie"]
ARRAYS = ("first", "token", "leaf", "leaf_docid")


@dataclass(frozen=True, eq=False, kw_only=True)
class Trie:
    """CSR prefix trie over token ids; nodes are numbered breadth-first, 0 is the root.

    The children of node `v` are the nodes ``first[v] + 1 ... first[v + 1]`` (edge `e` leads to node
    `e + 1`), in ascending token order. The order of docids affects only their indices. An empty docid is
    allowed: the root then has an `end` child.

    >>> trie = Trie.from_sequences([[5, 7], [5], [5, 7, 9]], end=1)
    >>> row, token, child = trie.children(np.array([trie.find([5]), trie.find([5, 7])]))
    >>> row.tolist(), token.tolist(), trie.docid_of(child).tolist()
    ([0, 0, 1, 1], [1, 7, 1, 9], [1, -1, 0, -1])
    """

    first: Int32
    """[nodes + 1] The edges of node `v` are ``first[v] ... first[v + 1] - 1``."""
    token: Int32
    """[nodes - 1] The label of the edge into node `e + 1`."""
    leaf: Int32
    """[docids] The leaves, ascending."""
    leaf_docid: Int32
    """[docids] The docid index of each leaf, see `docid_of`."""
    end: int
    """The token that ends a docid; it occurs in no docid."""
    issued: int
    """The next free docid index: indices of removed docids are not used again."""

    @classmethod
    def build(cls, tokens: ArrayLike, offsets: ArrayLike, *, end: int, start: int = 0) -> "Trie":
        """The trie of unique docids; docid `start + i` is ``tokens[offsets[i]:offsets[i + 1]]``, no end."""
        flat, rows = arrays.checked(np.asarray(tokens), np.asarray(offsets), end, start)
        order = arrays.sorted_rows(flat, rows, end=end, start=start)
        first, token, owner = arrays.grow(flat, rows, order, end)
        docid = owner[np.flatnonzero(token == end) + 1] + np.int32(start)
        return _assemble(first, token, docid, end=end, issued=start + len(order))

    @classmethod
    def from_sequences(cls, sequences: Sequence[Collection[int]], *, end: int, start: int = 0) -> "Trie":
        """The trie of unique docids, each a sequence of token ids without the end."""
        offsets = np.zeros(len(sequences) + 1, np.int64)
        np.cumsum([len(row) for row in sequences], out=offsets[1:])
        # `index` refuses 1.5 and "1", which numpy would truncate or parse.
        tokens = np.fromiter(map(index, chain.from_iterable(sequences)), np.int64, int(offsets[-1]))
        return cls.build(tokens, offsets, end=end, start=start)

    def __len__(self) -> int:
        """The number of docids."""
        return len(self.leaf)

    @property
    def nodes(self) -> int:
        """The number of nodes, the root included."""
        return len(self.first) - 1

    @property
    def nbytes(self) -> int:
        """The bytes of the stored arrays; `below`, `height` and `parents` are computed on first use."""
        return sum(getattr(self, name).nbytes for name in ARRAYS)

    @cached_property
    def below(self) -> Int32:
        """[nodes] The number of docids below the node: 1 for a leaf, 0 for the root of an empty trie."""
        return arrays.summaries(self.first, self.leaf.astype(np.int64))[0]

    @cached_property
    def height(self) -> NDArray[np.uint16]:
        """[nodes] The longest path from the node to a leaf, in tokens, the end included: 0 for a leaf."""
        return arrays.summaries(self.first, self.leaf.astype(np.int64))[1]

    @cached_property
    def parents(self) -> Int32:
        """[nodes] The parent of the node; -1 for the root.

        >>> Trie.from_sequences([[5], [5, 7]], end=1).parents.tolist()
        [-1, 0, 1, 1, 3]
        """
        owners = np.repeat(np.arange(self.nodes, dtype=np.int32), np.diff(self.first))
        return np.append(np.int32(-1), owners)

    def children(self, nodes: ArrayLike) -> tuple[Int64, Int64, Int64]:
        """All children of many nodes: (position in `nodes`, token, child node), in order; none for a leaf."""
        return arrays.children(self.first, self.token, np.asarray(nodes, np.int64))

    def docid_of(self, nodes: ArrayLike) -> Int64:
        """The docid index of each node that is a leaf, -1 for any other node."""
        wanted = np.asarray(nodes, np.int32)  # the dtype of `leaf`: else numpy would convert all of `leaf`
        if not len(self):
            return np.full(wanted.shape, -1, np.int64)
        at = np.searchsorted(self.leaf[:-1], wanted)
        return np.where(self.leaf[at] == wanted, self.leaf_docid[at], np.int64(-1))

    def leaf_of(self, docids: ArrayLike) -> Int64:
        """The leaf of each docid index; a ValueError names the first index that is not in the trie."""
        wanted = np.asarray(docids)
        if wanted.size and wanted.dtype.kind not in "iu":
            raise ValueError(f"docid indices must be integers, not {wanted.dtype}")
        known = (wanted >= 0) & (wanted < self.issued)
        leaf = self._leaves[np.where(known, wanted, self.issued).astype(np.int64)]
        if not leaf.all():
            raise ValueError(f"docid {wanted[leaf == 0][0]} is not in this trie of {len(self)} docids")
        return leaf.astype(np.int64)

    def find(self, tokens: Iterable[int]) -> int:
        """The node that a sequence of tokens leads to, -1 if there is none; a leaf if it includes the end."""
        node = 0
        for token in tokens:
            start, stop = int(self.first[node]), int(self.first[node + 1])
            edge = start + int(np.searchsorted(self.token[start:stop], token))
            if edge == stop or self.token[edge] != token:
                return -1
            node = edge + 1
        return node

    def tokens(self, docid: int) -> Int32:
        """The tokens of one docid index, without the end."""
        node, path = int(self.leaf_of([docid])[0]), []
        while node:
            path.append(self.token[node - 1])
            node = int(self.parents[node])
        return np.array(path[:0:-1], np.int32)

    def restrict(self, docids: ArrayLike) -> "Trie":
        """The trie of only these docids, which keep their indices; one pass."""
        keep = arrays.summaries(self.first, self.leaf_of(docids))[0] > 0
        keep[0] = True  # the root stays, even alone
        before = np.append(np.int32(0), np.cumsum(keep[1:], dtype=np.int32))  # [edges + 1] edges kept so far
        first = np.append(before[self.first[:-1][keep]], before[-1])
        kept = self.leaf_docid[keep[self.leaf]]
        return _assemble(first, self.token[keep[1:]], kept, end=self.end, issued=self.issued)

    def remove(self, docids: ArrayLike) -> "Trie":
        """The trie without these docids; the others keep their indices, and theirs are not used again."""
        return self.restrict(np.setdiff1d(self.leaf_docid, self.docid_of(self.leaf_of(docids))))

    def add(self, sequences: Sequence[Collection[int]]) -> "Trie":
        """The trie with more docids, which get the next free indices."""
        new = Trie.from_sequences(sequences, end=self.end, start=self.issued)
        first, token, mine, theirs = arrays.union(self.first, self.token, new.first, new.token)
        leaf = np.flatnonzero(token == self.end) + 1
        here, there = self.docid_of(mine[leaf]), new.docid_of(theirs[leaf])
        for at in np.flatnonzero((here >= 0) & (there >= 0))[:1]:
            raise ValueError(arrays.DUPLICATE.format(here[at], there[at], self.tokens(here[at]).tolist()))
        return _assemble(first, token, np.maximum(here, there), end=self.end, issued=new.issued)

    def save(self, folder: Path) -> None:
        """Write the arrays as .npy files, `trie.json` and a manifest with checksums, atomically."""
        with store.atomic_folder(folder) as temporary:
            for name in ARRAYS:
                np.save(temporary / f"{name}.npy", getattr(self, name), allow_pickle=False)
            store.write_json(temporary / "trie.json", {"end": self.end, "issued": self.issued})

    @classmethod
    def load(cls, folder: Path, *, mmap: bool = True) -> "Trie":
        """Read a saved trie and verify its checksums; with `mmap` only what is used stays in memory."""
        return store.steady(folder, lambda folder: cls._read(folder, mmap=mmap))

    @classmethod
    def _read(cls, folder: Path, *, mmap: bool) -> "Trie":
        store.verify(folder, "trie.json", *(f"{name}.npy" for name in ARRAYS))
        about = store.read_json(folder / "trie.json", _About)
        # "c" (copy on write) and not "r": torch.from_numpy warns about read-only arrays.
        mode: Literal["c"] | None = "c" if mmap else None
        stored: dict[str, Any] = {}
        for name in ARRAYS:
            with store.readable(path := folder / f"{name}.npy"):
                stored[name] = np.asarray(np.load(path, mode))
        return cls(**stored, **about)

    @cached_property
    def _leaves(self) -> Int32:
        """[issued + 1] The leaf of each docid index, 0 for those not in the trie and for the last entry."""
        leaves = np.zeros(self.issued + 1, np.int32)
        leaves[self.leaf_docid] = self.leaf
        return leaves


class _About(TypedDict):
    """What trie.json holds."""

    end: int
    issued: int


def _assemble(first: Int32, token: Int32, leaf_docid: ArrayLike, *, end: int, issued: int) -> Trie:
    """A trie from its structure and the docid of each leaf: the leaves are the nodes of end tokens."""
    leaf = (np.flatnonzero(token == end) + 1).astype(np.int32)
    docids = np.asarray(leaf_docid, np.int32)
    return Trie(first=first, token=token, leaf=leaf, leaf_docid=docids, end=end, issued=issued)
