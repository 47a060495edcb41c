"""A learning curve: what has been gained from 10, 20, 40, … judged queries, and so what more may bring.

In every draw a third of the judged queries is held out, and the others are learned from in growing numbers,
each set within the next. So all sizes of a draw are measured on the same queries. A query's value at a size
is its mean over the draws that held it out, and the bands are over queries.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gr2.training.estimate import Gain
from gr2.training.fit_look_ahead import learn_look_ahead
from gr2.training.judged import TrainingSet
from gr2.training.learner import Learner
from gr2.training.plain_views import PlainViews

SMALLEST = 10
"""Judged queries of the first size; each further one is twice as large."""
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
    """
    most = count - count // HELD_OUT
    if most < SMALLEST:
        least = next(n for n in range(count, 10 * SMALLEST) if n - n // HELD_OUT >= SMALLEST)
        raise ValueError(f"a learning curve needs at least {least} judged queries, found {count}")
    found = [SMALLEST]
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
