"""The bar for every system: BM25 at two settings and the two controls, on the test queries of a collection.

    python recipes/controls.py pydocs path/to/scifact path/to/cranfield ... [--out FILE.json]

Collections with folds are cross-validated: the controls of a fold know the judgements of the other folds. If
a folder has a file `source_docs.tsv` (qid and docno), these pairs are excluded from rankings and judgements.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from gr2.data.collection import Collection
from gr2.data.formats import open_collection
from gr2.data.formats.trec import read_pairs
from gr2.evaluate.config import GAIN
from gr2.evaluate.describe import headline
from gr2.evaluate.measures import GRADED, Convention, evaluate, without_pairs
from gr2.evaluate.significance import Comparison, compare
from gr2.evaluate.tables import comparison_table
from gr2.experiments.plans import source_documents
from gr2.experiments.tables import baselines_over_folds
from gr2.store import write_json
from gr2.systems.baselines import BM25_SETTINGS

MEASURES = (*GRADED, "Hits@1", "Hits@10")


def measure(collection: Collection, exclude: Path | None, convention: Convention) -> Comparison:
    """All systems on the collection's test queries, compared."""
    excluded = read_pairs(exclude)
    qrels = without_pairs(collection.split("test"), excluded)
    runs = baselines_over_folds(collection)
    return compare([evaluate(run.without(excluded), qrels, MEASURES, convention) for run in runs])


def main() -> None:
    """Measure each collection, print its table, and save all figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("collections", nargs="+", help="folders, `pydocs` or `ir:ID`")
    parser.add_argument(
        "--gain", choices=("linear", "exponential"), default=GAIN, help=f"gain of nDCG ({GAIN})"
    )
    parser.add_argument("--out", type=Path, help="file for all figures and p-values, as JSON")
    options = parser.parse_args()
    saved = {}
    for path in options.collections:
        collection = open_collection(path)
        convention = Convention.for_grades(collection.grades, gain=options.gain)
        comparison = measure(collection, source_documents(path), convention)
        print(f"{headline(collection)}\n{convention}\n{comparison_table(comparison, 'markdown')}\n")
        content = comparison.to_json()
        for system in content["systems"]:
            del system["values"]
        saved[collection.name] = content | {"fingerprint": collection.fingerprint}
    if options.out:
        settings = [asdict(config) for config in BM25_SETTINGS]
        write_json(options.out, {"bm25": settings, "collections": json.loads(json.dumps(saved))})


if __name__ == "__main__":
    main()
