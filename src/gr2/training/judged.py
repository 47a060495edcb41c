"""Judged queries with their vectors: what look-ahead learns from and is measured on.

Shapes: Q queries, W width.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gr2.model.look_ahead import Judgement
from gr2.model.query_encoder import QueryEncoder

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class TrainingSet:
    """Judged queries: texts, unit vectors and judgements, row by row."""

    texts: Sequence[str]
    vectors: Floats
    judged: Sequence[Mapping[str, Judgement]]
    """docno → grade; or a teacher's weight, where the query comes from a teacher."""

    def __len__(self) -> int:
        """The number of queries."""
        return len(self.texts)

    def only(self, rows: Sequence[int]) -> "TrainingSet":
        """Some of the queries."""
        picked = list(rows)
        return TrainingSet(
            [self.texts[i] for i in picked], self.vectors[picked], [self.judged[i] for i in picked]
        )

    def sample(self, most: int, seed: int) -> "TrainingSet":
        """At most so many of the queries, in random order."""
        return self.only(_sample(len(self), most, seed))

    def encoded(self) -> "TrainingSet":
        """All of the queries with their vectors."""
        return self

    def without(self, documents: set[str]) -> tuple["TrainingSet", list[int]]:
        """The queries that have relevant documents besides these, with those alone, and their places."""
        judged = [{d: g for d, g in row.items() if g > 0 and d not in documents} for row in self.judged]
        kept = [place for place, row in enumerate(judged) if row]
        return replace(self.only(kept), judged=[judged[place] for place in kept]), kept


@dataclass(frozen=True)
class Unencoded:
    """Judged queries whose vectors are computed when they are needed: a sample is often enough."""

    texts: Sequence[str]
    judged: Sequence[Mapping[str, int]]
    encoder: QueryEncoder

    def __len__(self) -> int:
        """The number of queries."""
        return len(self.texts)

    def sample(self, most: int, seed: int) -> TrainingSet:
        """At most so many of the queries, in random order."""
        rows = _sample(len(self), most, seed)
        texts = [self.texts[row] for row in rows]
        return TrainingSet(texts, self.encoder.encode(texts), [self.judged[row] for row in rows])

    def encoded(self) -> TrainingSet:
        """All of the queries with their vectors."""
        return TrainingSet(self.texts, self.encoder.encode(self.texts), self.judged)


def _sample(count: int, most: int, seed: int) -> list[int]:
    order: list[int] = np.random.default_rng([seed, count]).permutation(count)[:most].tolist()
    return order
