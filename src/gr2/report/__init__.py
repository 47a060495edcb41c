"""A trained model and its collection → report.html and report.md in the model's folder.

`write_report` measures (`evidence`), puts it into words (`sections`) and lays it out (`layout`, `draw`). The
page asks nothing of the network and can be sent to somebody.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from gr2.baselines.controls import neighbours, popularity
from gr2.baselines.sparse import BM25, BM25Config
from gr2.compare import Comparison, compare
from gr2.data import Collection
from gr2.docids.report import health
from gr2.embed import Encoder
from gr2.measures import Convention, evaluate
from gr2.model import GR2
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
from gr2.runs import Run
from gr2.store import extended_folder, write_text

OURS = "GR²"
SETTINGS = (BM25Config(), BM25Config(k1=1.5, b=0.75))
MEASURES = ("nDCG@5", "nDCG@20", "P@20", "ERR@20", "Hits@1", "Hits@10")
TIMED = 20
"""Queries whose time is taken."""


def rivals(collection: Collection, split: str) -> list[Run]:
    """What any model is measured against: BM25 at two settings, and the controls."""
    queries = {qid: collection.queries[qid] for qid in collection.split(split)}
    runs = [
        BM25.index(collection.documents, c).search(queries, 100, name=f"BM25 k1={c.k1:g} b={c.b:g}")
        for c in SETTINGS
    ]
    if "train" in collection.qrels:
        train = collection.split("train")
        runs += [popularity(train, queries), neighbours(train, collection.queries, queries)]
    return runs


def compared(collection: Collection, split: str, runs: Sequence[Run]) -> Comparison:
    """All systems on the queries of a split, by the paper's conventions."""
    convention = Convention(gain="exponential", max_grade=max(4, collection.grades))
    return compare([evaluate(run, collection.split(split), MEASURES, convention) for run in runs])


def write_report(
    folder: Path, collection: Collection, others: Sequence[Run], *, split: str = "test"
) -> Comparison | None:
    """Write the report of a model into its folder; returns the comparison, None without judged queries.

    Args:
        folder: of a model that `learn` wrote; its log is read from FOLDER.training.
        collection: what it was trained on.
        others: runs on the split to compare with, from `rivals` for instance.
        split: of the queries to measure on.
    """
    model = GR2.from_pretrained(folder)
    found = [
        about.collection_section(collection, split),
        about.docid_section(health(model.docids, collection, sample=1000)),
        about.training_section(loss_curves(folder.with_name(folder.name + ".training"))),
    ]
    comparison = None
    if collection.qrels.get(split):
        comparison, more = _judged(model, collection, others, split)
        found += more
    title = f"GR² on {collection.name}"
    with extended_folder(folder) as temporary:
        write_text(temporary / "report.html", as_html(title, found))
        write_text(temporary / "report.md", as_markdown(title, found))
    return comparison


def _judged(
    model: GR2, collection: Collection, others: Sequence[Run], split: str
) -> tuple[Comparison, list[Section]]:
    qrels = collection.split(split)
    queries = {qid: collection.queries[qid] for qid in qrels}
    run = model.search(queries, DEPTH, name=OURS)
    comparison = compared(collection, split, [*others, run])
    values = comparison.evaluations[-1].values["nDCG@20"]
    docids = dict(zip(model.docids.docnos, model.docids.texts, strict=True))
    recalls = {one.name: recall_by_grade(one, qrels) for one in [*others, run]}
    told = telling_query(qrels)
    groups, how = graded_groups(model, collection, told, split)
    return comparison, [
        about.quality_section(comparison, OURS),
        about.recall_section({**recalls, "best possible": possible_recall(qrels)}),
        about.queries_section(collection, qrels, run, values, docids),
        about.space_section(groups, how, queries[told]),
        about.reliability_section(reliability(run, qrels)),
        about.cost_section(_costs(model, collection, list(queries.values())[:TIMED])),
    ]


def _costs(model: GR2, collection: Collection, texts: Sequence[str]) -> Mapping[str, Cost]:
    """Ours beside a dense index of the same encoder: a vector for each document, searched one by one."""
    encoder = model.network.encoder
    fixed = sum(value.nbytes for value in encoder.state_dict().values())
    read = Encoder("own", encoder, model.tokenizer)
    shape = (len(collection.docnos), read.width)
    vectors = np.random.default_rng(0).standard_normal(shape).astype(np.float32)  # their values cost nothing

    def dense(text: str) -> None:
        np.argpartition(-(vectors @ read.encode([text])[0]), min(DEPTH, len(vectors) - 1))

    return {
        OURS: cost_of_model(model, texts),
        "dense index, one vector a document": Cost(median_milliseconds(dense, texts), fixed, vectors.nbytes),
    }
