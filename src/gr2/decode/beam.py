"""Encoder states become the best docids by constrained beam search (paper: Inference).

The search is the one of transformers' `generate` with `early_stopping="never"`: at each step the best
continuations of each query are ranked; those that end among the first `beams` are finished, and the best
`beams` others go on. What cannot change the result is not computed: beams that fell behind the k-th finished
docid, places that hold no beam, and with the trie normaliser every forced token. This file knows no layer, no
vocabulary and no text.

Shapes: B queries, R rows (live beams), C continuations, M ranked continuations of a query.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from gr2.decode.narrowed import Narrowed
from gr2.decode.ranked import Ranked
from gr2.decode.scores import NodePrior, Normaliser
from gr2.decode.search import NOTHING, Block, Project, Search
from gr2.decode.tails import read_tails
from gr2.decode.weights import Decoder
from gr2.trie import Trie

Rows = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
"""query, node, score, the last cell that was read, and the node entered behind it, each [R]."""


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
        decoder: the weights, from `decoder_of` or `t5_decoder`.
        trie: the docids; an empty one is refused.
        states: [B, S, width] the encoder's states of each query, padded.
        mask: [B, S] nonzero where there is a token; each query has at least one.
        beams: how many prefixes go on after each step.
        k: how many docids to return for each query, at most `beams` (which is the default).
        normaliser: "vocabulary" (softmax over all tokens) or "trie" (softmax over the children of a node).
        length_penalty: divide a docid's score by its length, end included, to this power; 0 is the plain sum.
        prior: a score added to the logits of children (trie normaliser only).
        project: maps states [N, D] to [N, width], for example ReLU(W v + b); asks for `Ranked.vectors`.
        allowed: the docids that may be found, at least one; None for all. Scores do not depend on it, and
            with no more of them than beams every one is found.

    Returns:
        The docids found; `proven` is true where nothing that was dropped could have been better.
    """
    k = beams if k is None else k
    if not 0 < k <= beams:
        raise ValueError(f"k must lie between 1 and the number of beams ({beams}), not {k}")
    if len(states) == 0:
        return Ranked.of_nothing()
    search = (Search if allowed is None else Narrowed)(
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
    )
    if allowed is not None and isinstance(search, Narrowed):
        search.allow(torch.from_numpy(trie.leaf_of(allowed)))
    dropped = _run(search, beams)
    # With a length penalty a worse prefix may become a better docid, so nothing dropped is known to be worse.
    worst = search.pool.worst(k) if length_penalty == 0 else NOTHING
    return search.ranked((dropped == NOTHING) | (dropped < worst))


def _run(search: Search, beams: int) -> Tensor:
    """Step until no beam is left; returns the best score of each query that was dropped on the way [B]."""
    query = torch.arange(search.batch, device=search.decoder.device)
    root = torch.zeros_like(query)
    rows: Rows = (query, root, root.float(), root - 1, root)
    dropped = torch.full_like(rows[2], NOTHING)
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
        forced = search.paths.count(node) == 1  # [R] certain, so the decoder is not asked
    else:
        forced = torch.zeros_like(node, dtype=torch.bool)
    asked = torch.nonzero(~forced)[:, 0]
    parts = []
    if len(asked):
        last, row, child, gain = search.expand(query[asked], cell[asked], top[asked], node[asked])
        parts.append((query[asked][row], child, score[asked][row] + gain, last[row], child))
    if len(asked) < len(node):
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
    """Move the chosen entries to the finished docids."""
    leaf = leaf[chosen]
    docid = search.paths.docid(leaf)
    search.pool.add(query[chosen], final[chosen], docid, leaf, top[chosen], cell[chosen])


def _without_tails(search: Search, rows: Rows, depth: int, tails: list[tuple[Tensor, ...]]) -> Rows:
    """Take out the queries whose every beam has one docid left: no beam can push out another any more.

    With the trie normaliser these docids are certain, hence finished; otherwise they are read later, many
    tokens at a time.
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
    """Drop beams that cannot reach the k-th finished docid any more.

    With a length penalty only whole queries are dropped: the place of one beam would go to a worse prefix
    that might become a longer and better docid, which plain beam search does not find.
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
