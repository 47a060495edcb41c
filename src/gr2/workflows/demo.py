"""`make demo`: the full pipeline on the embedded collection with the embedded backbone, one line per step.

The corpus is the documentation of the Python that runs it; the questions were written and judged by hand. If
interrupted, it continues where it stopped.
"""

from dataclasses import replace
from pathlib import Path

from gr2.data.collection import Collection
from gr2.data.formats import open_collection
from gr2.evaluate.describe import headline
from gr2.evaluate.measures import Convention, evaluate
from gr2.evaluate.tables import render
from gr2.model.config import VectorConfig
from gr2.model.gr2 import GR2
from gr2.report.evidence import DEPTH
from gr2.systems.config import GenerativeConfig
from gr2.workflows.index import IndexJob, Say, index

FAST = 48
"""Leading tokens of each document that the fast demo reads. How much is read never depends on the machine."""
SAMPLES = 6
CURVE = (25, 50, 100, 200)
"""Numbers of judged questions of the learning curve."""
CHANGED = 2
"""Questions that are shown before and after learning."""


def demo(out: Path, *, fast: bool = False, progress: bool = False, say: Say = lambda line: None) -> GR2:
    """Index the collection, evaluate, and show sample searches and the next commands."""
    collection = open_collection("pydocs")
    say(
        "The embedded collection is the documentation of the Python that runs this, with questions that were "
        f"written and judged by hand.\n  {headline(collection)}"
    )
    if fast:
        say(f"fast: only the first {FAST} tokens of each document are read")
    model = index(demo_job(collection, out, fast=fast, progress=progress), say)
    if "earlier" in collection.qrels:
        say(earlier(model, collection))
    say(changes(model, collection))
    say(samples(model, collection))
    say(
        f"Next: gr2 serve {out}   (a page to search with)\n"
        f"      gr2 search {out} 'read a csv file'\n"
        f"      {out / 'report.html'}   (all measurements, with charts)"
    )
    return model


def demo_job(collection: Collection, out: Path, *, fast: bool = False, progress: bool = False) -> IndexJob:
    """The indexing job of the demo."""
    usual = GenerativeConfig()
    look_ahead = usual.training.look_ahead
    if fast:
        look_ahead = replace(look_ahead, documents=VectorConfig.leading(FAST))
    return IndexJob(
        collection=collection,
        out=out,
        config=replace(usual, training=replace(usual.training, look_ahead=look_ahead)),
        curve=CURVE,
        resume=True,
        progress=progress,
    )


def before_learning(model: GR2) -> GR2:
    """The model with its words and vectors alone."""
    return model if model.look_ahead is None else model.with_look_ahead(model.look_ahead.without_learned())


def ndcg_of(model: GR2, collection: Collection, split: str) -> dict[str, float]:
    """The nDCG@20 of each query of a split."""
    judged = collection.split(split)
    run = model.search_many({qid: collection.queries[qid] for qid in judged}, DEPTH)
    convention = Convention.for_grades(collection.grades, gain="exponential")
    return dict(evaluate(run, judged, ["nDCG@20"], convention).values["nDCG@20"])


def earlier(model: GR2, collection: Collection) -> str:
    """The figures with the judgements of the collection's first version, comparable with older ones."""
    after = ndcg_of(model, collection, "earlier")
    before = ndcg_of(before_learning(model), collection, "earlier")
    means = [sum(values.values()) / len(values) for values in (before, after)]
    return (
        f"With the judgements that {len(after)} of these questions had in the collection's first version: "
        f"nDCG@20 {means[0]:.4f} before learning, {means[1]:.4f} after"
    )


def changes(model: GR2, collection: Collection) -> str:
    """The test questions that learning changed most for the better, before and after."""
    before, plain = ndcg_of(before_learning(model), collection, "test"), before_learning(model)
    after = ndcg_of(model, collection, "test")
    gained = sorted(after, key=lambda qid: (before[qid] - after[qid], qid))
    better = sum(after[qid] > before[qid] + 1e-9 for qid in after)
    worse = sum(after[qid] < before[qid] - 1e-9 for qid in after)
    parts = [f"Learning made {better} questions better and {worse} worse; those that gained most:"]
    for qid in gained[:CHANGED]:
        parts.append(f"  {collection.queries[qid]}  (nDCG@20 {before[qid]:.2f} to {after[qid]:.2f})")
        for name, one in (("before", plain), ("after", model)):
            found = one.search(collection.queries[qid], 3)
            grades = [collection.qrels["test"][qid].get(result.docno, 0) for result in found]
            listed = zip(found, grades, strict=True)
            shown = ", ".join(f"{result.docno} (grade {grade})" for result, grade in listed)
            parts.append(f"    {name + ':':8}{shown}")
    return "\n".join(parts)


def samples(model: GR2, collection: Collection) -> str:
    """Some test questions, which nothing was learned from, with the documents found for them."""
    judged = collection.split("test")
    chosen = list(judged)[:: max(1, len(judged) // SAMPLES)][:SAMPLES]
    parts = ["Questions it has never seen; each line: score (log P of the docid), document, docid, its grade"]
    for qid in chosen:
        rows = [
            [
                f"    {result.score:.2f}",
                result.docno,
                f"“{result.docid}”",
                f"grade {judged[qid][result.docno]}" if result.docno in judged[qid] else "not judged",
            ]
            for result in model.search(collection.queries[qid], 3)
        ]
        parts.append(f"  {collection.queries[qid]}\n" + render(["", "", "", ""], rows).split("\n", 1)[1])
    return "\n".join(parts)
