"""Counts of a click log → graded pseudo-judgements, with position bias corrected.

People click what they look at, and they look at the first results more than at later ones. So the share of
clicks (CTR) confuses how good a document is with where it was shown. We assume the position-based model: a
document is clicked if its position is looked at, with propensity θ of the position, and if it attracts, with
relevance γ of the query and document; P(click) = θ · γ. Where rankings change over time, the same document is
shown at several positions for the same query, which tells θ and γ apart; `fit_positions` fits both by
expectation-maximisation (EM), started from fixed values, so the same log gives the same result.

The first position of the log has propensity 1 by definition: γ is the share of clicks that a document would
get there. Then γ is estimated again for each pair by inverse propensity: clicks / Σ propensity of the
positions at which it was shown. Propensities below `clip` are raised to it, because a few clicks at a
position that is hardly looked at would otherwise count without bound. A Beta prior with the mean of the log
and the weight of `prior` looks (as many as the uniform Beta(1, 1) has) keeps pairs that were rarely looked at
near that mean. A uniform prior itself would pull them to .5, far above what most documents ever get.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gr2.judge.click_log import Cell, ClickLog
from gr2.judge.judgements import Judgement

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
TOLERANCE = 1e-7
TINY = 1e-12


@dataclass(frozen=True, kw_only=True)
class ClicksConfig:
    """How clicks become grades."""

    thresholds: tuple[float, ...] = (0.05, 0.15, 0.3, 0.5)
    """Relevance from which a pair gets grade 1, 2, ...: its share of clicks, as if always shown first."""
    min_shown: int = 10
    """A document that was shown less often for a query is left out."""
    clip: float = 0.1
    """Lower propensities are raised to this one, so that a single click at a far position does not decide."""
    prior: float = 2.0
    """Looks at the log's mean share of clicks that are added to each pair: rare pairs then stay near it."""
    eta: float = 1.0
    """Positions that the log cannot compare with the first one are assumed to have the propensity
    1 / position ** eta."""
    iterations: int = 2000
    """Maximum iterations of EM; it stops earlier once no propensity changes any more."""

    def __post_init__(self) -> None:
        """Check the values; a ValueError says what is wrong."""
        rising = list(self.thresholds) == sorted(set(self.thresholds))
        if not self.thresholds or not rising or not 0 < self.thresholds[0] <= self.thresholds[-1] <= 1:
            raise ValueError(f"expected rising thresholds above 0 and up to 1, found {self.thresholds}")
        if not 0 < self.clip <= 1 or self.prior < 0 or self.eta < 0:
            raise ValueError("expected 0 < clip <= 1, prior >= 0 and eta >= 0")
        if self.min_shown < 1 or self.iterations < 1:
            raise ValueError("expected min_shown and iterations of at least 1")


@dataclass(frozen=True)
class PositionModel:
    """The propensity of each position."""

    propensities: dict[int, float]
    compared: frozenset[int]
    """The positions whose propensity the log tells; those of the others are assumed."""


@dataclass(frozen=True)
class Pair:
    """A query and document of a log."""

    query: str
    docno: str
    shown: int
    clicked: int
    relevance: float
    grade: int


def fit_positions(log: ClickLog, config: ClicksConfig = ClicksConfig()) -> PositionModel:  # noqa: B008
    """The propensity of each position, by EM: was it looked at, and does the document attract?"""
    cells = sorted(log.shown)
    places = sorted({position for *_, position in cells})
    pair_ids = _numbers([cell[:2] for cell in cells])
    numbers = {place: number for number, place in enumerate(places)}
    place_ids = np.array([numbers[cell[2]] for cell in cells])
    shown = np.array([log.shown[cell] for cell in cells], dtype=np.float64)
    clicked = np.array([log.clicked[cell] for cell in cells], dtype=np.float64)
    compared = _connected(pair_ids, place_ids, len(places))
    theta = np.array([(places[0] / place) ** config.eta for place in places])
    free = compared & (np.arange(len(places)) > 0)  # the first position is the unit
    gamma = np.bincount(pair_ids, clicked) / np.bincount(pair_ids, shown)
    for _ in range(config.iterations):
        seen, drawn = theta[place_ids], gamma[pair_ids]  # per cell
        missed = (shown - clicked) / np.maximum(1 - seen * drawn, TINY)
        looked = np.bincount(place_ids, clicked + missed * seen * (1 - drawn), len(places))
        attracted = np.bincount(pair_ids, clicked + missed * drawn * (1 - seen))
        new = np.where(free, looked / np.bincount(place_ids, shown, len(places)), theta)
        gamma = attracted / np.bincount(pair_ids, shown)
        moved, theta = float(np.abs(new - theta).max()), np.clip(new, TINY, 1)
        if moved < TOLERANCE:
            break
    found = dict(zip(places, theta.tolist(), strict=True))
    return PositionModel(found, frozenset(p for p, known in zip(places, compared, strict=True) if known))


def _numbers(pairs: Sequence[tuple[str, str]]) -> Ints:
    """The same number for the same pair."""
    known: dict[tuple[str, str], int] = {}
    return np.array([known.setdefault(pair, len(known)) for pair in pairs], dtype=np.int64)


def _connected(pair_ids: Ints, place_ids: Ints, places: int) -> NDArray[np.bool_]:
    """The positions that are linked to the first one by documents that were shown at both."""
    found = np.zeros(places, dtype=np.bool_)
    found[0] = True
    while True:
        linked = np.bincount(pair_ids, found[place_ids]) > 0
        grown = found.copy()
        grown[place_ids[linked[pair_ids]]] = True
        if (grown == found).all():
            return found
        found = grown


def grade_pairs(log: ClickLog, model: PositionModel, config: ClicksConfig = ClicksConfig()) -> list[Pair]:  # noqa: B008
    """Relevance and grade of each pair that was shown often enough, in order of query and docno."""
    looks: dict[tuple[str, str], float] = {}
    shown: dict[tuple[str, str], int] = {}
    clicked: dict[tuple[str, str], int] = {}
    cell: Cell
    for cell, count in sorted(log.shown.items()):
        pair = cell[:2]
        looks[pair] = looks.get(pair, 0.0) + count * max(model.propensities[cell[2]], config.clip)
        shown[pair] = shown.get(pair, 0) + count
        clicked[pair] = clicked.get(pair, 0) + log.clicked[cell]
    mean = min(1.0, sum(clicked.values()) / sum(looks.values()))
    found = []
    for pair in (pair for pair in sorted(looks) if shown[pair] >= config.min_shown):
        relevance = min(1.0, (clicked[pair] + config.prior * mean) / (looks[pair] + config.prior))
        grade = sum(relevance >= threshold for threshold in config.thresholds)
        found.append(Pair(*pair, shown[pair], clicked[pair], relevance, grade))
    return found


def click_judgements(pairs: Sequence[Pair], judge: str = "clicks") -> list[Judgement]:
    """Pairs as judgements that are marked as derived from clicks."""
    return [Judgement(pair.query, pair.docno, pair.grade, judge, source="clicks") for pair in pairs]
