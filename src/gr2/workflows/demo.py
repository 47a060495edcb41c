"""`make demo`: the full pipeline on the embedded collection with the embedded backbone, one line per step.

The corpus is the documentation of the Python that runs it; the questions were written and judged by hand. If
interrupted, it continues where it stopped.
"""

from dataclasses import replace
from pathlib import Path

from gr2.data.collection import Collection
from gr2.data.formats import open_collection
from gr2.evaluate.describe import headline
from gr2.evaluate.tables import render
from gr2.model.gr2 import GR2
from gr2.systems.config import GenerativeConfig
from gr2.workflows.index import IndexJob, Say, index

SECONDS, FAST = 270.0, 50.0
"""Seconds for indexing in the demo and the fast demo. The rest of five minutes and of ninety seconds is for
starting up, reading the collection and the sample searches."""
SAMPLES = 6
RATE = 1e-5
"""Learning rate, chosen on the dev questions. The training queries are sentences of the documentation, not
questions; with a higher rate the model forgets more than it learns."""


def demo(out: Path, *, fast: bool = False, progress: bool = False, say: Say = lambda line: None) -> GR2:
    """Index the collection, evaluate, and show sample searches and the next commands."""
    collection = open_collection("pydocs")
    say(
        "The embedded collection is the documentation of the Python that runs this, with questions that were "
        f"written and judged by hand.\n  {headline(collection)}"
    )
    if fast:
        say(
            "fast: less of each document is read, fewer steps, no comparison with MLE; this cost a fifth of "
            "nDCG@20 where it was measured"
        )
    model = index(demo_job(collection, out, fast=fast, progress=progress), say)
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
    optimiser = replace(usual.training.optimiser, learning_rate=RATE)
    return IndexJob(
        collection=collection,
        out=out,
        config=replace(usual, training=replace(usual.training, optimiser=optimiser)),
        seconds=FAST if fast else SECONDS,
        compare_with=() if fast else ("MLE",),
        resume=True,
        progress=progress,
    )


def samples(model: GR2, collection: Collection) -> str:
    """Some dev questions, which are not in the training data, with the docids generated for them."""
    judged = collection.split("dev")
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
