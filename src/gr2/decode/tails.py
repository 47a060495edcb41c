"""Prefixes with one docid left become finished docids, many tokens at a time.

With the vocabulary normaliser even a forced token has its price. But what follows it is known, so a row need
not wait for one token before it reads the next: a few long stretches fill a multiplication as well as many
beams do. This file knows no layer and no vocabulary.

Shapes: R rows, N tokens read.
"""

import torch
from torch import Tensor

from gr2.decode.search import Search

FULL = 64
"""Tokens per pass: beyond, a pass costs in proportion, and reading on in rows that fall behind is waste."""


def read_tails(search: Search, tails: list[tuple[Tensor, ...]]) -> None:
    """Read forced rows to their ends, unless they fall behind the k-th finished docid.

    Args:
        search: the batch; its finished docids grow.
        tails: groups of rows: query, node, score, last cell read and tokens above the node, each [R].
    """
    if not tails:
        return
    query, node, score, cell, depth = (torch.cat(arrays) for arrays in zip(*tails, strict=True))
    paths = search.paths
    final_read = paths.parent(paths.landing[node])  # [R] behind it there is only the end
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
