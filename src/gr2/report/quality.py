"""How good a model is, beside other systems → sections of a report with charts, and tables behind them."""

from collections.abc import Mapping, Sequence

from gr2.evaluate.significance import Comparison
from gr2.report import draw
from gr2.report.evidence import DEPTH, Bin, Cost
from gr2.report.layout import Part, Picture, Section, Table
from gr2.report.summary import MEASURE, differences, probability, signed
from gr2.training.estimate import Gain


def quality_section(comparison: Comparison, ours: str) -> Section:
    """Every system's measures with significance letters, and the differences from ours."""
    count = len(comparison.evaluations[0].values[MEASURE])
    means = [
        draw.Bar(e.name, e.means[MEASURE], f"{e.means[MEASURE]:.3f}", strong=e.name == ours)
        for e in comparison.evaluations
    ]
    parts: list[Part] = [
        f"{count:,} queries; {comparison.evaluations[0].convention}.",
        Picture(draw.bars(means, MEASURE), f"{MEASURE} of every system; the longer, the better."),
    ]
    if bands := _bands(comparison, ours):
        parts.append(
            Picture(
                draw.bands(bands, f"{ours} minus each other system"),
                f"{ours} minus each other system in {MEASURE}, with the 95 % band of each difference. To the "
                f"right of the mark {ours} is better, to the left it is worse; what is grey may be chance "
                f"(corrected p above {comparison.level:g}).",
            )
        )
    parts += [_measures(comparison), _differences(comparison, ours)]
    return Section("How good it is", parts)


def _bands(comparison: Comparison, ours: str) -> list[draw.Band]:
    values = {e.name: e.values[MEASURE] for e in comparison.evaluations}
    if len(values[ours]) < 2:
        return []
    found = []
    for row in differences(comparison, ours):
        other = [values[row.other][qid] for qid in values[ours]]
        gain = Gain.of(other, list(values[ours].values()))
        text = f"{signed(row.mean)}, p {probability(row.t_holm)}"
        clear = row.t_holm <= comparison.level
        found.append(draw.Band(row.other, gain.gain, gain.low, gain.high, text, clear))
    return found


def _measures(comparison: Comparison) -> Table:
    measures = list(comparison.evaluations[0].values)
    rows = [
        [
            comparison.letter(e.name),
            e.name,
            *(f"{e.means[m]:.4f} {comparison.beaten(e.name, m)}".strip() for m in measures),
        ]
        for e in comparison.evaluations
    ]
    title = (
        "All measures; letters name the systems that are significantly worse "
        f"(paired t-test, Holm, p ≤ {comparison.level:g})"
    )
    return Table(["letter", "system", *measures], rows, title)


def _differences(comparison: Comparison, ours: str) -> Table:
    measures = list(comparison.evaluations[0].values)
    tested = {m: {row.other: row for row in differences(comparison, ours, m)} for m in measures}
    rows = []
    for name in tested[measures[0]]:
        each = (tested[m][name] for m in measures)
        rows.append([name, *(f"{round(row.mean, 4) + 0.0:+.4f} ({row.t_holm:.3f})" for row in each)])
    title = f"{ours} minus each other system in all measures, with the corrected p in parentheses"
    return Table(["compared with", *measures], rows, title)


def recall_section(recalls: Mapping[str, Mapping[int, float]]) -> Section:
    """The share of each grade's documents that each system finds."""
    grades = sorted({grade for row in recalls.values() for grade in row}, reverse=True)
    names = [f"grade {grade}" for grade in grades]
    shares = {name: [row.get(grade, 0.0) for grade in grades] for name, row in recalls.items()}
    rows = [[name, *(f"{value:.3f}" for value in values)] for name, values in shares.items()]
    return Section(
        f"Recall of each grade in the first {DEPTH} results",
        [
            "The share of all query-document pairs of a grade that are found. A query can have more than "
            f"{DEPTH} relevant documents, so the last row shows the recall of a perfect ranking.",
            Picture(
                draw.groups(shares, names, "Recall by grade"), "Recall of each grade; a full bar is all."
            ),
            Table(["system", *names], rows),
        ],
    )


def reliability_section(bins: Sequence[Bin]) -> Section:
    """Whether scores are comparable between queries."""
    rows = [
        [f"{b.low:.2g} to {b.high:.2g}", f"{b.results:,}", f"{b.relevant:.3f}", f"{b.grade:.2f}"]
        for b in bins
    ]
    bars = [
        draw.Bar(f"probability {b.low:.2g} to {b.high:.2g}", b.grade, f"mean grade {b.grade:.2f}")
        for b in bins
    ]
    return Section(
        "Does a higher score mean a higher grade?",
        [
            f"The first {DEPTH} results of all queries are pooled and split into {len(bins)} groups of "
            "increasing docid probability. Unjudged documents count as grade 0.",
            Picture(draw.bars(bars, "Mean grade"), "Mean grade by docid probability; it should rise."),
            Table(["docid probability", "results", "share relevant", "mean grade"], rows),
        ],
    )


def cost_section(costs: Mapping[str, Cost]) -> Section:
    """Time and memory of a search."""
    rows = [
        [name, f"{cost.milliseconds:.1f}", f"{cost.fixed / 1e6:.1f}", f"{cost.growing / 1e6:.2f}"]
        for name, cost in costs.items()
    ]
    times = [draw.Bar(name, c.milliseconds, f"{c.milliseconds:.1f} ms") for name, c in costs.items()]
    sizes = [
        draw.Bar(name, (c.fixed + c.growing) / 1e6, f"{(c.fixed + c.growing) / 1e6:,.1f} MB")
        for name, c in costs.items()
    ]
    return Section(
        "What an answer costs",
        [
            Picture(
                draw.bars(times, "Time"),
                f"Median time of a single query ({DEPTH} results, {DEPTH} beams) on the machine that wrote "
                "this report.",
            ),
            Picture(draw.bars(sizes, "Memory"), "Memory, the network’s weights included."),
            "Memory that grows with the collection is the embeddings of docid tokens, node prior or "
            "look-ahead, trie and docids; for the dense index, its vectors (one per document here; the dense "
            "system above may have several). Document texts and docnos are not counted.",
            Table(["system", "ms per query", "MB fixed", "MB growing"], rows),
        ],
    )
