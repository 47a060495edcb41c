"""`make demo`: the whole walk on the embedded collection, a paragraph at a time.

The documentation of the Python that runs it is the corpus; the questions were written and judged by hand.
"""

from collections.abc import Iterator

from gr2.baselines.controls import neighbours, popularity
from gr2.baselines.sparse import BM25, BM25Config
from gr2.compare import compare
from gr2.data import Collection
from gr2.formats import open_collection
from gr2.info import describe
from gr2.measures import PAPER, Convention, evaluate
from gr2.runs import Run
from gr2.tables import comparison_table, render

SETTINGS = (BM25Config(), BM25Config(k1=1.5, b=0.75))
SAMPLES = 10


def demo() -> Iterator[str]:
    """Yield what to show: the collection's facts, sample searches, and the table of measures."""
    collection = open_collection("pydocs")
    yield "1. The embedded collection: the documentation of the Python that runs this.\n\n" + describe(
        collection
    )
    test = collection.split("test")
    queries = {qid: collection.queries[qid] for qid in test}
    indexes = [BM25.index(collection.documents, config) for config in SETTINGS]
    runs = [
        index.search(queries, name=f"BM25 k1={index.config.k1:g} b={index.config.b:g}") for index in indexes
    ]
    yield f"2. {SAMPLES} of the hand-written dev questions, answered by {SETTINGS[0]}:\n\n" + _samples(
        indexes[0], collection
    )
    train = collection.split("train")
    runs += [popularity(train, queries), neighbours(train, collection.queries, queries)]
    yield "3. Measured on the hand-judged test questions.\n\n" + _measures(runs, collection)


def _samples(index: BM25, collection: Collection) -> str:
    qids = list(collection.split("dev"))
    chosen = qids[:: max(1, len(qids) // SAMPLES)][:SAMPLES]
    run = index.search({qid: collection.queries[qid] for qid in chosen}, k=3)
    parts = []
    for qid in chosen:
        judged = collection.split("dev")[qid]
        rows = [
            [
                f"    {rank}.",
                docno,
                f"{score:.2f}",
                f"grade {judged[docno]}" if docno in judged else "not judged",
            ]
            for rank, (docno, score) in enumerate(run.rankings[qid], start=1)
        ]
        parts.append(f"  {collection.queries[qid]}\n{_indented(rows)}")
    return "\n".join(parts)


def _indented(rows: list[list[str]]) -> str:
    if not rows:
        return "    nothing found"
    return render(["", "", "", ""], rows).split("\n", 1)[1]


def _measures(runs: list[Run], collection: Collection) -> str:
    convention = Convention()
    test = collection.split("test")
    table = comparison_table(compare([evaluate(run, test, PAPER, convention) for run in runs]))
    return f"""{len(test)} questions; {convention}.
Letters behind a figure name the systems it is significantly better than (paired t-test, Holm, p ≤ 0.05).
Popularity and neighbours read no document: what they reach, the training judgements give away.

{table}"""
