"""A batch and a network → L_total and its terms (paper Eq. total).

There are two normalisers: `vocabulary` (softmax over all docid tokens) and `trie` (softmax over the children
of a node, so that forced tokens have no loss); a model is searched with the one it was trained with.

Shapes: B queries, D docid rows, N texts, S source tokens, H width of ξ.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from gr2.docids.trie import Trie
from gr2.model.network import Network
from gr2.training import losses
from gr2.training.batches import Batch
from gr2.training.config import ObjectiveConfig
from gr2.training.distributed import gather_rows
from gr2.training.gradients import Each, whole
from gr2.training.teacher_forcing import TeacherForcing
from gr2.training.variants import UNSMOOTHED, QueryLoss, query_losses


class Objective:
    """The loss of a training run: docids as tensors, their trie, and the loss settings."""

    def __init__(
        self,
        tokens: Sequence[Sequence[int]],
        trie: Trie,
        levels: int,
        config: ObjectiveConfig,
        *,
        query_loss: QueryLoss | None = None,
        device: torch.device | None = None,
    ) -> None:
        """Prepare the docids for teacher forcing.

        Args:
            tokens: the tokens of every docid.
            trie: the trie of the same docids.
            levels: L, the number of grades.
            config: the settings; `variants.variant_objective` returns those of a variant.
            query_loss: replaces `config.query_loss`, for a custom loss.
            device: the network's device.
        """
        self.levels, self.config = levels, config
        self.query_losses = {"custom": query_loss} if query_loss else query_losses(config.query_loss)
        self.forced = TeacherForcing(
            tokens, trie, config.normaliser, smoothing=config.smoothing, device=device
        )

    def __call__(
        self, network: Network, batch: Batch, states: Tensor, text_states: Tensor
    ) -> dict[str, Tensor]:
        """The terms of the loss and `total`, from the encoder states of queries and texts."""
        return whole(self, network, batch, states, text_states)

    @property
    def compares(self) -> bool:
        """Whether there is L_MGCC, which compares representations across the batch."""
        return self.config.gamma > 0

    def each(self, network: Network, batch: Batch, states: Tensor, text_states: Tensor) -> Each:
        """The likelihood terms of each query [B] and text [N], and the representations for L_MGCC."""
        terms: dict[str, Tensor] = {}
        f_q = f_id = states.new_zeros(0, network.xi_docid.out_features, requires_grad=self.compares)
        if len(batch.docids):
            found, terms["mle_q"] = self._queries(network, batch, states)
            f_id = f_id if found is None else found
        if len(batch.text_docids):
            terms["mle_d"] = self._documents(network, batch, text_states)
        if not self.compares:
            return Each(terms)
        if len(batch.queries):
            f_q = network.represent_query(states, batch.query_mask)
        return Each(terms, (f_q.float(), f_id.float()))

    def across(self, batch: Batch, representations: Sequence[Tensor]) -> dict[str, Tensor]:
        """L_MGCC of each query [B], from f_q [B, H] and f_id [D, H]; of no query without any docids."""
        f_q, f_id = representations
        grades, negatives = batch.grades, batch.negatives
        if others := batch.elsewhere.shape[1]:  # a rank without rows takes part too: the others wait for it
            gathered = gather_rows(f_id, others)
            if not len(f_id):
                return {"mgcc": 0.0 * gathered.sum()[None]}
            f_id = torch.cat([f_id, gathered])
            grades, negatives = F.pad(grades, (0, others)), torch.cat([negatives, batch.elsewhere], 1)
        if not len(f_id):
            return {}
        similarities = losses.similarity(
            f_q, f_id, kind=self.config.similarity, temperature=self.config.temperature
        )
        found = losses.mgcc(
            similarities,
            grades,
            negatives,
            levels=self.levels,
            penalty=self.config.penalty,
            constraint=self.config.constraint,
            against=self.config.against,
        )
        return {"mgcc": found}

    def total(self, terms: Mapping[str, Tensor]) -> Tensor:
        """L_total of the terms, each a loss per example; a missing one counts as 0."""
        nothing = torch.zeros(1, device=next(iter(terms.values())).device) if terms else torch.zeros(1)
        contrast, pairs, documents = (terms.get(name, nothing) for name in ("mgcc", "mle_q", "mle_d"))
        return losses.total(contrast, pairs, documents, gamma=self.config.gamma)

    def _queries(self, network: Network, batch: Batch, states: Tensor) -> tuple[Tensor | None, Tensor]:
        """f_id [D, H] if there is L_MGCC, and the loss of each query's docids [B]."""
        prior = network.prior_scores(batch.queries, states, batch.query_mask)
        smoothings = {
            name: 0.0 if name in UNSMOOTHED else self.config.smoothing for name in self.query_losses
        }
        forced = {
            smoothing: self.forced(
                network,
                states,
                batch.query_mask,
                batch.owner,
                batch.docids,
                prior=prior,
                represent=self.compares,
                smoothing=smoothing,
            )
            for smoothing in dict.fromkeys(smoothings.values())
        }
        each = [
            self._pairs(loss, forced[smoothings[name]][1], batch.grades)
            for name, loss in self.query_losses.items()
        ]
        return next(iter(forced.values()))[0], torch.stack(each).sum(0)

    def _pairs(self, loss: QueryLoss, likelihood: Tensor, grades: Tensor) -> Tensor:
        pairs = loss(likelihood, grades, self.levels)
        if not isinstance(pairs, Tensor) or pairs.shape != grades.shape[:1]:
            found = list(pairs.shape) if isinstance(pairs, Tensor) else type(pairs).__name__
            raise ValueError(
                f"the loss of query-docid pairs must give a value per query [{len(grades)}], not {found}"
            )
        if likelihood.requires_grad and not pairs.requires_grad:
            raise ValueError(
                "the loss of query-docid pairs does not depend on the log-likelihoods: no gradient"
            )
        return pairs

    def _documents(self, network: Network, batch: Batch, states: Tensor) -> Tensor:
        each = torch.arange(len(batch.text_docids), device=states.device)
        prior = network.prior_scores(batch.texts, states, batch.text_mask)
        _, likelihood = self.forced(network, states, batch.text_mask, each, batch.text_docids, prior=prior)
        return losses.mle_d(likelihood)
