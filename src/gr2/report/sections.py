"""Results → the sections of a report, with a sentence on what each result means."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gr2.data.collection import Collection
from gr2.evaluate.describe import headline
from gr2.evaluate.leaks import NEAR_TWIN, Leaks
from gr2.report import draw
from gr2.report.evidence import Curve
from gr2.report.layout import Part, Picture, Section, Table
from gr2.report.summary import signed
from gr2.schemes.health import Health

CANDIDATES = 8
"""Ways to learn that the report lists."""
PARTS = {
    "total": "L_total",
    "mgcc": "L_MGCC",
    "mle_q": "L_MLE of queries",
    "mle_d": "L_MLE of documents",
}


def collection_section(collection: Collection, split: str) -> Section:
    """Sizes, and how much the training split reveals about the test queries."""
    rows = []
    for name, qrels in collection.qrels.items():
        grades = Counter(grade for row in qrels.values() for grade in row.values())
        each = ", ".join(f"{grade}: {grades[grade]:,}" for grade in sorted(grades))
        rows.append([name, f"{len(qrels):,}", f"{sum(grades.values()):,}", each])
    parts: list[Part] = [
        f"{headline(collection)}.",
        Table(
            ["split", "queries", "judged pairs", "pairs by grade"], rows, "Queries and judgements by split"
        ),
    ]
    if "train" in collection.qrels and split != "train" and collection.qrels.get(split):
        leaks = Leaks(collection, split)
        unseen = sum(kind == "none" for kind in leaks.train_overlap.values())
        parts.append(
            f"{len(leaks.near_twins):,} queries of {split} have a near-twin among the training queries "
            f"(Jaccard similarity of stemmed words of {NEAR_TWIN} or more). For {unseen:,} queries, no "
            "relevant document was relevant to a training query. If there are many near-twins, a model that "
            "only memorises the training queries scores well too."
        )
    return Section("The collection", parts)


def docid_section(health: Health) -> Section:
    """The health report of the docids."""
    rows = [list(row) for row in health.rows()]
    return Section(
        f"Docids: {health.scheme}",
        [
            "The model retrieves a document by generating its docid; training cannot repair bad docids.",
            Picture(
                draw.lines({"unique": [(row.depth, row.unique) for row in health.depths]}, "tokens", "share"),
                "Share of docids that their first tokens identify, by the number of tokens.",
            ),
            Table(["figure", "value", "meaning"], rows),
        ],
    )


def training_section(curves: Mapping[str, Curve]) -> Section:
    """The loss over the steps."""
    if not curves:
        return Section("Training", ["No training log was found next to the model folder."])
    named = {PARTS.get(name, name): curve for name, curve in curves.items()}
    first, last = (next(iter(named.values()))[place][0] for place in (0, -1))
    rows = [[name, f"{curve[0][1]:.3f}", f"{curve[-1][1]:.3f}"] for name, curve in named.items()]
    return Section(
        "Training",
        [
            Picture(draw.lines(named, "step", "loss"), "The terms of the loss at the logged steps."),
            Table(["term", f"at step {first:,.0f}", f"at step {last:,.0f}"], rows),
        ],
    )


def look_ahead_section(
    facts: Mapping[str, Any], sizes: Mapping[str, int], per_document: Mapping[str, float]
) -> Section:
    """What look-ahead learned, what it was chosen from, and the size of each view."""
    parts: list[Part] = [
        "Every document is scored before its docid is written: by words (BM25), by the vectors of query and "
        "document, and by what was learned from judgements. Cross-validation chooses what is learned. "
        f"Chosen here: {facts.get('weights', 'the usual weights')}; learned: {facts['chosen']}.",
    ]
    rows = sorted(facts.get("rows", ()), key=lambda row: -row["gain"])[:CANDIDATES]
    if rows:
        bands = [_band(row["candidate"], row["gain"], 2 * (row["error"] or 0.0)) for row in rows]
        parts += [
            f"The best candidates were compared on held-out queries of {facts['measured']} (nDCG@20), as "
            "they come and with the judgements of all documents that they ask for hidden. The gain over "
            "learning nothing weighs the first three times as much as the second; the largest is taken if "
            "it is beyond two standard errors.",
            Picture(
                draw.bands(bands, "Gain over learning nothing"),
                "Gain of the best candidates over learning nothing, with two standard errors to each side.",
            ),
            _candidates(rows),
        ]
    sized = [
        [name, f"{size / 1e6:.2f}", f"{per_document[name]:,.0f}" if name in per_document else ""]
        for name, size in sizes.items()
    ]
    header = ["view", "MB", "bytes per document"]
    return Section("Look-ahead", [*parts, Table(header, sized, "The size of each view")])


def _band(name: str, gain: float, reach: float) -> draw.Band:
    return draw.Band(name, gain, gain - reach, gain + reach, signed(gain, 4), abs(gain) > reach)


def _candidates(rows: Sequence[Mapping[str, Any]]) -> Table:
    cells = [
        [
            row["candidate"],
            f"{row['random']:.4f}",
            f"{row['disjoint']:.4f}",
            f"{row['gain']:+.4f}",
            "" if row["error"] is None else f"{row['error']:.4f}",
        ]
        for row in rows
    ]
    header = ["learned", "nDCG@20", "with hidden documents", "gain", "standard error"]
    return Table(header, cells, "The best candidates")


def curve_section(curve: Sequence[tuple[float, float]], split: str) -> Section:
    """What fewer judged queries would have taught."""
    return Section(
        "What judgements teach",
        [
            f"The same was learned again from fewer judged queries, and measured on the queries of {split}. "
            "If the curve still rises at its end, more judgements will probably help.",
            Picture(
                draw.lines({"look-ahead": list(curve)}, "judged queries", "nDCG@20"),
                "nDCG@20 by the number of judged queries that were learned from; 0 is the hybrid.",
            ),
            Table(["judged queries", "nDCG@20"], [[f"{size:,.0f}", f"{value:.4f}"] for size, value in curve]),
        ],
    )


def space_section(groups: Mapping[str, Sequence[tuple[float, float]]], how: str, query: str) -> Section:
    """A query and its documents in the representation space that MGCC trains."""
    caption = (
        f"The query “{query}” (f_q) and documents (f_id), projected by {how}. Documents of higher grades "
        "should be nearer to the query."
    )
    return Section("A query and its graded documents", [Picture(draw.dots(groups, caption), caption)])
