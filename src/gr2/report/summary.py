"""A comparison → what it says, in sentences for somebody who reads nothing else."""

from collections.abc import Mapping

from gr2.evaluate.significance import Comparison, Difference
from gr2.report.evidence import DEPTH, Cost
from gr2.report.layout import Points, Section

MEASURE = "nDCG@20"
"""What systems are compared by in a word; the other measures are in the tables."""


def summary_section(
    comparison: Comparison | None,
    ours: str,
    split: str,
    recalls: Mapping[str, Mapping[int, float]],
    costs: Mapping[str, Cost],
) -> Section:
    """What the model is worth, beside every other system."""
    if comparison is None:
        return Section("In short", [f"Nothing was measured: no query of {split} has judged documents."])
    means = {e.name: e.means[MEASURE] for e in comparison.evaluations}
    count = len(comparison.evaluations[0].values[MEASURE])
    items = [
        f"{ours} reaches {means[ours]:.3f} in {MEASURE} on {count:,} queries of {split}, where 1 would be a "
        "perfect order of the judged documents.",
        *verdicts(comparison, ours),
    ]
    if recalls.get(ours):
        grade, found = next(iter(recalls[ours].items()))
        items.append(
            f"Of the documents with grade {grade}, the highest, it puts {found:.0%} among the first {DEPTH}."
        )
    if ours in costs:
        cost = costs[ours]
        size = (cost.fixed + cost.growing) / 1e6
        items.append(
            f"An answer takes {cost.milliseconds:.0f} ms on this machine; the model takes {size:,.0f} MB."
        )
    note = (
        f"Differences are in {MEASURE}; p is of a paired t-test over the queries, corrected for the number "
        f"of comparisons (Holm). Up to {comparison.level:g}, a difference is called better or worse."
    )
    return Section("In short", [Points(items), note])


def verdicts(comparison: Comparison, ours: str) -> list[str]:
    """Which systems ours is better than, worse than, and neither, each with difference and p-value."""
    better, same, worse = list[str](), list[str](), list[str]()
    for row in differences(comparison, ours):
        shown = f"{row.other} by {abs(row.mean):.3f} (p {probability(row.t_holm)})"
        if row.t_holm > comparison.level:
            same.append(f"{row.other} ({signed(row.mean)}, p {probability(row.t_holm)})")
        else:
            (better if row.mean > 0 else worse).append(shown)
    found = [
        (f"It is better than {_listed(better)}.", better),
        (f"It is worse than {_listed(worse)}.", worse),
    ]
    found.append((f"It is not clearly better or worse than {_listed(same)}.", same))
    return [sentence for sentence, rows in found if rows]


def differences(comparison: Comparison, ours: str, measure: str = MEASURE) -> list[Difference]:
    """The differences of ours from each other system, as ours minus the other, in the order of systems."""
    found = []
    for row in comparison.differences:
        if row.measure == measure and ours in (row.system, row.other):
            turned = Difference(
                row.measure,
                ours,
                row.system,
                -row.mean,
                row.t,
                row.permutation,
                row.t_holm,
                row.permutation_holm,
            )
            found.append(row if row.system == ours else turned)
    order = [e.name for e in comparison.evaluations]
    return sorted(found, key=lambda row: order.index(row.other))


def probability(p: float) -> str:
    """A p-value as it is read.

    >>> probability(0.00002), probability(0.031), probability(0.4)
    ('< 0.001', '0.031', '0.40')
    """
    if p < 0.001:
        return "< 0.001"
    return f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def signed(value: float, digits: int = 3) -> str:
    """A difference with its sign.

    >>> signed(-0.0214), signed(0.1)
    ('−0.021', '+0.100')
    """
    return f"{value:+.{digits}f}".replace("-", "−")


def _listed(names: list[str]) -> str:
    return "; ".join(names)
