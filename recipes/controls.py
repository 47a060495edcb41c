"""What must be beaten: BM25 at two settings and the two controls, on the test queries of any collections.

    python recipes/controls.py pydocs path/to/scifact path/to/cranfield ... [--out FILE.json]

Collections with folds are cross-validated: each fold's controls know the other folds' judgements. A file
`source_docs.tsv` in a collection's folder (qid and docno pairs) is left out of rankings and judgements.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from gr2.baselines.controls import neighbours, popularity
from gr2.baselines.sparse import BM25, BM25Config
from gr2.compare import Comparison, compare
from gr2.data import Collection
from gr2.evaluation import read_pairs
from gr2.formats import open_collection
from gr2.info import headline
from gr2.measures import GRADED, Convention, evaluate
from gr2.runs import Run
from gr2.store import write_json
from gr2.tables import comparison_table

MEASURES = (*GRADED, "Hits@1", "Hits@10")
SETTINGS = (BM25Config(k1=0.9, b=0.4), BM25Config(k1=1.5, b=0.75))


def controls(collection: Collection, split: str = "test") -> list[Run]:
    """The two controls' runs on the queries of a split, over folds where there are some."""
    parts = [collection.fold(i) for i in range(len(collection.folds))] or [collection]
    kinds: dict[str, dict[str, tuple[tuple[str, float], ...]]] = {"popularity": {}, "neighbours": {}}
    for part in parts:
        train = part.split("train")
        queries = {qid: part.queries[qid] for qid in part.split(split)}
        kinds["popularity"] |= popularity(train, queries).rankings
        kinds["neighbours"] |= neighbours(train, part.queries, queries).rankings
    return [Run(rankings, name) for name, rankings in kinds.items()]


def measure(collection: Collection, source: Path | None, convention: Convention) -> Comparison:
    """Every system on the collection's test queries, compared."""
    test = collection.split("test")
    queries = {qid: collection.queries[qid] for qid in test}
    runs = [
        BM25.index(collection.documents, config).search(queries, name=f"BM25 k1={config.k1:g} b={config.b:g}")
        for config in SETTINGS
    ]
    excluded = read_pairs(source)
    judged = {
        qid: {d: g for d, g in row.items() if d not in excluded.get(qid, ())} for qid, row in test.items()
    }
    evaluations = [
        evaluate(run.without(excluded), judged, MEASURES, convention) for run in runs + controls(collection)
    ]
    return compare(evaluations)


def main() -> None:
    """Measure each collection, print its table, and save all figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("collections", nargs="+", help="folders, `pydocs` or `ir:ID`")
    parser.add_argument("--gain", choices=("linear", "exponential"), default="linear", help="nDCG's gain")
    parser.add_argument("--out", type=Path, help="save every figure, with its p-values, as JSON")
    options = parser.parse_args()
    convention, saved = Convention(gain=options.gain), {}
    for name in options.collections:
        collection = open_collection(name)
        source = Path(name) / "source_docs.tsv"
        comparison = measure(collection, source if source.is_file() else None, convention)
        print(f"{headline(collection)}\n{convention}\n{comparison_table(comparison, 'markdown')}\n")
        content = comparison.to_json()
        for system in content["systems"]:
            del system["values"]
        saved[collection.name] = content | {"fingerprint": collection.fingerprint}
    if options.out:
        settings = [asdict(config) for config in SETTINGS]
        write_json(options.out, {"bm25": settings, "collections": json.loads(json.dumps(saved))})


if __name__ == "__main__":
    main()
