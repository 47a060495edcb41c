"""Judgements of two judges → how far they agree, and where they do not.

Cohen's weighted kappa is 1 - observed disagreement / disagreement expected by chance, over the pairs that
both have judged. A difference of two grades weighs twice as much as one of one grade (linear) or four times
as much (quadratic). 1 is full agreement, 0 is what chance gives, below 0 is worse than chance.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np

from gr2.judge.judgements import Judgement

Weights = Literal["linear", "quadratic"]


def weighted_kappa(first: Sequence[int], second: Sequence[int], weights: Weights = "quadratic") -> float:
    """Cohen's weighted kappa of two lists of grades; nan where it is undefined.

    It is undefined without grades, and where both judges gave one and the same grade to everything: then
    chance alone would agree fully.

    >>> round(weighted_kappa([0, 1, 2, 2], [0, 2, 2, 1], "linear"), 4)
    0.4286
    """
    one, two = np.asarray(first, dtype=np.int64), np.asarray(second, dtype=np.int64)
    if one.shape != two.shape:
        raise ValueError(
            f"expected as many grades of one judge as of the other, found {len(one)}, {len(two)}"
        )
    if not len(one):
        return float("nan")
    power = 1 if weights == "linear" else 2
    observed = (np.abs(one - two) ** power).mean()
    (grades, share), (others, other_share) = (
        (values, counts / len(one))
        for values, counts in (np.unique(g, return_counts=True) for g in (one, two))
    )
    expected = share @ np.abs(grades[:, None] - others[None, :]) ** power @ other_share
    return float(1 - observed / expected) if expected > 0 else float("nan")


@dataclass(frozen=True)
class Conflict:
    """A query and document to which two judges gave different grades."""

    qid: str
    query: str
    docno: str
    grades: tuple[int, int]

    @property
    def distance(self) -> int:
        """How many grades they are apart."""
        return abs(self.grades[0] - self.grades[1])


@dataclass(frozen=True)
class Agreement:
    """How far two judges agree on the pairs that both have judged."""

    judges: tuple[str, str]
    pairs: int
    """Queries and documents that both have judged."""
    same: int
    """Those of them with equal grades."""
    linear: float
    quadratic: float
    conflicts: tuple[Conflict, ...]
    """The others, the largest distance first."""


def agreement(judgements: Iterable[Judgement], first: str, second: str) -> Agreement:
    """Compare two judges; takes at most one judgement for each query, document and judge."""
    rows: dict[tuple[str, str], dict[str, Judgement]] = {}
    for each in judgements:
        if each.judge in (first, second):
            rows.setdefault((each.qid, each.docno), {})[each.judge] = each
    common = [(row[first], row[second]) for row in rows.values() if len(row) == 2]
    grades = [one.grade for one, _ in common], [two.grade for _, two in common]
    conflicts = [
        Conflict(one.qid, one.query, one.docno, (one.grade, two.grade))
        for one, two in common
        if one.grade != two.grade
    ]
    return Agreement(
        (first, second),
        pairs=len(common),
        same=len(common) - len(conflicts),
        linear=weighted_kappa(*grades, "linear"),
        quadratic=weighted_kappa(*grades, "quadratic"),
        conflicts=tuple(sorted(conflicts, key=lambda found: (-found.distance, found.query, found.docno))),
    )


def agreements(judgements: Iterable[Judgement]) -> list[Agreement]:
    """Compare every two judges that have a pair in common, in order of name."""
    rows = list(judgements)
    judges = sorted({each.judge for each in rows})
    found = [agreement(rows, first, second) for first, second in combinations(judges, 2)]
    return [each for each in found if each.pairs]
