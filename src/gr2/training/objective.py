"""A batch and a network → L_total and its terms (paper Eq. total).

There are two normalisers: `vocabulary` (softmax over all docid tokens) and `trie` (softmax over the children
of a node, so that forced tokens have no loss); a model is searched with the one it was trained with.

Shapes: B queries, D docid rows, N texts, S source tokens.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from gr2.docids.trie import Trie
from gr2.model.network import Network
from gr2.training import losses
from gr2.training.batches import Batch
from gr2.training.config import ObjectiveConfig
from gr2.training.distributed import gather_rows
from gr2.training.teacher_forcing import TeacherForcing
from gr2.training.variants import QUERY_LOSSES, QueryLoss


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
        if query_loss is None and config.query_loss not in QUERY_LOSSES:
            raise ValueError(f"no loss is called {config.query_loss!r}; there are: {', '.join(QUERY_LOSSES)}")
        self.levels, self.config = levels, config
        self.query_loss = query_loss or QUERY_LOSSES[config.query_loss]
        self.forced = TeacherForcing(
            tokens, trie, config.normaliser, smoothing=config.smoothing, device=device
        )

    def __call__(
        self, network: Network, batch: Batch, states: Tensor, text_states: Tensor
    ) -> dict[str, Tensor]:
        """The terms of the loss and `total`, from the encoder states of queries and texts."""
        parts: dict[str, Tensor] = {}
        zero = states.new_zeros(1)
        pairs, contrast, documents = zero, zero, zero
        if len(batch.docids):
            f_id, likelihood = self.forced(
                network,
                states,
                batch.query_mask,
                batch.owner,
                batch.docids,
                prior=network.prior_scores(batch.queries, states, batch.query_mask),
                represent=self.config.gamma > 0,
            )
            pairs = self._pairs(likelihood, batch.grades)
            if f_id is not None:
                contrast = self._mgcc(network, batch, states, f_id)
                parts["mgcc"] = contrast.mean()
            parts["mle_q"] = pairs.mean()
        elif self.config.gamma and (others := batch.elsewhere.shape[1]):
            # This rank has no rows, but the other ranks wait for it in the forward and backward pass.
            nothing = states.new_zeros(0, network.xi_docid.out_features, requires_grad=True)
            contrast = 0.0 * gather_rows(nothing, others).sum()
        if len(batch.text_docids):
            documents = self._documents(network, batch, text_states)
            parts["mle_d"] = documents.mean()
        parts["total"] = losses.total(contrast, pairs, documents, gamma=self.config.gamma)
        return parts

    def _pairs(self, likelihood: Tensor, grades: Tensor) -> Tensor:
        pairs = self.query_loss(likelihood, grades, self.levels)
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

    def _mgcc(self, network: Network, batch: Batch, states: Tensor, f_id: Tensor) -> Tensor:
        f_q = network.represent_query(states, batch.query_mask).float()
        f_id = f_id.float()
        grades, negatives = batch.grades, batch.negatives
        if others := batch.elsewhere.shape[1]:
            f_id = torch.cat([f_id, gather_rows(f_id, others)])
            grades, negatives = F.pad(grades, (0, others)), torch.cat([negatives, batch.elsewhere], 1)
        similarities = losses.similarity(
            f_q, f_id, kind=self.config.similarity, temperature=self.config.temperature
        )
        return losses.mgcc(
            similarities,
            grades,
            negatives,
            levels=self.levels,
            penalty=self.config.penalty,
            constraint=self.config.constraint,
            against=self.config.against,
        )
