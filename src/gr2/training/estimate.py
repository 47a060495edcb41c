"""What learning gains on queries that it did not see: cross-validation around the whole choice.

The judged queries are split into folds. For each fold, everything is chosen and learned from the other
queries alone, also the vectors, the weights of words and the candidate, and the fold's queries are ranked
with it. So no figure comes from a query that took part in any choice behind it. The gain over what was there
before is tested query by query; the folds share training queries, so band and p are a little too narrow.

Shapes: Q queries, N documents.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gr2.evaluate.significance import t_test_p
from gr2.model.look_ahead import LookAhead
from gr2.training.fit_look_ahead import learn_look_ahead
from gr2.training.judged import TrainingSet
from gr2.training.learner import ndcg
from gr2.training.plain_views import PlainViews

Values = NDArray[np.float64]
LEAST = 10
"""Judged queries with a relevant document from which on a gain can be measured."""
FOLDS = 5
MEASURED = 600
"""Queries that are held out in all, at most: a seeded sample."""
LEVEL = 0.95
"""Of the band."""


@dataclass(frozen=True)
class Gain:
    """nDCG@20 (gain 2^g − 1) before and after, on the same queries."""

    queries: int
    before: float
    after: float
    gain: float
    error: float
    """Standard error of the gain."""
    low: float
    """The band of the gain, by Student's t."""
    high: float
    p: float
    """Of a paired, two-sided t-test."""

    @classmethod
    def of(cls, before: Sequence[float] | Values, after: Sequence[float] | Values) -> "Gain":
        """The gain of at least two queries, from their values."""
        from scipy import stats

        delta = np.array(after) - np.array(before)
        mean, error = float(delta.mean()), float(delta.std(ddof=1) / np.sqrt(len(delta)))
        half = float(stats.t.ppf((1 + LEVEL) / 2, len(delta) - 1)) * error
        means = float(np.mean(before)), float(np.mean(after))
        return cls(len(delta), *means, mean, error, mean - half, mean + half, t_test_p(delta))

    @property
    def is_clear(self) -> bool:
        """Whether the gain is more than its standard error: then it is worth taking."""
        return self.gain > self.error

    @property
    def is_sure(self) -> bool:
        """Whether the whole band lies above 0."""
        return self.low > 0


def estimate_gain(
    views: PlainViews,
    queries: TrainingSet,
    measured: Sequence[int],
    before: Callable[[Sequence[int]], LookAhead],
    *,
    seed: int = 0,
    progress: Callable[[str], None] = lambda line: None,
) -> Gain:
    """The gain on the queries of these rows by learning from all other queries.

    Args:
        views: φ with nothing learned.
        queries: all judged queries.
        measured: the rows that are held out, a fold at a time; the others are always learned from.
        before: rows → the look-ahead to compare with, which must not have seen these queries.
        seed: of the folds.
        progress: called with a line for each step.
    """
    order = np.random.default_rng([seed, len(measured)]).permutation(len(measured))[:MEASURED]
    rows = [measured[i] for i in order]
    values: dict[str, list[float]] = {"before": [], "after": []}
    for fold in range(FOLDS):
        held = rows[fold::FOLDS]
        progress(f"fold {fold + 1} of {FOLDS}: learning without its {len(held)} queries")
        asked = queries.only(held)
        rest = queries.only(sorted(set(range(len(queries))) - set(held)))
        learned, _ = learn_look_ahead(views, {"train": rest}, seed=seed)
        for name, one in (("before", before(held)), ("after", learned)):
            places = {docno: place for place, docno in enumerate(one.docnos)}
            values[name] += ndcg(one.scores(asked.texts, asked.vectors), asked.judged, places)
    return Gain.of(values["before"], values["after"])
