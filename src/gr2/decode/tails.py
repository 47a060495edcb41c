"""Prefixes of a single docid → finished docids, many tokens at a time.

With the vocabulary normaliser even a forced token has a probability below 1, so it must be read. But the
tokens are known beforehand and are read together: a few long stretches fill a matrix product as well as many
beams do.

Shapes: R rows, N tokens read.
"""

import torch
from torch import Tensor

from gr2.decode.search import Search

FULL = 64
"""Tokens per pass: with more, a pass costs in proportion and reads on in rows that fall behind."""


def read_tails(search: Search, tails: list[tuple[Tensor, ...]]) -> None:
    """Read forced rows to their ends, or until they fall behind the k-th finished docid.

    Args:
        search: the batch; finished docids are added to its pool.
        tails: groups of rows: query, node, score, last cell read, and depth of the node, each [R].
    """
    if not tails:
        return
    query, node, score, cell, depth = (torch.cat(arrays) for arrays in zip(*tails, strict=True))
    paths = search.paths
    final_read = paths.parent(paths.landing[node])  # [R] only the end follows it
    order = query.argsort(stable=True)
    while len(order):
        query, node, score, cell, depth, final_read = (
            array[order] for array in (query, node, score, cell, depth, final_read)
        )
        nodes, counts = paths.stretch(node, final_read, max(1, FULL // len(query)))
        row, last = torch.repeat_interleave(counts), counts.cumsum(0) - 1
        cells, state = search.read(query, cell, nodes, counts)
        _, child, gain = search.score(state, query[row], nodes)  # one child each
        score = score.index_add(0, row, gain)
        cell, node, depth = cells[last], child[last], depth + counts
        ended = nodes[last] == final_read
        done = torch.nonzero(ended)[:, 0]
        leaf = node[done]
        final = search.final(score[done], depth[done])
        search.pool.add(query[done], final, paths.docid(leaf), leaf, leaf, cell[done])
        useful = search.bound(score, depth, node) >= search.pool.worst(search.k)[query]
        order = torch.nonzero(useful & ~ended)[:, 0]
