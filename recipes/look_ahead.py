"""Look-ahead without a decoder against BM25, dense search, the hybrid and the controls.

    python recipes/look_ahead.py --backbone CHECKPOINT --out FOLDER nfcorpus cranfield ... [--json FILE]

The hybrid is words and vectors with fixed weights (20 and 1) and nothing learned; `hybrid + memory` adds the
judgements of similar training queries; look-ahead chooses what to learn by cross-validation on training
queries. Nothing is tuned on test queries. Collections with folds are cross-validated, and a file
`source_docs.tsv` (qid and docno) is left out of rankings and judgements. Vectors are of leading tokens.
"""

import argparse
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gr2.data.collection import Collection
from gr2.data.formats import open_collection
from gr2.data.runs import Ranking, Run
from gr2.evaluate.describe import headline
from gr2.evaluate.significance import compare
from gr2.evaluate.tables import comparison_table, render
from gr2.experiments.plans import source_documents
from gr2.experiments.tables import baselines_over_folds, differences_from, gather, query_groups
from gr2.model.config import LookAheadConfig, VectorConfig
from gr2.store import write_json
from gr2.systems.config import LookAheadOptions
from gr2.systems.look_ahead import LookAheadSystem
from gr2.training.selection import MEMORY, Candidate

MEASURES = ("nDCG@5", "nDCG@20", "ERR@20", "Hits@10")
DEPTH = 100
MEMORY_ALONE = [Candidate(memory=weight) for weight in MEMORY]
DENSE = LookAheadConfig(words=0.0)
HYBRID = LookAheadConfig()
SYSTEMS: dict[str, tuple[LookAheadConfig, bool, list[Candidate] | None]] = {
    "dense, untrained": (DENSE, False, None),
    "hybrid": (HYBRID, False, None),
    "hybrid + memory": (HYBRID, True, MEMORY_ALONE),
    "look-ahead": (HYBRID, True, None),
}
"""Name → the weights to start from, whether it learns, and from which candidates it chooses."""


def runs(collection: Collection, options: argparse.Namespace) -> tuple[list[Run], list[dict[str, Any]]]:
    """The runs of all systems over the folds, and what each fold chose."""
    whole = LookAheadOptions(backbone=options.backbone, vectors=VectorConfig.leading(options.lead))
    found: dict[str, dict[str, Ranking]] = {name: {} for name in SYSTEMS}
    chosen = []
    # The same documents with the same fingerprint for every fold, so that their vectors are computed once.
    for fold in range(len(collection.folds)) if collection.folds else (None,):
        part = collection if fold is None else collection.fold(fold)
        queries = {qid: part.queries[qid] for qid in part.split("test")}
        for name, (weights, learns, candidates) in SYSTEMS.items():
            begun = time.process_time()
            system = LookAheadSystem.build(
                collection,
                replace(whole, look_ahead=weights, learn=learns),
                judgements=part.qrels.get("train"),
                candidates=candidates,
                folder=options.out,
            )
            seconds = time.process_time() - begun
            found[name] |= system.search(queries, DEPTH).rankings
            if system.selection is not None:
                rows = [asdict(row) | {"candidate": str(row.candidate)} for row in system.selection.rows]
                what = {"fold": fold, "system": name, "words": system.selection.words}
                what |= {"chosen": str(system.selection.chosen), "cpu_seconds": round(seconds, 1)}
                chosen.append(what | {"rows": rows, "bytes": system.look_ahead.nbytes})
                print(f"{part.name}: {name}: {system} ({seconds:.0f} CPU-seconds)", flush=True)
    return [Run(rankings, name) for name, rankings in found.items()], chosen


def report(options: argparse.Namespace, path: str) -> dict[str, Any]:
    """Print a collection's tables and return its figures."""
    collection = open_collection(path)
    ours, chosen = runs(collection, options)
    others = baselines_over_folds(collection)
    rows = [(run.name, 0, run) for run in [*others, *ours]]
    evaluations = gather(collection, rows, MEASURES, exclude=source_documents(path))
    print(f"### {headline(collection)}\n\n{evaluations[0].convention}\n")
    saved: dict[str, Any] = {"fingerprint": collection.fingerprint, "chosen": chosen}
    for group, qids in query_groups(collection).items():
        some = [evaluation.only(qids) for evaluation in evaluations]
        print(f"{group} queries ({len(qids)})\n\n{comparison_table(compare(some), 'markdown')}\n")
        gains = differences_from("look-ahead", some, ("nDCG@20",))
        cells = [[d.system, f"{-d.gain:+.4f}", f"{d.p:.3f}", f"{d.holm:.3f}"] for d in gains]
        print(render(["look-ahead over", "nDCG@20", "p", "p (Holm)"], cells, "markdown"), "\n")
        saved[group] = {"means": {e.name: e.means for e in some}, "over": [asdict(d) for d in gains]}
    return saved


def main() -> None:
    """Measure each collection, print its tables, and save the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("collections", nargs="+", help="folders, or pydocs")
    parser.add_argument("--backbone", default="gr2-mini", help="a text encoder (gr2-mini)")
    parser.add_argument("--out", type=Path, required=True, help="keeps vectors and runs")
    parser.add_argument("--lead", type=int, default=128, help="leading tokens of a document's vector (128)")
    parser.add_argument("--json", type=Path, help="save the figures")
    options = parser.parse_args()
    saved = {Path(path).name: report(options, path) for path in options.collections}
    if options.json:
        about = {"backbone": Path(options.backbone).name, "lead": options.lead}
        write_json(options.json, {"settings": about, "collections": saved})


if __name__ == "__main__":
    main()
