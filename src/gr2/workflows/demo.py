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
from gr2.model.config import VectorConfig
from gr2.model.gr2 import GR2
from gr2.systems.config import GenerativeConfig
from gr2.workflows.index import IndexJob, Say, index

FAST = 48
"""Leading tokens of each document that the fast demo reads. How much is read never depends on the machine."""
SAMPLES = 6


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
        resume=True,
        progress=progress,
    )


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
