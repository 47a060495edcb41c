"""φ₀ and judged queries → look-ahead with what a candidate learns; and how well scores rank.

Shapes: Q queries, N documents, W width.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from gr2.model.look_ahead import LookAhead, Memory
from gr2.training.candidates import Candidate
from gr2.training.features import term_features
from gr2.training.judged import TrainingSet
from gr2.training.regression import Judged, RegressionConfig, fit_offsets

Floats = NDArray[np.float32]
DEPTH = 20


@dataclass(frozen=True)
class Learner:
    """φ₀ of a collection, from which candidates learn."""

    plain: LookAhead

    @cached_property
    def places(self) -> dict[str, int]:
        """The row of each document."""
        return {docno: place for place, docno in enumerate(self.plain.docnos)}

    @cached_property
    def terms(self) -> sparse.csr_matrix:
        """The features along which offsets are shared."""
        if self.plain.bm25 is None:
            raise ValueError("offsets of terms need the view of words")
        return term_features(self.plain.bm25)

    def offsets(
        self,
        queries: TrainingSet,
        config: RegressionConfig,
        *,
        base: Floats | None = None,
        progress: Callable[[int, float], None] = lambda iteration, value: None,
    ) -> Floats:
        """The offsets that a regression learns; `base` is φ₀ of the queries, where it is known.

        Queries are centred: what all of them have in common would teach which documents are popular.
        """
        known = self.plain.scores(queries.texts, queries.vectors) if base is None else base
        found: Floats = fit_offsets(
            torch.from_numpy(queries.vectors - queries.vectors.mean(0)),
            torch.from_numpy(known),
            Judged.of(queries.judged, self.places),
            scale=self.plain.config.scale,
            config=config,
            features=self.terms if config.shared else None,
            progress=progress,
        ).numpy()
        return found

    def learn(
        self,
        queries: TrainingSet,
        candidate: Candidate,
        *,
        progress: Callable[[int, float], None] = lambda iteration, value: None,
    ) -> LookAhead:
        """Look-ahead with what a candidate learns from judged queries."""
        if not candidate.learns:
            return self.plain
        config = replace(self.plain.config, gate=candidate.gate, memory=candidate.memory)
        offsets = centre = None
        if candidate.regression is not None:
            offsets = self.offsets(queries, candidate.regression, progress=progress)
            centre = queries.vectors.mean(0)
        memory = None
        if candidate.gate is not None or candidate.memory:
            memory = Memory.of(queries.vectors, queries.judged, self.places)
        return replace(self.plain, config=config, offsets=offsets, centre=centre, memory=memory)

    def ndcg(self, scores: Floats, judged: Sequence[Mapping[str, int]]) -> list[float]:
        """The nDCG@20 of each query by its row of scores [Q, N]."""
        return [ndcg(row, one, self.places) for row, one in zip(scores, judged, strict=True)]


def ndcg(scores: Floats, judged: Mapping[str, int], docnos: Mapping[str, int], depth: int = DEPTH) -> float:
    """The nDCG (gain 2^g − 1) of documents ranked by score [N]; unjudged documents gain nothing."""
    gains = {docnos[d]: 2.0**g - 1 for d, g in judged.items() if g > 0 and d in docnos}
    if not gains:
        return 0.0
    top = np.argpartition(-scores, min(depth, len(scores) - 1))[:depth]
    top = top[np.argsort(-scores[top], kind="stable")]
    discount = 1 / np.log2(np.arange(2, depth + 2))
    ideal = np.sort(list(gains.values()))[::-1][:depth]
    found = np.array([gains.get(int(place), 0.0) for place in top])
    return float(found @ discount[: len(found)] / (ideal @ discount[: len(ideal)]))
