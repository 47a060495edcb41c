"""What beam and exact search share: input checks, the decoder's step, finished docids and their ranking.

Shapes: B queries, N entries, K places per query, T tokens, D width.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from gr2.decode.block import NOTHING, Block
from gr2.decode.cells import Cells
from gr2.decode.decoder import Decoder
from gr2.decode.paths import Paths, paths_of
from gr2.decode.ranked import Ranked
from gr2.decode.scores import NodePrior, Normaliser, child_scores
from gr2.docids.trie import Trie

Project = Callable[[Tensor], Tensor]


class Search:
    """The state of one batch of queries: the cells read, the trie, and the docids finished so far."""

    def __init__(
        self,
        decoder: Decoder,
        trie: Trie,
        states: Tensor,
        mask: Tensor,
        *,
        places: int,
        k: int,
        normaliser: Normaliser,
        length_penalty: float,
        prior: NodePrior | None,
        project: Project | None,
        allowed: Sequence[int] | None,
    ) -> None:
        """Check the input and encode it for the decoder.

        Args:
            decoder: as in `beam`, like every argument but `places`.
            trie: the docids.
            states: [B, S, width].
            mask: [B, S].
            places: the number of finished docids that are kept for each query, at least `k`.
            k: the number of docids to return for each query.
            normaliser: "vocabulary" or "trie".
            length_penalty: the power of the length that scores are divided by.
            prior: added to the logits of children.
            project: asks for `Ranked.vectors`.
            allowed: the docids that may be returned.
        """
        _check(trie, states, mask, normaliser, prior)
        self.decoder, self.normaliser = decoder, normaliser
        self.prior = None if prior is None else prior.to(decoder.device)
        self.penalty, self.k, self.project = length_penalty, k, project
        self.paths: Paths = paths_of(trie, decoder.device)
        self.kept = None if allowed is None else self.paths.towards(trie.leaf_of(allowed))  # [nodes]
        self.batch = len(states)
        self.tallest = int(trie.height[0])
        self.cells = Cells(decoder, states, mask, self.tallest, keep=project is not None)
        self.pool = Pool(self.batch, places, decoder.device)

    def queries(self) -> Tensor:
        """The queries to search for: all of the batch, or none if no docid is allowed."""
        count = 0 if self.kept is not None and not bool(self.kept[0]) else self.batch
        return torch.arange(count, device=self.decoder.device)

    def expand(
        self, query: Tensor, cell: Tensor, top: Tensor, node: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Read the tokens from `top` to `node` after `cell`, and score the children of `node`.

        Returns:
            The last cell of each row [R]; then row, child and log-probability of each child [C].
        """
        read, counts = self.paths.stretch(top, node)
        cells, state = self.read(query, cell, read, counts)
        last = counts.cumsum(0) - 1
        return cells[last], *self.score(state[last], query, node)

    def read(self, query: Tensor, cell: Tensor, nodes: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Read the tokens of nodes [N], `counts` [R] per row, after `cell` → cells [N] and states [N, D]."""
        return self.cells.extend(query, cell, self.paths.label(nodes, self.decoder.start), counts)

    def score(self, state: Tensor, query: Tensor, node: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Row, child and log-probability of each allowed child [C] of nodes [R] with states [R, D].

        A filter narrows what may be returned, not what is normalised over: the other children are scored
        too, then dropped. So a docid's score does not depend on the filter.
        """
        row, child, gain = child_scores(
            self.decoder, self.paths, state, query, node, self.normaliser, self.prior
        )
        if self.kept is None:
            return row, child, gain
        kept = self.kept[child]
        return row[kept], child[kept], gain[kept]

    def final(self, score: Tensor, length: Tensor | int) -> Tensor:
        """The score of a finished docid with `length` tokens, end included, as transformers computes it."""
        return score if self.penalty == 0 else score / length**self.penalty

    def bound(self, score: Tensor, depth: Tensor | int, node: Tensor) -> Tensor:
        """An upper bound of the final scores below a node.

        Log-probabilities are at most 0. A length penalty above 0 favours the longest docid below the node,
        one below 0 the shortest.
        """
        if self.penalty == 0:
            return score
        return self.final(score, depth + self.paths.height[node] if self.penalty > 0 else depth + 1)

    def ranked(self, proven: Tensor) -> Ranked:
        """The finished docids on the host, with representations if asked for."""
        pool, k = self.pool, self.k
        real = pool.score[:, :k] > NOTHING  # [B, k]
        query = torch.nonzero(real)[:, 0]
        vectors = None
        if self.project is not None:
            vectors = self._represent(
                query, *(entry[:, :k][real] for entry in (pool.cell, pool.top, pool.leaf))
            )
        return Ranked(
            offsets=np.concatenate([[0], real.sum(1).cumsum(0).cpu().numpy()]),
            docids=pool.docid[:, :k][real].cpu().numpy(),
            scores=pool.score[:, :k][real].float().cpu().numpy(),
            proven=proven.cpu().numpy(),
            rows=self.cells.rows.cpu().numpy(),
            vectors=vectors,
        )

    def _represent(self, query: Tensor, cell: Tensor, top: Tensor, leaf: Tensor) -> Tensor:
        """The mean of `project` over the states of a docid's tokens, without start and end [N, width].

        Forced stretches that the search skipped are read now; all other states exist already.
        """
        assert self.project is not None and self.cells.states is not None
        behind = torch.nonzero(top != leaf)[:, 0]
        if len(behind):
            nodes, counts = self.paths.stretch(top[behind], self.paths.parent(leaf[behind]))  # not the end
            cells, _ = self.read(query[behind], cell[behind], nodes, counts)
            cell = cell.index_copy(0, behind, cells[counts.cumsum(0) - 1])
        length = self.cells.length[cell] - 1  # [N] without the start
        place = torch.arange(self.tallest - 1, device=cell.device)
        real = place < length[:, None]  # [N, T]
        used, at = torch.unique(self.cells.ancestors[cell][:, 1:][real], return_inverse=True)
        each = self.project(self.cells.states[used])  # [cells, width]
        total = each.new_zeros(len(cell), each.shape[1]).index_add_(0, torch.nonzero(real)[:, 0], each[at])
        return total / length.clamp_min(1)[:, None]


class Pool:
    """The best finished docids of each query, best first; equal scores by docid index."""

    def __init__(self, batch: int, places: int, device: torch.device) -> None:
        """Start empty: every score is -inf."""
        self.places = places
        self.score = torch.full((batch, places), NOTHING, device=device)
        self.docid, self.leaf, self.top, self.cell = (
            torch.zeros(batch, places, dtype=torch.long, device=device) for _ in range(4)
        )

    def add(
        self, query: Tensor, score: Tensor, docid: Tensor, leaf: Tensor, top: Tensor, cell: Tensor
    ) -> None:
        """Merge finished docids, each [N] and sorted by query; `top` is the node entered after `cell`."""
        if not len(query):
            return
        block = Block(query, len(self.score))
        score = torch.cat([self.score, block.spread(score, NOTHING)], 1)  # [B, K + N]
        docid = torch.cat([self.docid, block.spread(docid, 0)], 1)
        by_docid = docid.argsort(1)
        by_score = score.gather(1, by_docid).argsort(dim=1, descending=True, stable=True)
        best = by_docid.gather(1, by_score)[:, : self.places]
        self.score, self.docid = score.gather(1, best), docid.gather(1, best)
        self.leaf, self.top, self.cell = (
            torch.cat([old, block.spread(new, 0)], 1).gather(1, best)
            for old, new in ((self.leaf, leaf), (self.top, top), (self.cell, cell))
        )

    def worst(self, k: int) -> Tensor:
        """The k-th best score of each query [B], -inf where there are fewer."""
        return self.score[:, k - 1]


def _check(trie: Trie, states: Tensor, mask: Tensor, normaliser: Normaliser, prior: NodePrior | None) -> None:
    if not len(trie):
        raise ValueError("the trie holds no docid: there is nothing to search")
    if states.ndim != 3 or mask.shape != states.shape[:2]:
        raise ValueError(
            "expected encoder states [B, S, width] and a mask [B, S], "
            f"not {list(states.shape)} and {list(mask.shape)}"
        )
    empty = torch.nonzero(~mask.bool().any(1))[:, 0].tolist()
    if empty:
        raise ValueError(f"query {empty[0]} of the batch has no token: its row of the encoder mask is all 0")
    if normaliser not in ("vocabulary", "trie"):
        raise ValueError(f"normaliser must be 'vocabulary' or 'trie', not {normaliser!r}")
    if prior is not None and normaliser != "trie":
        raise ValueError("a node prior is added to the logits of children: it needs normaliser='trie'")
    if prior is not None and len(prior.scores) != len(states):
        raise ValueError(
            f"the node prior has scores of {len(prior.scores)} queries for {len(states)} queries in the batch"
        )
    if prior is not None and len(prior.low) != trie.nodes:
        raise ValueError(f"the node prior covers {len(prior.low)} nodes; the trie has {trie.nodes}")
    if prior is not None and int(prior.high.max()) > prior.scores.shape[1]:
        raise ValueError(
            f"the node prior has {prior.scores.shape[1]} scores of a query; its nodes need {prior.high.max()}"
        )
