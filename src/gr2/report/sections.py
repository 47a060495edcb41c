"""What was measured → the sections of a report, with a line on what each figure says."""

from collections import Counter
from collections.abc import Mapping, Sequence

from gr2.compare import Comparison
from gr2.data import Collection, Qrels
from gr2.docids.report import Health
from gr2.info import headline
from gr2.leaks import NEAR_TWIN, Leaks
from gr2.report import draw
from gr2.report.evidence import DEPTH, Bin, Cost, Curve
from gr2.report.layout import Part, Picture, Section, Table
from gr2.runs import Run

SHOWN = 3
"""Results of a query that the report lists."""
PARTS = {
    "total": "L_total",
    "mgcc": "L_MGCC",
    "mle_q": "L_MLE of queries",
    "mle_d": "L_MLE of documents",
}


def collection_section(collection: Collection, split: str) -> Section:
    """How much there is, and what training gives away about the test queries."""
    rows = []
    for name, qrels in collection.qrels.items():
        grades = Counter(grade for row in qrels.values() for grade in row.values())
        each = ", ".join(f"{grade}: {grades[grade]:,}" for grade in sorted(grades))
        rows.append([name, f"{len(qrels):,}", f"{sum(grades.values()):,}", each])
    parts: list[Part] = [
        f"{headline(collection)}.",
        Table(["split", "queries", "judged pairs", "pairs of each grade"], rows),
    ]
    if "train" in collection.qrels and split != "train" and collection.qrels.get(split):
        leaks = Leaks(collection, split)
        unseen = sum(kind == "none" for kind in leaks.memory.values())
        parts.append(
            f"{len(leaks.near_twins):,} queries of {split} have a near-twin among the training queries "
            f"(Jaccard of stemmed words of {NEAR_TWIN} or more), and {unseen:,} have no relevant document "
            "that was relevant in training. Where the first number is high, remembering looks like searching."
        )
    return Section("The collection", parts)


def docid_section(health: Health) -> Section:
    """The docids' health."""
    rows = [list(row) for row in health.rows()]
    return Section(
        f"Docids: {health.scheme}",
        [
            "A model retrieves by writing identifiers, so what is wrong with them no training repairs.",
            Table(["figure", "value", "what it says"], rows),
            Picture(
                draw.lines(
                    {"unique": [(row.depth, row.unique) for row in health.depths]}, "tokens written", "share"
                ),
                "Share of docids that so many tokens tell from all others.",
            ),
        ],
    )


def training_section(curves: Mapping[str, Curve]) -> Section:
    """The loss over the steps."""
    if not curves:
        return Section("Training", ["No log of the training was found beside the model."])
    named = {PARTS.get(name, name): curve for name, curve in curves.items()}
    first, last = (next(iter(named.values()))[place][0] for place in (0, -1))
    rows = [[name, f"{curve[0][1]:.3f}", f"{curve[-1][1]:.3f}"] for name, curve in named.items()]
    return Section(
        "Training",
        [
            Picture(
                draw.lines(named, "step", "loss"), "The parts of the loss at the steps that were logged."
            ),
            Table(["part", f"at step {first:,.0f}", f"at step {last:,.0f}"], rows),
        ],
    )


def quality_section(comparison: Comparison, ours: str) -> Section:
    """Every system's measures with letters of significance, and the differences from ours in words."""
    measures = list(comparison.evaluations[0].values)
    rows = [
        [
            comparison.letter(e.name),
            e.name,
            *(f"{e.means[m]:.4f} {comparison.beaten(e.name, m)}".strip() for m in measures),
        ]
        for e in comparison.evaluations
    ]
    count = len(next(iter(comparison.evaluations[0].values.values())))
    tested: dict[str, dict[str, str]] = {e.name: {} for e in comparison.evaluations if e.name != ours}
    for d in comparison.differences:
        if ours in (d.system, d.other):
            other, gain = (d.other, d.mean) if d.system == ours else (d.system, -d.mean)
            tested[other][d.measure] = f"{round(gain, 4) + 0.0:+.4f} ({d.t_holm:.3f})"
    return Section(
        "How good it is",
        [
            f"{count:,} queries; {comparison.evaluations[0].convention}. Letters behind a figure name the "
            f"systems it is significantly better than (paired t-test, Holm, p ≤ {comparison.level}).",
            Table(["", "system", *measures], rows),
            f"What {ours} gains over each of the others, and p with Holm's correction:",
            Table(["over", *measures], [[name, *(row[m] for m in measures)] for name, row in tested.items()]),
        ],
    )


def recall_section(recalls: Mapping[str, Mapping[int, float]]) -> Section:
    """Which share of each grade is found."""
    grades = sorted({grade for row in recalls.values() for grade in row}, reverse=True)
    rows = [[name, *(f"{row.get(grade, 0.0):.3f}" for grade in grades)] for name, row in recalls.items()]
    return Section(
        f"Recall of each grade among the first {DEPTH}",
        [
            "Of all pairs of a query and a document of the grade. A query may have more of them than "
            f"{DEPTH}, so the last row is what the best ranking would have.",
            Table(["system", *(f"grade {grade}" for grade in grades)], rows),
        ],
    )


def queries_section(
    collection: Collection, qrels: Qrels, run: Run, values: Mapping[str, float], docids: Mapping[str, str]
) -> Section:
    """The queries it answers best and worst, with what it returned."""
    order = sorted(values, key=lambda qid: (-values[qid], qid))
    few = min(5, -(-len(order) // 2))
    rows = []
    for qid in dict.fromkeys([*order[:few], *order[-few:]]):
        results = [
            f"{docno} [{qrels[qid].get(docno, 0)}]: {docids.get(docno, '')}"
            for docno in run.docnos(qid)[:SHOWN]
        ]
        rows.append([f"{values[qid]:.3f}", collection.queries[qid], "; ".join(results) or "nothing"])
    return Section(
        "Best and worst queries",
        [
            f"By nDCG@20, best first; the first {SHOWN} results with [grade] and the docid they were "
            "reached by.",
            Table(["nDCG@20", "query", "returned"], rows),
        ],
    )


def space_section(groups: Mapping[str, Sequence[tuple[float, float]]], how: str, query: str) -> Section:
    """A query and its documents in the space that MGCC shapes."""
    caption = f"f_q of “{query}” and f_id of documents by {how}: higher grades should lie nearer."
    return Section("A query and its graded documents", [Picture(draw.dots(groups, caption), caption)])


def reliability_section(bins: Sequence[Bin]) -> Section:
    """Whether a score means the same for every query."""
    rows = [
        [f"{b.low:.2g} to {b.high:.2g}", f"{b.results:,}", f"{b.relevant:.3f}", f"{b.grade:.2f}"]
        for b in bins
    ]
    bars = [(f"≤ {b.high:.2g}", b.grade) for b in bins]
    return Section(
        "Does a higher score mean a higher grade?",
        [
            f"The first {DEPTH} results of all queries together in {len(bins)} groups of rising probability, "
            "within queries and between them. What nobody judged counts as 0.",
            Table(["probability of the docid", "results", "share relevant", "mean grade"], rows),
            Picture(draw.bars(bars, "mean grade"), "Mean grade by probability of the docid."),
        ],
    )


def cost_section(costs: Mapping[str, Cost]) -> Section:
    """Time and memory of an answer."""
    rows = [
        [name, f"{cost.milliseconds:.1f}", f"{cost.fixed / 1e6:.1f}", f"{cost.growing / 1e6:.2f}"]
        for name, cost in costs.items()
    ]
    return Section(
        "What an answer costs",
        [
            f"Median of single queries ({DEPTH} results, {DEPTH} beams) on the machine that wrote this. "
            "Fixed: the weights of the network. Growing with the collection: rows of docid tokens, node "
            "prior, trie and docid tokens; of a dense index its vectors, here one a document (the dense "
            "system above has several). Texts and docnos are not counted.",
            Table(["system", "ms a query", "MB fixed", "MB growing"], rows),
        ],
    )
