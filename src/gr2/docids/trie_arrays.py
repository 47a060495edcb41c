"""The array functions behind `gr2.docids.trie.Trie`: check, sort, grow, summarise and merge.

Tokens and offsets of docids go in, the CSR arrays of a trie come out. The loops are compiled by numba and run
on the CPU, when a trie is built or changed.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
LIMIT = np.iinfo(np.int32).max  # of token ids, docid indices and nodes: all of them are int32
LONGEST = np.iinfo(np.uint16).max - 1  # tokens of a docid: with its end it must fit `Trie.height`
DUPLICATE = "docids {} and {} have the same tokens {}; docids must be unique"
_compiled = njit(cache=True, nogil=True)  # the cache on disk saves each new process seconds of compiling


def checked(tokens: NDArray[Any], offsets: NDArray[Any], end: int, start: int) -> tuple[Int32, Int64]:
    """The docids as int32 tokens and int64 offsets, or a ValueError that names the docid at fault."""
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
        why = f"tokens lie in 0 ... {LIMIT} and are not the end token {end}, which is appended to each docid"
        raise ValueError(f"docid {start + row} has token {tokens[at]} at position {at - offsets[row]}: {why}")
    return np.ascontiguousarray(tokens, np.int32), np.ascontiguousarray(offsets, np.int64)


def sorted_rows(tokens: Int32, offsets: Int64, *, end: int, start: int) -> Int64:
    """The docids in lexicographic order of their tokens and end; duplicates are refused.

    Each round sorts the docids that are still tied by their next tokens: as many as fit into an int64 after
    the number of the tie.
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
        ended = (stop < at + width)[by_key][tied]  # the end was compared too: nothing is left to compare
        place, tie = place[tied], np.cumsum(differs[:-1])[tied]
        depth += width
        if ended.any():
            one, two = np.sort(order[place[tie == tie[ended.argmax()]]])[:2]
            same = tokens[offsets[one] : offsets[one + 1]].tolist()
            raise ValueError(DUPLICATE.format(start + one, start + two, same))
    return order


@_compiled
def _keys(tokens: Int32, at: Int64, stop: Int64, tie: Int64, width: int, bits: int, end: int) -> Int64:
    """The number of each row's tie and its `width` tokens from `at` on, as one sortable integer."""
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
def grow(tokens: Int32, offsets: Int64, order: Int64, end: int) -> tuple[Int32, Int32, Int32]:
    """Sorted docids → (first, token, docid of each leaf).

    A docid makes a node for each token (its end included) that it does not share with the docid before. The
    docids are sorted, so the nodes of one depth arise in breadth-first order.
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
            first[free[depth - 1]] += 1  # the parent is the newest node one level up
        owner[node] = order[i]
    first[:] = np.cumsum(first)
    return first, token, owner


@_compiled
def summaries(first: Int32, leaves: Int64) -> tuple[Int32, NDArray[np.uint16]]:
    """The number of these leaves below each node, and the longest path from it to any leaf."""
    below, height = np.zeros(len(first) - 1, np.int32), np.zeros(len(first) - 1, np.uint16)
    below[leaves] = 1
    for node in range(len(below) - 1, -1, -1):  # children before parents: they have higher numbers
        for child in range(first[node] + 1, first[node + 1] + 1):
            below[node] += below[child]
            height[node] = max(height[node], height[child] + 1)
    return below, height


@_compiled
def children(first: Int32, token: Int32, nodes: Int64) -> tuple[Int64, Int64, Int64]:
    """All children of many nodes: (position in `nodes`, token, child node)."""
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
def union(first_a: Int32, token_a: Int32, first_b: Int32, token_b: Int32) -> tuple[Int32, ...]:
    """Two tries → (first, token, node in a or -1, node in b or -1); both are walked breadth-first."""
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
