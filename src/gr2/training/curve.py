"""A learning curve: what has been gained from 10, 20, 40, … judged queries, and so what more may bring.

In every draw a third of the judged queries is held out, and the others are learned from in growing numbers,
each set within the next. So all sizes of a draw are measured on the same queries. A query's value at a size
is its mean over the draws that held it out, and the bands are over queries.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gr2.training.candidates import Candidate
from gr2.training.document_prior import fitted
from gr2.training.estimate import LEAST, Gain
from gr2.training.fit_look_ahead import learn_look_ahead
from gr2.training.judged import TrainingSet
from gr2.training.learner import Learner
from gr2.training.plain_views import PlainViews, Weights

SMALLEST = 10
"""Judged queries of the first size, if there are so many; each further one is twice as large."""
HELD_OUT = 3
"""One query in so many is held out."""
DRAWS = 5


@dataclass(frozen=True)
class Point:
    """One size of a learning curve."""

    queries: int
    """Judged queries that were learned from."""
    over_nothing: Gain
    """Compared with nothing learned."""
    over_previous: Gain
    """Compared with the size before."""


def sizes_of(count: int) -> list[int]:
    """The numbers of queries to learn from if there are so many.

    >>> sizes_of(100)
    [10, 20, 40, 67]
    >>> sizes_of(12)
    [8]
    """
    if count < LEAST:
        raise ValueError(f"a learning curve needs at least {LEAST} judged queries, found {count}")
    most = count - count // HELD_OUT
    found = [min(SMALLEST, most)]
    while 2 * found[-1] <= most:
        found.append(2 * found[-1])
    return found if found[-1] == most else [*found, most]


def learning_curve(
    views: PlainViews,
    queries: TrainingSet,
    *,
    draws: int = DRAWS,
    seed: int = 0,
    progress: Callable[[str], None] = lambda line: None,
) -> list[Point]:
    """The points of the curve, from the smallest size on.

    Args:
        views: φ with nothing learned.
        queries: all judged queries.
        draws: how often queries are held out; each draw holds out others.
        seed: of the draws.
        progress: called with a line for each step.
    """
    sizes, plain = sizes_of(len(queries)), Learner(views.at(views.usual))
    values = np.full((draws, 1 + len(sizes), len(queries)), np.nan)
    for draw in range(draws):
        order = np.random.default_rng([seed, draw]).permutation(len(queries))
        held = order[sizes[-1] :]
        asked = queries.only(held.tolist())
        for column, size in enumerate([0, *sizes]):
            progress(f"draw {draw + 1} of {draws}: {size} queries")
            rest = {"train": queries.only(order[:size].tolist())} if size else {}
            learned, _ = learn_look_ahead(views, rest, seed=seed)
            values[draw, column, held] = plain.ndcg(learned.scores(asked.texts, asked.vectors), asked.judged)
    means = np.nanmean(values[:, :, ~np.isnan(values[:, 0]).all(0)], axis=0)  # [sizes, queries held out]
    return [
        Point(size, Gain.of(means[0], means[place]), Gain.of(means[place - 1], means[place]))
        for place, size in enumerate(sizes, start=1)
    ]


def curve_of_choice(
    views: PlainViews,
    weights: Weights,
    candidate: Candidate,
    queries: TrainingSet,
    asked: TrainingSet,
    sizes: Sequence[int],
    *,
    seed: int = 0,
) -> list[tuple[int, float]]:
    """The nDCG@20 of other queries if the same things are learned from fewer judged queries.

    What is learned was chosen with all of them; each size only fits it again, which takes seconds.

    Args:
        views: φ with nothing learned, which is the point at 0.
        weights: the chosen weights; their prior is fitted again.
        candidate: the chosen candidate.
        queries: the judged queries, of which a seeded sample is learned from, each within the next.
        asked: the queries to measure on.
        sizes: numbers of queries; those beyond all of them are left out, and all are the last.
        seed: of the sample.
    """
    order = np.random.default_rng([seed, len(queries)]).permutation(len(queries))
    plain = Learner(views.at(views.usual))
    points = [(0, plain.plain)]
    for size in [*(size for size in sorted(sizes) if 0 < size < len(queries)), len(queries)]:
        some, own = queries.only(order[:size].tolist()), weights
        if weights.prior:
            bare = Learner(views.at(replace(weights, prior=())))
            base = bare.plain.scores(some.texts, some.vectors)
            beta = fitted(bare, views.features, some, base, _variant(candidate))
            own = replace(weights, prior=tuple(beta.tolist()))
        points.append((size, Learner(views.at(own)).learn(some, candidate)))
    return [
        (size, float(np.mean(plain.ndcg(one.scores(asked.texts, asked.vectors), asked.judged))))
        for size, one in points
    ]


def _variant(candidate: Candidate) -> str:
    return "gr2" if candidate.regression is None else candidate.regression.variant
