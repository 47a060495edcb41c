"""A network, a collection and a batch → what the loss is made of, computed one docid at a time.

Nothing is padded, skipped or grouped; who is whose negative is read off the judgements; a trie is a
dictionary of prefixes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from gr2.data.collection import Collection
from gr2.model.gr2 import GR2
from gr2.model.network import END, START
from gr2.training.batches import Batch


@dataclass(frozen=True)
class ByHand:
    """What a batch's losses are called with, by hand."""

    model: GR2
    data: Collection
    batch: Batch
    normaliser: str

    @cached_property
    def qids(self) -> list[str]:
        """The queries of the batch; those of the collection come first, in the order of its judgements."""
        known = list(self.data.split("train"))
        return [known[index] for index in self.batch.query_index.tolist()]

    def judged(self, query: int, docid: int) -> int:
        """The grade of a docid's document for a query of the batch; 0 if it is not relevant."""
        return max(0, self.data.split("train")[self.qids[query]].get(self.model.docids.docnos[docid], 0))

    @cached_property
    def grades(self) -> Tensor:
        """[B, D] the grade where the row is the query's own."""
        rows = list(enumerate(zip(self.batch.owner.tolist(), self.batch.docids.tolist(), strict=True)))
        found = torch.zeros(len(self.qids), len(rows), dtype=torch.long)
        for row, (query, docid) in rows:
            found[query, row] = self.judged(query, docid)
        return found

    @cached_property
    def negatives(self) -> Tensor:
        """[B, D] whether the row's document is not relevant to the query, whoever brought it."""
        docids = self.batch.docids.tolist()
        return torch.tensor([[not self.judged(q, d) for d in docids] for q in range(len(self.qids))])

    @cached_property
    def next_tokens(self) -> Mapping[tuple[int, ...], Sequence[int]]:
        """The prefixes of all docids and the tokens that may follow each."""
        found: dict[tuple[int, ...], set[int]] = {}
        for tokens in self.model.tokens:
            path = (*tokens, END)
            for place, token in enumerate(path):
                found.setdefault(path[:place], set()).add(token)
        return {prefix: sorted(tokens) for prefix, tokens in found.items()}

    def sources(self, ids: Tensor, mask: Tensor) -> list[Tensor]:
        """The tokens of each text without padding, [1, S] each."""
        return [row[real.bool()][None] for row, real in zip(ids, mask, strict=True)]

    def f_q(self) -> Tensor:
        """Eq. 5: the mean over a query's tokens of ReLU(ξ of the encoder's state): [B, H]."""
        network, found = self.model.network, []
        for ids in self.sources(self.batch.queries, self.batch.query_mask):
            states = network.encode(ids, torch.ones_like(ids))[0]
            projected = states @ network.xi_query.weight.T + network.xi_query.bias
            assert (projected < 0).any(), "else nothing shows whether there is a ReLU"
            found.append(projected.clamp_min(0).mean(0))
        return torch.stack(found)

    def f_id(self) -> Tensor:
        """Eq. 6: the mean over a docid's tokens of ReLU(ξ of the decoder's state): [D, H]."""
        network, found = self.model.network, []
        sources = self.sources(self.batch.queries, self.batch.query_mask)
        for query, docid in zip(self.batch.owner.tolist(), self.batch.docids.tolist(), strict=True):
            hidden = self._decoded(sources[query], docid)[1:]
            projected = hidden @ network.xi_docid.weight.T + network.xi_docid.bias
            assert (projected < 0).any(), "else nothing shows whether there is a ReLU"
            found.append(projected.clamp_min(0).mean(0))
        return torch.stack(found)

    def of_queries(self, smoothing: float) -> Tensor:
        """log P(id ∣ q) of each row, with label smoothing: [D]."""
        sources = self.sources(self.batch.queries, self.batch.query_mask)
        rows = zip(self.batch.owner.tolist(), self.batch.docids.tolist(), strict=True)
        return torch.stack([self._likelihood(sources[query], docid, smoothing) for query, docid in rows])

    def of_texts(self, smoothing: float) -> Tensor:
        """log P(id ∣ d) of each text, with label smoothing: [N]."""
        sources = self.sources(self.batch.texts, self.batch.text_mask)
        docids = self.batch.text_docids.tolist()
        pairs = zip(sources, docids, strict=True)
        return torch.stack([self._likelihood(source, docid, smoothing) for source, docid in pairs])

    def _decoded(self, source: Tensor, docid: int) -> Tensor:
        """The decoder's states of a docid, the first of which has read the start alone: [T, W]."""
        mask = torch.ones_like(source)
        reads = torch.tensor([[START, *self.model.tokens[docid]]])
        network = self.model.network
        return network.decode(network.encode(source, mask), mask, reads)[0]

    def _likelihood(self, source: Tensor, docid: int, smoothing: float) -> Tensor:
        path = (*self.model.tokens[docid], END)
        total, prior = torch.zeros(()), self._prior(source)
        for place, logits in enumerate(self.model.network.head(self._decoded(source, docid))):
            among = list(range(len(logits)))
            if self.normaliser == "trie":
                among = list(self.next_tokens[path[:place]])
                logits = logits + prior(path[:place], len(logits))
            probabilities = torch.log_softmax(logits[among], 0)
            own = probabilities[among.index(path[place])]
            total = total + (1 - smoothing) * own + smoothing * probabilities.mean()
        return total

    def _prior(self, source: Tensor) -> Callable[[tuple[int, ...], int], Tensor]:
        """A prefix and the number of tokens → what the node prior adds to their logits; 0 without one."""
        network = self.model.network
        mask = torch.ones_like(source)
        scores = network.prior_scores(source, network.encode(source, mask), mask)

        def added(prefix: tuple[int, ...], count: int) -> Tensor:
            found = torch.zeros(count)
            if scores is not None:
                for token in self.next_tokens[prefix]:
                    child = torch.tensor([self.model.trie.find([*prefix, token])])
                    found[token] = scores.score(torch.zeros_like(child), child)[0]
            return found

        return added
