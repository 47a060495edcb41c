"""Results → the sections of a report, with a sentence on what each result means."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gr2.data.collection import Collection, Qrels
from gr2.data.runs import Run
from gr2.evaluate.describe import headline
from gr2.evaluate.leaks import NEAR_TWIN, Leaks
from gr2.evaluate.significance import Comparison
from gr2.report import draw
from gr2.report.evidence import DEPTH, Bin, Cost, Curve
from gr2.report.layout import Part, Picture, Section, Table
from gr2.schemes.health import Health

SHOWN = 3
"""Results per query that the report lists."""
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
        Table(["split", "queries", "judged pairs", "pairs by grade"], rows),
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
            Table(["figure", "value", "meaning"], rows),
            Picture(
                draw.lines({"unique": [(row.depth, row.unique) for row in health.depths]}, "tokens", "share"),
                "Share of docids that their first tokens identify, by the number of tokens.",
            ),
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


def look_ahead_section(facts: Mapping[str, Any], sizes: Mapping[str, int]) -> Section:
    """What look-ahead learned, what it was chosen from, and the size of each view."""
    parts: list[Part] = [
        "Every document is scored before its docid is written: by words (BM25), by the vectors of query and "
        "document, and by what was learned from judgements. Cross-validation chooses what is learned. "
        f"Chosen here: {facts.get('weights', 'the usual weights')}; learned: {facts['chosen']}.",
    ]
    rows = sorted(facts.get("rows", ()), key=lambda row: -row["gain"])[:CANDIDATES]
    if rows:
        parts += [
            f"The best candidates on held-out queries of {facts['measured']} (nDCG@20), as they come and "
            "with the judgements of all documents that they ask for hidden. The gain over learning nothing "
            "weighs the first three times as much as the second; the largest is taken if it is beyond two "
            "standard errors.",
            Table(
                ["learned", "nDCG@20", "with hidden documents", "gain", "standard error"],
                [
                    [
                        row["candidate"],
                        f"{row['random']:.4f}",
                        f"{row['disjoint']:.4f}",
                        f"{row['gain']:+.4f}",
                        "" if row["error"] is None else f"{row['error']:.4f}",
                    ]
                    for row in rows
                ],
            ),
        ]
    parts.append(Table(["view", "MB"], [[name, f"{size / 1e6:.2f}"] for name, size in sizes.items()]))
    return Section("Look-ahead", parts)


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


def quality_section(comparison: Comparison, ours: str) -> Section:
    """Every system's measures with significance letters, and the differences from ours."""
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
            f"{count:,} queries; {comparison.evaluations[0].convention}. The letters after a value name the "
            "systems that it significantly outperforms (paired t-test with Holm's correction, "
            f"p ≤ {comparison.level}).",
            Table(["", "system", *measures], rows),
            f"Difference of {ours} from each other system, with the corrected p-value in parentheses; "
            f"positive means that {ours} is better.",
            Table(
                ["compared with", *measures],
                [[name, *(row[m] for m in measures)] for name, row in tested.items()],
            ),
        ],
    )


def recall_section(recalls: Mapping[str, Mapping[int, float]]) -> Section:
    """The share of each grade's documents that each system finds."""
    grades = sorted({grade for row in recalls.values() for grade in row}, reverse=True)
    rows = [[name, *(f"{row.get(grade, 0.0):.3f}" for grade in grades)] for name, row in recalls.items()]
    return Section(
        f"Recall of each grade in the first {DEPTH} results",
        [
            "The share of all query-document pairs of a grade that are found. A query can have more than "
            f"{DEPTH} relevant documents; the last row is the recall of a perfect ranking.",
            Table(["system", *(f"grade {grade}" for grade in grades)], rows),
        ],
    )


def queries_section(
    collection: Collection,
    qrels: Qrels,
    run: Run,
    values: Mapping[str, float],
    docids: Mapping[str, str],
    views: Callable[[str], Mapping[str, Mapping[str, float]]],
) -> Section:
    """The queries with the highest and lowest nDCG@20, with their first results.

    `views` gives, for a query text, what each view contributed to its results; empty without look-ahead.
    """
    order = sorted(values, key=lambda qid: (-values[qid], qid))
    few = min(5, -(-len(order) // 2))
    rows = []
    for qid in dict.fromkeys([*order[:few], *order[-few:]]):
        why = views(collection.queries[qid])
        results = [
            f"{docno} [{qrels[qid].get(docno, 0)}]: {docids.get(docno, '')}{_parts(why.get(docno, {}))}"
            for docno in run.docnos(qid)[:SHOWN]
        ]
        rows.append([f"{values[qid]:.3f}", collection.queries[qid], "; ".join(results) or "none"])
    return Section(
        "Best and worst queries",
        [
            f"Sorted by nDCG@20, best first, with the first {SHOWN} results: document [grade]: docid. "
            "Unjudged documents have grade 0. With look-ahead, parentheses show what each view contributed.",
            Table(["nDCG@20", "query", "results"], rows),
        ],
    )


def _parts(views: Mapping[str, float]) -> str:
    return f" ({', '.join(f'{name} {value:.1f}' for name, value in views.items())})" if views else ""


def space_section(groups: Mapping[str, Sequence[tuple[float, float]]], how: str, query: str) -> Section:
    """A query and its documents in the representation space that MGCC trains."""
    caption = (
        f"The query “{query}” (f_q) and documents (f_id), projected by {how}. Documents of higher grades "
        "should be nearer to the query."
    )
    return Section("A query and its graded documents", [Picture(draw.dots(groups, caption), caption)])


def reliability_section(bins: Sequence[Bin]) -> Section:
    """Whether scores are comparable between queries."""
    rows = [
        [f"{b.low:.2g} to {b.high:.2g}", f"{b.results:,}", f"{b.relevant:.3f}", f"{b.grade:.2f}"]
        for b in bins
    ]
    bars = [(f"≤ {b.high:.2g}", b.grade) for b in bins]
    return Section(
        "Does a higher score mean a higher grade?",
        [
            f"The first {DEPTH} results of all queries are pooled and split into {len(bins)} groups of "
            "increasing docid probability. Unjudged documents count as grade 0.",
            Table(["docid probability", "results", "share relevant", "mean grade"], rows),
            Picture(draw.bars(bars, "mean grade"), "Mean grade by docid probability."),
        ],
    )


def cost_section(costs: Mapping[str, Cost]) -> Section:
    """Time and memory of a search."""
    rows = [
        [name, f"{cost.milliseconds:.1f}", f"{cost.fixed / 1e6:.1f}", f"{cost.growing / 1e6:.2f}"]
        for name, cost in costs.items()
    ]
    return Section(
        "What an answer costs",
        [
            f"Median time of a single query ({DEPTH} results, {DEPTH} beams) on the machine that wrote this "
            "report. Fixed memory is the network's weights. Memory that grows with the collection is the "
            "embeddings of docid tokens, node prior or look-ahead, trie and docids; for the dense index, its "
            "vectors (one per document here; the dense system above may have several). Document texts and "
            "docnos are not counted.",
            Table(["system", "ms per query", "MB fixed", "MB growing"], rows),
        ],
    )
