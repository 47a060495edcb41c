"""A model with look-ahead and judged queries → its decoder, trained as a residual on φ.

The scores φ(q, d) + w·sim(f_q, f_id) of the documents with the highest φ, and of those judged relevant, are
what the loss orders; φ is fixed, and so is the encoder, because its vectors are part of φ. φ of a training
query comes from offsets and memory that were learned without it: else φ would know the answers already, and
nothing would be left for the decoder.

Shapes: B queries, C candidates of a query, S source tokens.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gr2.model.bounded_search import best_places
from gr2.model.docid_reader import DocidReader
from gr2.model.look_ahead import LookAhead
from gr2.model.network import Network
from gr2.model.padding import padded
from gr2.training import losses
from gr2.training.batches import Examples
from gr2.training.candidates import Candidate
from gr2.training.judged import TrainingSet
from gr2.training.learner import Learner
from gr2.training.regression_loss import Judged, RegressionLoss

CANDIDATES = 24
"""Documents of highest φ that a training query is contrasted on."""
MOST = 8
"""Relevant documents of a query at most, highest grades first, that are added to them."""
FOLDS = 4


@dataclass(frozen=True)
class ResidualExamples:
    """Training queries with their candidates."""

    queries: Sequence[Sequence[int]]
    """Source tokens of each."""
    documents: NDArray[np.int64]
    """[Q, C] places of the candidates, which are docid indices."""
    phi: NDArray[np.float32]
    """[Q, C] their φ, −inf where there is no candidate."""
    grades: NDArray[np.int64]
    """[Q, C] their grades, 0 for a document that is not judged relevant."""

    @property
    def plain(self) -> Examples:
        """The queries alone, for `EncoderCache`."""
        return Examples(self.queries, [{} for _ in self.queries], [], [])


@dataclass(frozen=True)
class ResidualBatch:
    """The input of one step; there are no texts."""

    queries: Tensor  # [B, S]
    query_mask: Tensor  # [B, S]
    query_index: Tensor  # [B]
    documents: Tensor  # [B, C]
    phi: Tensor  # [B, C]
    grades: Tensor  # [B, C]
    texts: Tensor  # [0, 0]
    text_mask: Tensor  # [0, 0]
    text_index: Tensor  # [0]

    @property
    def examples(self) -> int:
        """Number of query-document pairs."""
        return self.documents.numel()


class ResidualBatches:
    """The batches by step, a pure function of the seed and the step."""

    rank, ranks = 0, 1

    def __init__(self, examples: ResidualExamples, size: int, *, seed: int) -> None:
        """Batches of `size` queries."""
        self.examples, self.size, self.seed = examples, size, seed

    def __getitem__(self, step: int) -> ResidualBatch:
        """The batch of a step."""
        count = len(self.examples.queries)
        epoch, place = divmod(step, -(-count // self.size))
        order = np.random.default_rng([self.seed, 7, epoch]).permutation(count)
        rows = order[place * self.size : (place + 1) * self.size]
        ids, mask = padded([self.examples.queries[row] for row in rows])
        none = torch.zeros(0, 0, dtype=torch.long)
        found = (self.examples.documents, self.examples.phi, self.examples.grades)
        documents, phi, grades = (torch.from_numpy(part[rows]) for part in found)
        index = torch.from_numpy(rows)
        return ResidualBatch(ids, mask, index, documents, phi, grades, none, none, none.flatten())


class ResidualObjective:
    """The loss of φ + w·sim over a query's candidates."""

    def __init__(self, reader: DocidReader, loss: RegressionLoss, weight: float, levels: int) -> None:
        """Order candidates by `loss`; `weight` is w and `levels` the number of grades."""
        self.reader, self.loss, self.weight, self.levels = reader, loss, weight, levels

    def __call__(
        self, network: Network, batch: ResidualBatch, states: Tensor, text_states: Tensor
    ) -> dict[str, Tensor]:
        """The mean loss of the queries."""
        scores = self.scores(network, batch, states)
        own = batch.grades > 0
        place = torch.arange(scores.shape[1], device=scores.device).expand_as(own)
        judged = Judged(
            torch.where(own, place, 0),
            batch.grades,
            losses.grade_weights(batch.grades, levels=self.levels).to(scores),
            self.levels,
        )
        total = self.loss(scores, judged).mean()
        return {"graded": total, "total": total}

    def scores(self, network: Network, batch: ResidualBatch, states: Tensor) -> Tensor:
        """φ + w·sim of every candidate [B, C]."""
        real = torch.isfinite(batch.phi)
        owner = torch.nonzero(real)[:, 0]
        near = self.reader.similarities(network, states, batch.query_mask, owner, batch.documents[real])
        scores = torch.full_like(batch.phi, -torch.inf)
        scores[real] = batch.phi[real] + self.weight * near
        return scores


@dataclass(frozen=True)
class Residual:
    """What the loop trains a residual with."""

    objective: ResidualObjective
    batches: ResidualBatches


def residual_examples(
    plain: LookAhead,
    queries: TrainingSet,
    candidate: Candidate,
    read: Callable[[Sequence[str]], list[list[int]]],
) -> ResidualExamples:
    """The candidates of training queries, with φ learned from the other folds.

    Args:
        plain: φ with nothing learned.
        queries: judged queries.
        candidate: what look-ahead learns.
        read: the model's tokenizer.
    """
    learner = Learner(plain)
    phi = plain.scores(queries.texts, queries.vectors)
    for fold in range(FOLDS) if candidate.learns else ():
        held = list(range(fold, len(queries), FOLDS))
        rest = sorted(set(range(len(queries))) - set(held))
        if held and rest:
            asked = queries.only(held)
            phi[held] = learner.learn(queries.only(rest), candidate).scores(asked.texts, asked.vectors)
    documents = np.zeros((len(queries), CANDIDATES + MOST), np.int64)
    scores = np.full(documents.shape, -np.inf, np.float32)
    grades = np.zeros(documents.shape, np.int64)
    for row, judged in enumerate(queries.judged):
        known = {learner.places[d]: int(g) for d, g in judged.items() if g > 0 and d in learner.places}
        best = sorted(known, key=lambda place: (-known[place], place))[:MOST]
        places = list(dict.fromkeys([*best_places(phi[row], CANDIDATES).tolist(), *best]))
        documents[row, : len(places)] = places
        scores[row, : len(places)] = phi[row, places]
        grades[row, : len(places)] = [known.get(place, 0) for place in places]
    return ResidualExamples(read(list(queries.texts)), documents, scores, grades)
