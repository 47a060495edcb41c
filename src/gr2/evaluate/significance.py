"""Evaluations of several runs → which differences are statistically significant.

Two paired two-sided tests on the per-query values, the t-test and a seeded sign-flip permutation test, each
with Holm's correction over all comparisons made for one measure.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gr2.evaluate.config import Significance
from gr2.evaluate.measures import Evaluation

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Difference:
    """How two systems differ in one measure; p-values are two-sided, those named `holm` are corrected."""

    measure: str
    system: str
    other: str
    mean: float
    t: float
    permutation: float
    t_holm: float = 1.0
    permutation_holm: float = 1.0

    def p(self, test: Significance) -> float:
        """The corrected p-value of one of the tests."""
        return self.t_holm if test == "t" else self.permutation_holm


@dataclass(frozen=True)
class Comparison:
    """Several systems and every difference that was tested."""

    evaluations: tuple[Evaluation, ...]
    differences: tuple[Difference, ...]
    test: Significance = "t"
    level: float = 0.05

    def letter(self, name: str) -> str:
        """The letter that stands for a system in significance marks."""
        index = [evaluation.name for evaluation in self.evaluations].index(name)
        return chr(ord("a") + index) if index < 26 else f"[{index}]"

    def beaten(self, name: str, measure: str) -> str:
        """Letters of the systems that this one significantly outperforms in a measure."""
        won = []
        for row in self.differences:
            if row.measure == measure and row.p(self.test) <= self.level:
                better, worse = (row.system, row.other) if row.mean > 0 else (row.other, row.system)
                won += [self.letter(worse)] if better == name else []
        return "".join(sorted(won))

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values: convention, means, per-query values, differences with p-values."""
        return {
            "convention": asdict(self.evaluations[0].convention),
            "test": self.test,
            "level": self.level,
            "systems": [
                {"name": e.name, "letter": self.letter(e.name), "means": e.means, "values": e.values}
                for e in self.evaluations
            ],
            "differences": [asdict(row) for row in self.differences],
        }


def compare(
    evaluations: Sequence[Evaluation],
    *,
    baseline: str | None = None,
    test: Significance = "t",
    permutations: int = 10_000,
    seed: int = 0,
) -> Comparison:
    """Test every pair of systems, or each system against one baseline, in every measure."""
    names = [evaluation.name for evaluation in evaluations]
    if len(set(names)) < len(names):
        raise ValueError(f"expected systems with different names, found {names}")
    if baseline is not None and baseline not in names:
        raise ValueError(f"the baseline {baseline!r} is not among the systems {names}")
    pairs = [pair for pair in combinations(evaluations, 2) if baseline in (None, pair[0].name, pair[1].name)]
    rows: list[Difference] = []
    for measure in evaluations[0].values:
        tested = [_difference(measure, one, two, permutations, seed) for one, two in pairs]
        t_holm, permutation_holm = holm([row.t for row in tested]), holm([row.permutation for row in tested])
        for row, t, permutation in zip(tested, t_holm, permutation_holm, strict=True):
            rows.append(Difference(**{**asdict(row), "t_holm": t, "permutation_holm": permutation}))
    return Comparison(tuple(evaluations), tuple(rows), test)


def _difference(measure: str, one: Evaluation, two: Evaluation, permutations: int, seed: int) -> Difference:
    left, right = one.values[measure], two.values[measure]
    if left.keys() != right.keys() or one.convention != two.convention:
        raise ValueError(f"{one.name} and {two.name} were not measured on the same queries in the same way")
    delta = np.array([left[qid] - right[qid] for qid in sorted(left)])
    p_permutation = permutation_p(delta, permutations, seed)
    return Difference(measure, one.name, two.name, float(delta.mean()), t_test_p(delta), p_permutation)


def t_test_p(delta: Floats) -> float:
    """Paired two-sided t-test on per-query differences; 1 if they have no variance."""
    from scipy import stats

    if len(delta) < 2 or np.ptp(delta) == 0:
        return 1.0
    return float(stats.ttest_1samp(delta, 0.0).pvalue)


def permutation_p(delta: Floats, permutations: int = 10_000, seed: int = 0) -> float:
    """Paired two-sided randomisation test: how often do random signs give as large a mean difference?"""
    # The tolerance counts permutations that tie up to rounding.
    observed = abs(delta.sum()) - 1e-12 * max(1.0, float(np.abs(delta).sum()))
    generator = np.random.default_rng(seed)
    hits, chunk = 0, max(1, 2_000_000 // max(1, len(delta)))
    for start in range(0, permutations, chunk):
        signs = generator.integers(0, 2, size=(min(chunk, permutations - start), len(delta)), dtype=np.int8)
        hits += int((np.abs((2.0 * signs - 1.0) @ delta) >= observed).sum())
    return (hits + 1) / (permutations + 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = largest
    return corrected
