"""A trained model and its collection → report.html, report.md and measures.json in the model's folder.

`write_report` measures (`evidence`), describes the results (`summary`, `sections`, `quality`, `queries`) and
lays them out (`layout`, `draw`).
The page is self-contained, so it can be sent as a single file.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from gr2.data.collection import Collection
from gr2.data.runs import Run
from gr2.evaluate.measures import Convention, evaluate
from gr2.evaluate.significance import Comparison, compare
from gr2.model.card import FIGURES, Measured
from gr2.model.config import SearchConfig
from gr2.model.encoder import Encoder
from gr2.model.gr2 import GR2
from gr2.report import sections as about
from gr2.report.evidence import (
    DEPTH,
    Cost,
    cost_of_model,
    graded_groups,
    loss_curves,
    median_milliseconds,
    possible_recall,
    recall_by_grade,
    reliability,
    telling_query,
)
from gr2.report.layout import Section, as_html, as_markdown
from gr2.report.quality import cost_section, quality_section, recall_section, reliability_section
from gr2.report.queries import SHOWN, queries_section
from gr2.report.summary import summary_section
from gr2.schemes.health import health
from gr2.store import Workspace, extended_folder, write_json, write_text

OURS = "GR²"
"""The full model in tables; a variant has its own name."""
MEASURES = ("nDCG@5", "nDCG@20", "P@20", "ERR@20", "Hits@1", "Hits@10")
TIMED = 20
"""Number of queries whose search is timed."""


def compared(collection: Collection, split: str, runs: Sequence[Run]) -> Comparison:
    """All systems compared on the queries of a split, with the paper's measures and conventions."""
    convention = Convention.for_grades(collection.grades)
    return compare([evaluate(run, collection.split(split), MEASURES, convention) for run in runs])


def label_of(model: GR2) -> str:
    """What a model is called in tables: GR², or its variant."""
    variant = model.provenance.get("training", {}).get("variant", "gr2")
    return OURS if variant == "gr2" else str(variant)


def write_report(
    folder: Path,
    collection: Collection,
    others: Sequence[Run],
    *,
    split: str = "test",
    search: SearchConfig | None = None,
    device: str = "auto",
    curve: Sequence[tuple[float, float]] = (),
) -> Comparison | None:
    """Write the report of a model into its folder; returns the comparison, None without judged queries.

    Args:
        folder: a model folder written by `fit`; the training log is read from FOLDER.training.
        collection: the collection that the model was trained on.
        others: runs on the split to compare with, such as those of `baseline_runs`.
        split: the split of the queries to evaluate on.
        search: how the model is searched.
        device: where.
        curve: nDCG@20 by the number of judged queries that were learned from; empty leaves it out.
    """
    model = GR2.from_pretrained(folder, device=device)
    ours, comparison = label_of(model), None
    found = [summary_section(None, ours, split, {}, {})]
    if collection.qrels.get(split):
        comparison, found = _judged(model, collection, others, split, search)
    if curve:
        found.append(about.curve_section(curve, split))
    losses = loss_curves(Workspace(folder).training)
    if model.look_ahead is not None:
        sizes = model.look_ahead.nbytes, model.look_ahead.bytes_per_document
        found.append(about.look_ahead_section(model.provenance["look_ahead"], *sizes))
    if losses or model.look_ahead is None:
        found.append(about.training_section(losses))
    found += [
        about.collection_section(collection, split),
        about.docid_section(health(model.docids, collection, sample=1000)),
    ]
    title = f"{label_of(model)} on {collection.name}"
    with extended_folder(folder) as temporary:
        write_text(temporary / "report.html", as_html(title, found))
        write_text(temporary / "report.md", as_markdown(title, found))
        if comparison is not None:
            write_json(temporary / FIGURES, _measured(comparison, collection, split))
            model.save_description(temporary)
    return comparison


def _measured(comparison: Comparison, collection: Collection, split: str) -> Measured:
    """The figures of the model, which is the last of the comparison."""
    ours = comparison.evaluations[-1]
    return {
        "collection": collection.name,
        "fingerprint": collection.fingerprint,
        "split": split,
        "queries": len(collection.split(split)),
        "convention": str(ours.convention),
        "means": ours.means,
    }


def _judged(
    model: GR2, collection: Collection, others: Sequence[Run], split: str, search: SearchConfig | None
) -> tuple[Comparison, list[Section]]:
    qrels = collection.split(split)
    queries = {qid: collection.queries[qid] for qid in qrels}
    ours = label_of(model)
    run = model.search_many(queries, DEPTH, search, name=ours)
    comparison = compared(collection, split, [*others, run])
    values = comparison.evaluations[-1].values["nDCG@20"]
    docids = dict(zip(model.docids.docnos, model.docids.texts, strict=True))
    recalls = {one.name: recall_by_grade(one, qrels) for one in [*others, run]}
    searcher = model.searcher(search)

    def views(text: str) -> Mapping[str, Mapping[str, float]]:
        return {result.docno: result.views for result in searcher.search(text, SHOWN)}

    costs = _costs(model, collection, list(queries.values())[:TIMED], search)
    found = [
        summary_section(comparison, ours, split, recalls, costs),
        quality_section(comparison, ours),
        recall_section({**recalls, "best possible": possible_recall(qrels)}),
        queries_section(collection, qrels, run, values, docids, views),
        reliability_section(reliability(run, qrels)),
        cost_section(costs),
    ]
    if model.look_ahead is None:  # look-ahead does not use the representations that MGCC trains
        example = telling_query(qrels)
        groups, method = graded_groups(model, collection, example, split)
        found.insert(4, about.space_section(groups, method, queries[example]))
    return comparison, found


def _costs(
    model: GR2, collection: Collection, texts: Sequence[str], search: SearchConfig | None
) -> Mapping[str, Cost]:
    """GR² and a dense index with the same encoder: one vector per document, one query at a time."""
    encoder = model.network.encoder
    fixed = sum(value.nbytes for value in encoder.state_dict().values())
    read = Encoder("own", encoder, model.tokenizer)
    shape = (len(collection.docnos), read.width)
    # Random vectors: their values do not affect the cost.
    vectors = np.random.default_rng(0).standard_normal(shape).astype(np.float32)

    def dense(text: str) -> None:
        np.argpartition(-(vectors @ read.encode([text])[0]), min(DEPTH, len(vectors) - 1))

    return {
        label_of(model): cost_of_model(model, texts, search),
        "dense index, one vector per document": Cost(
            median_milliseconds(dense, texts), fixed, vectors.nbytes
        ),
    }
