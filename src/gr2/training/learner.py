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

from gr2.bm25 import BM25
from gr2.model.look_ahead import Judgement, LookAhead, Memory, gain
from gr2.model.vector_storage import CodeVectors, FullVectors, Stored
from gr2.training.candidates import Candidate
from gr2.training.features import code_features, term_features
from gr2.training.judged import TrainingSet
from gr2.training.regression import RegressionConfig, Shared, fit_offsets
from gr2.training.regression_loss import Judged

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
        if not isinstance(self.plain.bm25, BM25):
            raise ValueError("offsets of terms need the view of words, with all of them")
        return term_features(self.plain.bm25)

    @cached_property
    def codes(self) -> sparse.csr_matrix:
        """The codes of each document, if it consists of codes."""
        return code_features(self._coded)

    @property
    def _coded(self) -> CodeVectors:
        if not isinstance(self.plain.vectors, CodeVectors):
            raise ValueError("offsets of codes need documents that consist of codes")
        return self.plain.vectors

    def _features(self, shared: Shared) -> sparse.csr_matrix | None:
        """What offsets are shared along."""
        if shared == "codes":
            return self.codes
        if shared not in ("", "terms"):
            raise ValueError(f"offsets are shared along terms or codes here, not along {shared}")
        return self.terms if shared else None

    def offsets(
        self,
        queries: TrainingSet,
        config: RegressionConfig,
        *,
        base: Floats | None = None,
        progress: Callable[[int, float], None] = lambda iteration, value: None,
    ) -> Stored:
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
            features=self._features(config.shared),
            progress=progress,
            of_features=config.shared == "codes",
        ).numpy()
        if config.shared != "codes":
            return FullVectors(found)
        return replace(self._coded, vectors=found.reshape(self._coded.vectors.shape))

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

    def ndcg(self, scores: Floats, judged: Sequence[Mapping[str, Judgement]]) -> list[float]:
        """The nDCG@20 of each query by its row of scores [Q, N]."""
        return ndcg(scores, judged, self.places)


def ndcg(
    scores: Floats, judged: Sequence[Mapping[str, Judgement]], docnos: Mapping[str, int], depth: int = DEPTH
) -> list[float]:
    """The nDCG (see `gain`) of each query by its row of scores [Q, N]; unjudged documents gain nothing."""
    depth = min(depth, scores.shape[1])
    discount = 1 / np.log2(np.arange(2, depth + 2))
    top = torch.topk(torch.from_numpy(scores), depth, dim=1).indices.tolist()
    found = []
    for places, row in zip(top, judged, strict=True):
        gains = {docnos[d]: gain(g) for d, g in row.items() if g > 0 and d in docnos}
        ideal = np.sort(list(gains.values()))[::-1][:depth]
        best = float(ideal @ discount[: len(ideal)])
        value = float(np.array([gains.get(place, 0.0) for place in places]) @ discount)
        found.append(value / best if gains else 0.0)
    return found
