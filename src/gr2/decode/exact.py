"""Encoder states become the provably best docids by best-first search.

A log-probability is never above 0, so the score of a prefix bounds every docid below it. The most promising
prefixes are opened first; when no open prefix reaches the k-th finished docid, nothing better exists and the
result is proven. A budget of decoder rows keeps the worst case finite; a query that exhausts it returns what
it has, unproven. This file knows no layer, no vocabulary and no text.

Shapes: B queries, F open prefixes, C children.
"""

import torch
from torch import Tensor

from gr2.decode.ranked import Ranked
from gr2.decode.scores import NodePrior, Normaliser
from gr2.decode.search import NOTHING, Block, Project, Search
from gr2.decode.weights import Decoder
from gr2.trie import Trie

WIDTH = 16
"""Prefixes opened per query and round: few are wasted, and the decoder gets enough rows to work well."""

Open = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
"""query, node to be opened, score, last cell read, node entered behind it, tokens down to `node`, each
[F]."""


@torch.inference_mode()
def exact(
    decoder: Decoder,
    trie: Trie,
    states: Tensor,
    mask: Tensor,
    *,
    k: int = 20,
    budget: int = 2000,
    normaliser: Normaliser = "vocabulary",
    length_penalty: float = 0.0,
    prior: NodePrior | None = None,
    project: Project | None = None,
) -> Ranked:
    """Best-first search over the trie; the arguments that `beam` has mean the same here.

    Args:
        decoder: as in `beam`, and so are trie, states, mask, normaliser, length_penalty, prior and project.
        trie: the docids.
        states: [B, S, width].
        mask: [B, S].
        k: how many docids to return for each query.
        budget: how many tokens the decoder may read for each query.
        normaliser: "vocabulary" or "trie".
        length_penalty: the power of the length that scores are divided by.
        prior: added to the logits of children.
        project: asks for `Ranked.vectors`.

    Returns:
        The docids found; where `proven`, these are the k best of all, ties by docid index. Elsewhere they are
        the best seen, and may be fewer than k.
    """
    if k < 1 or budget < 1:
        raise ValueError(f"k and budget must be at least 1, not {k} and {budget}")
    if not len(states):
        return Ranked.of_nothing()
    search = Search(
        decoder,
        trie,
        states,
        mask,
        places=k,
        k=k,
        normaliser=normaliser,
        length_penalty=length_penalty,
        prior=prior,
        project=project,
    )
    return search.ranked(_run(search, budget))


def _run(search: Search, budget: int) -> Tensor:
    """Open prefixes, best first, until each query is decided or broke; returns which are decided [B]."""
    query = torch.arange(search.batch, device=search.decoder.device)
    root = torch.zeros_like(query)
    proven = torch.ones_like(query, dtype=torch.bool)
    prefixes = _entered(search, query, root, root.float(), root - 1, root)
    while len(prefixes[0]):
        chosen, broke = _choose(search, prefixes, budget)
        proven &= ~broke
        waiting = ~broke[prefixes[0]]
        waiting[chosen] = False
        rest = [array[waiting] for array in prefixes]
        if len(chosen):
            query, node, score, cell, top, depth = (array[chosen] for array in prefixes)
            last, row, child, gain = search.expand(query, cell, top, node)
            new = _entered(search, query[row], child, score[row] + gain, last[row], depth[row] + 1)
            rest = [torch.cat(pair) for pair in zip(rest, new, strict=True)]
        prefixes = _promising(search, rest, budget)
    return proven


def _entered(
    search: Search, query: Tensor, child: Tensor, score: Tensor, cell: Tensor, depth: Tensor
) -> Open:
    """Nodes just entered [C], sorted by query → those to be opened; a complete docid is finished.

    With the trie normaliser what follows is certain up to the next branching node, and a docid without one is
    complete at once. With the vocabulary normaliser every token has its price.
    """
    paths = search.paths
    node = paths.landing[child].long() if search.normaliser == "trie" else child
    depth = (
        depth + paths.height[child] - paths.height[node]
    )  # below a single child the heights count the tokens
    possible, leaf = score > NOTHING, paths.count(node) == 0
    done = torch.nonzero(possible & leaf)[:, 0]
    final = search.final(score[done], depth[done])
    search.pool.add(query[done], final, paths.docid(node[done]), node[done], child[done], cell[done])
    going = torch.nonzero(possible & ~leaf)[:, 0]
    return query[going], node[going], score[going], cell[going], child[going], depth[going]


def _choose(search: Search, prefixes: Open, budget: int) -> tuple[Tensor, Tensor]:
    """The most promising prefixes of each query that it can pay for, and which queries [B] are broke."""
    query, node, score, _, top, depth = prefixes
    value, entry = Block(query, search.batch).best(search.bound(score, depth, node), WIDTH)  # [B, WIDTH]
    # Behind k better prefixes and docids an entry would be opened on the chance that most of them disappoint.
    rivals = torch.cat([search.pool.score, value], 1)
    real = (value > NOTHING) & (value >= rivals.topk(search.k, 1).values[:, -1:])
    price = (search.paths.height[top] - search.paths.height[node] + 1)[entry] * real  # tokens to read
    paid = real & (search.cells.rows[:, None] + price.cumsum(1) <= budget)
    return entry[paid], real[:, 0] & ~paid[:, 0]


def _promising(search: Search, prefixes: list[Tensor], budget: int) -> Open:
    """Keep the prefixes that may still lead to one of the k best docids, sorted by query."""
    query, node, score, cell, top, depth = prefixes
    bound = search.bound(score, depth, node)
    useful = torch.nonzero(bound >= search.pool.worst(search.k)[query])[:, 0]
    useful = useful[query[useful].argsort(stable=True)]
    if len(useful) > 2 * budget * search.batch:
        # No more than `budget` prefixes can ever be opened; those behind them cannot matter.
        value, entry = Block(query[useful], search.batch).best(bound[useful], budget)
        useful = useful[entry[value > NOTHING]]
    query, node, score, cell, top, depth = (array[useful] for array in prefixes)
    return query, node, score, cell, top, depth
