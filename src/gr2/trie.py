"""Docids as token ids become one prefix trie in plain arrays: what a decoder may say next (paper: Inference).

Rows are sorted, and every token that is not shared with the row before is a node. Nodes are numbered
breadth-first, so the children of a node are neighbours and need two numbers, not a table. The end of a docid
is a real child: a docid may be a prefix of another. This file knows no text, no torch, no model, no score.
"""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import index
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from gr2 import store

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
ARRAYS = ("first", "token", "leaf", "leaf_docid")
LIMIT = np.iinfo(np.int32).max  # of token ids, docid indices and nodes: all of them are int32
LONGEST = np.iinfo(np.uint16).max - 1  # tokens of a docid: with its end it must fit `height`
DUPLICATE = "docids {} and {} have the same tokens {}; docids must be unique"
_compiled = njit(cache=True, nogil=True)  # the cache on disk saves each new process seconds of compiling


@dataclass(frozen=True, eq=False, kw_only=True)
class Trie:
    """CSR prefix trie over token ids; nodes are numbered breadth-first, 0 is the root.

    Because of that numbering the children of node `v` are the nodes ``first[v] + 1 ... first[v + 1]`` (edge
    `e` leads to node `e + 1`), in ascending token order. The order of docids changes only their indices. An
    empty docid is allowed: the root then has an `end` child.

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
    """The token that ends a docid. It stands in no docid itself."""
    issued: int
    """How many docid indices were ever given out: the next one, so that none is given out twice."""

    @classmethod
    def build(cls, tokens: ArrayLike, offsets: ArrayLike, *, end: int, start: int = 0) -> "Trie":
        """The trie of unique docids: docid `start + i` is ``tokens[offsets[i]:offsets[i + 1]]``, no end."""
        flat, rows = _checked(np.asarray(tokens), np.asarray(offsets), end, start)
        order = _sorted_rows(flat, rows, end=end, start=start)
        first, token, owner = _grow(flat, rows, order, end)
        docid = owner[np.flatnonzero(token == end) + 1] + np.int32(start)
        return _assemble(first, token, docid, end=end, issued=start + len(order))

    @classmethod
    def from_sequences(cls, sequences: Sequence[Collection[int]], *, end: int, start: int = 0) -> "Trie":
        """The trie of unique docids given as one sequence of token ids each, without the end."""
        offsets = np.zeros(len(sequences) + 1, np.int64)
        np.cumsum([len(row) for row in sequences], out=offsets[1:])
        # `index` refuses 1.5 and "1", which numpy would cut or parse.
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
        """The bytes of the arrays that make the trie; `below` and `height` follow from them on first use."""
        return sum(getattr(self, name).nbytes for name in ARRAYS)

    @cached_property
    def below(self) -> Int32:
        """[nodes] Docids below the node: 1 for a leaf, 0 for the root of an empty trie."""
        return _summaries(self.first, self.leaf.astype(np.int64))[0]

    @cached_property
    def height(self) -> NDArray[np.uint16]:
        """[nodes] The longest way from the node to a leaf, in tokens, the end included: 0 for a leaf."""
        return _summaries(self.first, self.leaf.astype(np.int64))[1]

    def children(self, nodes: ArrayLike) -> tuple[Int64, Int64, Int64]:
        """All children of many nodes: (position in `nodes`, token, child node), in order; none for a leaf."""
        return _children(self.first, self.token, np.asarray(nodes, np.int64))

    def docid_of(self, nodes: ArrayLike) -> Int64:
        """The docid index of each node that is a leaf, -1 for any other node."""
        wanted = np.asarray(nodes, np.int32)  # as `leaf`: else numpy would widen all of `leaf` to search it
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
        """The node that a sequence of tokens leads to, -1 if there is none; with the end it is a leaf."""
        node = 0
        for token in tokens:
            start, stop = int(self.first[node]), int(self.first[node + 1])
            edge = start + int(np.searchsorted(self.token[start:stop], token))
            if edge == stop or self.token[edge] != token:
                return -1
            node = edge + 1
        return node

    def tokens(self, docid: int) -> Int32:
        """The tokens of one docid index, as they came in: without the end."""
        node, path = int(self.leaf_of([docid])[0]), []
        while node:
            path.append(self.token[node - 1])
            node = int(np.searchsorted(self.first, np.int32(node - 1), side="right")) - 1
        return np.array(path[:0:-1], np.int32)

    def restrict(self, docids: ArrayLike) -> "Trie":
        """Only these docids stay (a filter by category or date), under the indices they have; one pass."""
        keep = _summaries(self.first, self.leaf_of(docids))[0] > 0
        keep[0] = True  # the root stays, even alone
        before = np.append(np.int32(0), np.cumsum(keep[1:], dtype=np.int32))  # [edges + 1] kept before it
        first = np.append(before[self.first[:-1][keep]], before[-1])
        kept = self.leaf_docid[keep[self.leaf]]
        return _assemble(first, self.token[keep[1:]], kept, end=self.end, issued=self.issued)

    def remove(self, docids: ArrayLike) -> "Trie":
        """The trie without these docids; the others keep their indices, these are not given out again."""
        return self.restrict(np.setdiff1d(self.leaf_docid, self.docid_of(self.leaf_of(docids))))

    def add(self, sequences: Sequence[Collection[int]]) -> "Trie":
        """The trie with more docids, which get the next indices: both tries are walked side by side."""
        new = Trie.from_sequences(sequences, end=self.end, start=self.issued)
        first, token, mine, theirs = _union(self.first, self.token, new.first, new.token)
        leaf = np.flatnonzero(token == self.end) + 1
        here, there = self.docid_of(mine[leaf]), new.docid_of(theirs[leaf])
        for at in np.flatnonzero((here >= 0) & (there >= 0))[:1]:
            raise ValueError(DUPLICATE.format(here[at], there[at], self.tokens(here[at]).tolist()))
        return _assemble(first, token, np.maximum(here, there), end=self.end, issued=new.issued)

    def save(self, folder: Path) -> None:
        """Write the arrays as .npy files, `trie.json` and a manifest with checksums; all or nothing."""
        with store.atomic_folder(folder) as temporary:
            for name in ARRAYS:
                np.save(temporary / f"{name}.npy", getattr(self, name), allow_pickle=False)
            store.write_json(temporary / "trie.json", {"end": self.end, "issued": self.issued})

    @classmethod
    def load(cls, folder: Path, *, mmap: bool = True) -> "Trie":
        """Read a saved trie, refusing one with a byte changed; `mmap` reads the arrays only where used."""
        store.verify(folder)
        about = json.loads((folder / "trie.json").read_text(encoding="utf-8"))
        # "c" (copy on write) and not "r": torch.from_numpy warns about arrays that cannot be written to.
        mode: Literal["c"] | None = "c" if mmap else None
        arrays: dict[str, Any] = {name: np.asarray(np.load(folder / f"{name}.npy", mode)) for name in ARRAYS}
        return cls(**arrays, **about)

    @cached_property
    def _leaves(self) -> Int32:
        """The leaf of each docid index, 0 for those that are not here and for one index more."""
        leaves = np.zeros(self.issued + 1, np.int32)
        leaves[self.leaf_docid] = self.leaf
        return leaves


def _assemble(first: Int32, token: Int32, leaf_docid: ArrayLike, *, end: int, issued: int) -> Trie:
    """Every trie is made here: structure and the docid of each leaf come in, the rest follows from them."""
    leaf = (np.flatnonzero(token == end) + 1).astype(np.int32)
    docids = np.asarray(leaf_docid, np.int32)
    return Trie(first=first, token=token, leaf=leaf, leaf_docid=docids, end=end, issued=issued)


def _checked(tokens: NDArray[Any], offsets: NDArray[Any], end: int, start: int) -> tuple[Int32, Int64]:
    """The rows as int32 tokens and int64 offsets, or a ValueError that names the docid at fault."""
    for name, array in (("tokens", tokens), ("offsets", offsets)):
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise ValueError(f"{name} must be a flat array of integers, not {array.dtype}{list(array.shape)}")
    if not (0 <= end <= LIMIT and 0 <= start <= LIMIT - len(offsets)):
        raise ValueError(f"the end token {end} and all docids from {start} on must lie in 0 ... {LIMIT}")
    lengths = np.diff(offsets.astype(np.int64))
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(tokens) or (lengths < 0).any():
        raise ValueError(f"offsets must rise from 0 to the number of tokens ({len(tokens)})")
    if lengths.max(initial=0) > LONGEST:
        raise ValueError(f"docid {start + lengths.argmax()} has {lengths.max()} tokens, more than {LONGEST}")
    wrong = (tokens < 0) | (tokens > LIMIT) | (tokens == end)
    if wrong.any():
        at = int(wrong.argmax())
        row = int(np.searchsorted(offsets, at, side="right")) - 1
        why = f"tokens lie in 0 ... {LIMIT} and are not the end token {end}, which is added to each docid"
        raise ValueError(f"docid {start + row} has token {tokens[at]} at position {at - offsets[row]}: {why}")
    return np.ascontiguousarray(tokens, np.int32), np.ascontiguousarray(offsets, np.int64)


def _sorted_rows(tokens: Int32, offsets: Int64, *, end: int, start: int) -> Int64:
    """The rows in lexicographic order of their tokens and end; equal rows are refused.

    Rows still tied are sorted by their next tokens, as many as fit an int64 behind the number of the tie.
    """
    bits = max(int(tokens.max(initial=0)), end, 1).bit_length()
    order = np.arange(len(offsets) - 1)
    place, tie, depth = order.copy(), np.zeros(len(order), np.int64), 0
    while len(place):
        width = (63 - int(tie[-1]).bit_length()) // bits  # at least 1: ties and tokens have at most 31 bits
        rows = order[place]
        at, stop = offsets[rows] + depth, offsets[rows + 1]
        keys = _keys(tokens, at, stop, tie, width, bits, end)
        by_key = np.argsort(keys)
        order[place], keys = rows[by_key], keys[by_key]
        differs = np.full(len(keys) + 1, True)
        np.not_equal(keys[1:], keys[:-1], out=differs[1:-1])
        tied = ~(differs[:-1] & differs[1:])
        ended = (stop < at + width)[by_key][tied]  # the end was compared too, so nothing is left
        place, tie = place[tied], np.cumsum(differs[:-1])[tied]
        depth += width
        if ended.any():
            one, two = np.sort(order[place[tie == tie[ended.argmax()]]])[:2]
            same = tokens[offsets[one] : offsets[one + 1]].tolist()
            raise ValueError(DUPLICATE.format(start + one, start + two, same))
    return order


@_compiled
def _keys(tokens: Int32, at: Int64, stop: Int64, tie: Int64, width: int, bits: int, end: int) -> Int64:
    """The `width` tokens of each row from `at` on, behind the number of its tie, as one sortable integer."""
    keys = tie.copy()
    for i in range(len(keys)):
        for position in range(at[i], at[i] + width):
            keys[i] <<= bits
            if position < stop[i]:
                keys[i] |= tokens[position]
            elif position == stop[i]:
                keys[i] |= end
    return keys


@_compiled
def _grow(tokens: Int32, offsets: Int64, order: Int64, end: int) -> tuple[Int32, Int32, Int32]:
    """Sorted rows → (first, token, row of each leaf).

    A row makes a node for each token (and its end) that it does not share with the row before. Rows come in
    order, so within a depth the nodes come in breadth-first order and only need the start of that depth.
    """
    lengths = offsets[1:] - offsets[:-1]
    longest = lengths.max() if len(order) else 0
    shared = np.zeros(len(order), np.int32)
    count = np.zeros(longest + 3, np.int64)  # nodes of each depth, first as differences
    for i in range(len(order)):
        here = offsets[order[i]]
        if i > 0:
            before, most = offsets[order[i - 1]], min(lengths[order[i - 1]], lengths[order[i]])
            while shared[i] < most and tokens[before + shared[i]] == tokens[here + shared[i]]:
                shared[i] += 1
        count[shared[i] + 1] += 1
        count[lengths[order[i]] + 2] -= 1
    count = np.cumsum(count)
    count[0] = 1  # the root
    nodes = count.sum()
    if nodes > 2**31 - 1:
        raise ValueError("the docids need more than 2**31 - 1 trie nodes")
    free = np.cumsum(count) - count  # the next free node of each depth
    free[0] = 1
    first, token = np.zeros(nodes + 1, np.int32), np.empty(nodes - 1, np.int32)
    owner = np.empty(nodes, np.int32)
    for i in range(len(order)):
        here, length = offsets[order[i]], lengths[order[i]]
        for depth in range(shared[i] + 1, length + 2):
            node = free[depth]
            free[depth] += 1
            token[node - 1] = tokens[here + depth - 1] if depth <= length else end
            first[free[depth - 1]] += 1  # the parent is the newest node one level up; its count lies one on
        owner[node] = order[i]
    first[:] = np.cumsum(first)
    return first, token, owner


@_compiled
def _summaries(first: Int32, leaves: Int64) -> tuple[Int32, NDArray[np.uint16]]:
    """How many of these leaves lie below each node, and the longest way down from it to any leaf."""
    below, height = np.zeros(len(first) - 1, np.int32), np.zeros(len(first) - 1, np.uint16)
    below[leaves] = 1
    for node in range(len(below) - 1, -1, -1):  # children have higher numbers, so they come first
        for child in range(first[node] + 1, first[node + 1] + 1):
            below[node] += below[child]
            height[node] = max(height[node], height[child] + 1)
    return below, height


@_compiled
def _children(first: Int32, token: Int32, nodes: Int64) -> tuple[Int64, Int64, Int64]:
    total = 0
    for node in nodes:
        if node < 0 or node >= len(first) - 1:
            raise IndexError("children of a node that is not in the trie")
        total += first[node + 1] - first[node]
    row, label, child = np.empty(total, np.int64), np.empty(total, np.int64), np.empty(total, np.int64)
    at = 0
    for i in range(len(nodes)):
        for edge in range(first[nodes[i]], first[nodes[i] + 1]):
            row[at], label[at], child[at] = i, token[edge], edge + 1
            at += 1
    return row, label, child


@_compiled
def _union(first_a: Int32, token_a: Int32, first_b: Int32, token_b: Int32) -> tuple[Int32, ...]:
    """Two tries → (first, token, node in a or -1, node in b or -1), walked breadth-first side by side."""
    most = len(first_a) + len(first_b) - 3  # the root is shared
    first, token = np.zeros(most + 1, np.int32), np.empty(most - 1, np.int32)
    in_a, in_b = np.zeros(most, np.int32), np.zeros(most, np.int32)
    nodes, node = 1, 0
    while node < nodes:
        a, b = in_a[node], in_b[node]
        # An absent node is -1 and has no children: first[-1] (the last) is not less than first[0].
        i, stop_a, j, stop_b = first_a[a], first_a[a + 1], first_b[b], first_b[b + 1]
        while i < stop_a or j < stop_b:
            next_a = np.int64(token_a[i]) if i < stop_a else 2**31
            next_b = np.int64(token_b[j]) if j < stop_b else 2**31
            token[nodes - 1] = min(next_a, next_b)
            from_a, from_b = next_a <= next_b, next_b <= next_a
            i, j = i + from_a, j + from_b
            in_a[nodes], in_b[nodes] = i if from_a else -1, j if from_b else -1
            nodes += 1
        node += 1
        first[node] = nodes - 1
    return first[: nodes + 1].copy(), token[: nodes - 1].copy(), in_a[:nodes], in_b[:nodes]
