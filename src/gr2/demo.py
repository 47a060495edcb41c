"""`make demo`: the whole walk on the embedded collection with the embedded backbone, a line for each step.

The documentation of the Python that runs it is the corpus; the questions were written and judged by hand.
Interrupted, it goes on where it was.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from gr2.data import Collection
from gr2.formats import open_collection
from gr2.index import GOOD, Indexing, index
from gr2.info import headline
from gr2.model import GR2
from gr2.tables import render

SECONDS, FAST = 270.0, 50.0
"""What indexing may take, in the demo and in the fast one; the rest of five minutes and of ninety seconds is
starting up, reading the collection and sample searches."""
SAMPLES = 6
RATE = 1e-5
"""The learning rate, chosen on the dev questions: what is trained on are sentences of the documentation, no
questions, and at a higher rate more is forgotten than learned."""


def demo(out: Path, backbone: str, *, fast: bool = False, progress: bool = False) -> Iterator[str]:
    """Yield what to show: facts, each stage of indexing, the measures, sample searches, what to do next."""
    collection = open_collection("pydocs")
    yield (
        "The embedded collection is the documentation of the Python that runs this, with questions that were "
        f"written and judged by hand.\n  {headline(collection)}"
    )
    if fast:
        yield (
            "fast: less of each document is read, fewer steps, no MLE to compare with; this cost a fifth of "
            "nDCG@20 where it was measured"
        )
    yield from index(job(collection, out, backbone, fast=fast, progress=progress))
    yield samples(GR2.from_pretrained(out), collection)
    yield (
        f"Next: gr2 serve {out}   (a page to search with)\n"
        f"      gr2 search {out} 'read a csv file'\n"
        f"      {out / 'report.html'}   (everything measured, with pictures)"
    )


def job(
    collection: Collection, out: Path, backbone: str, *, fast: bool = False, progress: bool = False
) -> Indexing:
    """What the demo has done."""
    return Indexing(
        collection=collection,
        out=out,
        backbone=backbone,
        seconds=FAST if fast else SECONDS,
        beside=() if fast else ("MLE",),
        plan=replace(GOOD, learning_rate=RATE),
        resume=True,
        progress=progress,
    )


def samples(model: GR2, collection: Collection) -> str:
    """Some of the dev questions, which training never saw, with the docids that were written for them."""
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
