"""Encoder states → the best docids, by constrained beam search (paper: Inference).

The search is that of transformers' `generate` with `early_stopping="never"`: at each step the continuations
of a query are ranked; docids that end among the first `beams` are finished, and the best `beams` others
continue. What cannot change the result is not computed: beams that fell behind the k-th finished docid,
places without a beam, and with the trie normaliser every forced token.

Shapes: B queries, R rows (live beams), C continuations, M ranked continuations of a query.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from gr2.decode.block import NOTHING, Block
from gr2.decode.decoder import Decoder
from gr2.decode.ranked import Ranked
from gr2.decode.scores import NodePrior, Normaliser
from gr2.decode.search import Project, Search
from gr2.decode.tails import read_tails
from gr2.docids.trie import Trie

Rows = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
"""query, node, score, last cell read, and node entered after that cell, each [R]."""


@torch.inference_mode()
def beam(
    decoder: Decoder,
    trie: Trie,
    states: Tensor,
    mask: Tensor,
    *,
    beams: int = 20,
    k: int | None = None,
    normaliser: Normaliser = "vocabulary",
    length_penalty: float = 0.0,
    prior: NodePrior | None = None,
    project: Project | None = None,
    allowed: Sequence[int] | None = None,
) -> Ranked:
    """Constrained beam search.

    Args:
        decoder: the weights, from `decoder_of`, `t5_decoder` or `bart_decoder`; the search runs on their
            device.
        trie: the docids, at least one.
        states: [B, S, width] the encoder's states of each query, padded.
        mask: [B, S] nonzero where there is a token; each query has at least one.
        beams: the number of prefixes that continue after each step.
        k: the number of docids to return for each query, at most `beams` (the default).
        normaliser: "vocabulary" (softmax over all tokens) or "trie" (softmax over the children of a node).
        length_penalty: divide a docid's score by its length, end included, to this power; 0 is the plain sum.
        prior: scores added to the logits of children (trie normaliser only).
        project: maps states [N, D] to [N, width], for example ReLU(W v + b); asks for `Ranked.vectors`.
        allowed: indices of the docids that may be returned; None allows all. The filter does not change
            scores. If it allows at most `beams` docids, all of them are found; if it allows none, nothing is.

    Returns:
        The docids found; `proven` is true where no allowed docid that was dropped could have ranked higher.
    """
    k = beams if k is None else k
    if not 0 < k <= beams:
        raise ValueError(f"k must lie between 1 and the number of beams ({beams}), not {k}")
    if len(states) == 0:
        return Ranked.of_nothing()
    search = Search(
        decoder,
        trie,
        states,
        mask,
        places=beams,
        k=k,
        normaliser=normaliser,
        length_penalty=length_penalty,
        prior=prior,
        project=project,
        allowed=allowed,
    )
    dropped = _run(search, beams)
    # With a length penalty a worse prefix may lead to a better docid: nothing that was dropped is ruled out.
    worst = search.pool.worst(k) if length_penalty == 0 else NOTHING
    return search.ranked((dropped == NOTHING) | (dropped < worst))


def _run(search: Search, beams: int) -> Tensor:
    """Step until no beam is left; returns the best score that was dropped for each query [B]."""
    query = search.queries()
    root = torch.zeros_like(query)
    rows: Rows = (query, root, root.float(), root - 1, root)
    dropped = torch.full((search.batch,), NOTHING, device=query.device)
    tails: list[tuple[Tensor, ...]] = []
    for depth in range(search.tallest):
        rows = _without_tails(search, rows, depth, tails)
        if not len(rows[0]):
            break
        query, child, score, cell, top = _continuations(search, rows)
        value, entry = Block(query, search.batch).best(score, 2 * beams + 1)  # [B, M]
        real, leaf = value > NOTHING, search.paths.count(child[entry]) == 0
        done = real & leaf & (torch.arange(value.shape[1], device=value.device) < beams)
        going = real & ~leaf
        going &= going.cumsum(1) <= beams
        dropped = torch.maximum(dropped, value.masked_fill(done | going, NOTHING).amax(1))
        _finish(search, entry[done], query, child, search.final(score, depth + 1), cell, top)
        chosen = entry[going]
        rows = (query[chosen], child[chosen], score[chosen], cell[chosen], top[chosen])
        rows = _still_useful(search, rows, depth + 1)
    read_tails(search, tails)
    return dropped


def _continuations(search: Search, rows: Rows) -> Rows:
    """Every continuation of every row by one token, in the order of queries; each array is [C]."""
    query, node, score, cell, top = rows
    if search.normaliser == "trie":
        forced = search.paths.count(node) == 1  # [R] certain, so the decoder need not run
    else:
        forced = torch.zeros_like(node, dtype=torch.bool)
    free = torch.nonzero(~forced)[:, 0]
    parts = []
    if len(free):
        last, row, child, gain = search.expand(query[free], cell[free], top[free], node[free])
        parts.append((query[free][row], child, score[free][row] + gain, last[row], child))
    if len(free) < len(node):
        only = search.paths.first[node[forced]].long() + 1
        parts.append((query[forced], only, score[forced], cell[forced], top[forced]))
    if len(parts) == 1:
        return parts[0]
    joined = [torch.cat(pair) for pair in zip(*parts, strict=True)]
    order = joined[0].argsort(stable=True)
    query, child, score, cell, top = (array[order] for array in joined)
    return query, child, score, cell, top


def _finish(
    search: Search, chosen: Tensor, query: Tensor, leaf: Tensor, final: Tensor, cell: Tensor, top: Tensor
) -> None:
    """Add the chosen entries to the finished docids."""
    leaf = leaf[chosen]
    docid = search.paths.docid(leaf)
    search.pool.add(query[chosen], final[chosen], docid, leaf, top[chosen], cell[chosen])


def _without_tails(search: Search, rows: Rows, depth: int, tails: list[tuple[Tensor, ...]]) -> Rows:
    """Remove the queries all of whose beams have one docid left: no beam can displace another any more.

    With the trie normaliser these docids are certain and therefore finished; otherwise they are added to
    `tails` and read later, many tokens at a time.
    """
    query, node, score, cell, top = rows
    branching = (search.paths.count(search.paths.landing[node].long()) > 0).long()
    undecided = torch.zeros(search.batch, dtype=torch.long, device=node.device)
    tail = undecided.index_add_(0, query, branching)[query] == 0
    if not bool(tail.any()):
        return rows
    if search.normaliser == "trie":
        final = search.final(score, depth + search.paths.height[node])
        leaf = search.paths.landing[node].long()
        _finish(search, torch.nonzero(tail)[:, 0], query, leaf, final, cell, top)
    else:
        tails.append((query[tail], node[tail], score[tail], cell[tail], torch.full_like(node[tail], depth)))
    query, node, score, cell, top = (array[~tail] for array in rows)
    return query, node, score, cell, top


def _still_useful(search: Search, rows: Rows, depth: int) -> Rows:
    """Drop beams that can no longer reach the k-th finished docid.

    With a length penalty only whole queries are dropped: a dropped beam's place would go to a worse prefix,
    which might lead to a longer and better docid that plain beam search does not find.
    """
    query, node, score, _, _ = rows
    useful = search.bound(score, depth, node) >= search.pool.worst(search.k)[query]
    if search.penalty != 0:
        alive = torch.zeros(search.batch, dtype=torch.long, device=node.device).index_add_(
            0, query, useful.long()
        )
        useful = alive[query] > 0
    if bool(useful.all()):
        return rows
    query, node, score, cell, top = (array[useful] for array in rows)
    return query, node, score, cell, top
