"""Encoder states → the provably best docids, by best-first search.

Log-probabilities are at most 0, so the score of a prefix is an upper bound for every docid below it. The most
promising prefixes are opened first; when no open prefix can reach the k-th finished docid, the result is
proven. A budget of decoder rows limits the worst case; a query that exhausts it returns the best docids it
has found, unproven.

Shapes: B queries, F open prefixes, C children.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from gr2.decode.block import NOTHING, Block
from gr2.decode.decoder import Decoder
from gr2.decode.ranked import Ranked
from gr2.decode.scores import NodePrior, Normaliser
from gr2.decode.search import Project, Search
from gr2.docids.trie import Trie

WIDTH = 16
"""Prefixes opened per query and round: few are opened in vain, and the decoder gets enough rows."""

Open = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
"""query, node to open, score, last cell read, node entered after that cell, and depth of `node`, each
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
    allowed: Sequence[int] | None = None,
) -> Ranked:
    """Best-first search over the trie.

    Args:
        decoder: as in `beam`, like every argument but `k` and `budget`.
        trie: the docids.
        states: [B, S, width].
        mask: [B, S].
        k: the number of docids to return for each query.
        budget: the number of tokens that the decoder may read for each query.
        normaliser: "vocabulary" or "trie".
        length_penalty: the power of the length that scores are divided by.
        prior: added to the logits of children.
        project: asks for `Ranked.vectors`.
        allowed: indices of the docids that may be returned; None allows all.

    Returns:
        The docids found; where `proven`, they are the k best of all allowed ones, ties by docid index.
        Elsewhere they are the best found within the budget, perhaps fewer than k.
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
        allowed=allowed,
    )
    return search.ranked(_run(search, budget))


def _run(search: Search, budget: int) -> Tensor:
    """Open prefixes until each query is proven or out of budget; returns which are proven [B]."""
    query = search.queries()
    root = torch.zeros_like(query)
    proven = torch.ones(search.batch, dtype=torch.bool, device=query.device)
    prefixes = _entered(search, query, root, root.float(), root - 1, root)
    while len(prefixes[0]):
        chosen, exhausted = _choose(search, prefixes, budget)
        proven &= ~exhausted
        waiting = ~exhausted[prefixes[0]]
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
    """Nodes just entered [C], sorted by query → prefixes to open; complete docids are finished.

    With the trie normaliser forced tokens are certain, so they are skipped up to the next branching node or
    the end of the docid. With the vocabulary normaliser every token must be read.
    """
    paths = search.paths
    node = paths.landing[child].long() if search.normaliser == "trie" else child
    depth = depth + paths.height[child] - paths.height[node]  # heights differ by the tokens skipped
    possible, leaf = score > NOTHING, paths.count(node) == 0
    done = torch.nonzero(possible & leaf)[:, 0]
    final = search.final(score[done], depth[done])
    search.pool.add(query[done], final, paths.docid(node[done]), node[done], child[done], cell[done])
    going = torch.nonzero(possible & ~leaf)[:, 0]
    return query[going], node[going], score[going], cell[going], child[going], depth[going]


def _choose(search: Search, prefixes: Open, budget: int) -> tuple[Tensor, Tensor]:
    """The most promising prefixes of each query within its budget, and which queries [B] exhausted it."""
    query, node, score, _, top, depth = prefixes
    value, entry = Block(query, search.batch).best(search.bound(score, depth, node), WIDTH)  # [B, WIDTH]
    # A prefix with k better prefixes and docids is not opened yet: most likely it never has to be.
    rivals = torch.cat([search.pool.score, value], 1)
    real = (value > NOTHING) & (value >= rivals.topk(search.k, 1).values[:, -1:])
    cost = (search.paths.height[top] - search.paths.height[node] + 1)[entry] * real  # tokens to read
    within = real & (search.cells.rows[:, None] + cost.cumsum(1) <= budget)
    return entry[within], real[:, 0] & ~within[:, 0]


def _promising(search: Search, prefixes: list[Tensor], budget: int) -> Open:
    """Keep the prefixes that may still lead to one of the k best docids, sorted by query."""
    query, node, score, cell, top, depth = prefixes
    bound = search.bound(score, depth, node)
    useful = torch.nonzero(bound >= search.pool.worst(search.k)[query])[:, 0]
    useful = useful[query[useful].argsort(stable=True)]
    if len(useful) > 2 * budget * search.batch:
        # At most `budget` prefixes can ever be opened, so only the best `budget` matter.
        value, entry = Block(query[useful], search.batch).best(bound[useful], budget)
        useful = useful[entry[value > NOTHING]]
    query, node, score, cell, top, depth = (array[useful] for array in prefixes)
    return query, node, score, cell, top, depth
