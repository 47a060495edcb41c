"""What smaller vectors cost: nDCG@20 and bytes per document of φ₀ and of dense search, in each storage.

    python recipes/storage.py --out FOLDER nfcorpus cranfield ... [--json FILE]

φ₀ is look-ahead before anything is learned: words, and vectors of leading texts. Dense search has the mean
vector and the best piece of each document. Both are measured on test queries with 32 bits per dimension, with
8 bits, and product-quantised with 24, 48 and 96 bytes per vector. Nothing is tuned. The documents of a file
`source_docs.tsv` (qid and docno) are left out of rankings and judgements.
"""

import argparse
from pathlib import Path
from typing import Any

from gr2.data.formats import open_collection
from gr2.evaluate.describe import headline
from gr2.evaluate.tables import render
from gr2.experiments.look_ahead_runs import KnownQueries, look_ahead_run
from gr2.experiments.plans import source_documents
from gr2.experiments.tables import differences_from, gather
from gr2.model.config import LookAheadConfig, VectorConfig, VectorStorage
from gr2.model.document_vectors import vectors_by_kind
from gr2.store import write_json
from gr2.training.plain_views import PlainViews, Weights

MEASURE = "nDCG@20"
STORAGES: dict[str, tuple[VectorStorage, int | None]] = {
    "fp32": ("fp32", None),
    "int8": ("int8", None),
    **{f"pq {size}": ("pq", size) for size in (96, 48, 24)},
}
"""Names in tables → storage, and bytes of a product-quantised vector."""


def measured(options: argparse.Namespace, path: str) -> dict[str, Any]:
    """The figures of a collection: by system and storage, with p-values against 32 bits."""
    collection, how = open_collection(path), VectorConfig.leading(options.lead)
    documents = sorted(collection.documents, key=lambda document: document.docno)
    docnos = [document.docno for document in documents]
    vectors = vectors_by_kind(collection, docnos, options.backbone, options.out, how, progress=True)
    views = PlainViews(documents, vectors, LookAheadConfig())
    systems = {"φ₀": views.at(views.usual), "dense": views.at(Weights(list(vectors)[-1], 0.0))}
    encoder = KnownQueries(collection, options.backbone, options.out, how)
    queries = {qid: collection.queries[qid] for qid in collection.split("test")}
    print(f"### {headline(collection)}\n", flush=True)
    found: dict[str, Any] = {"fingerprint": collection.fingerprint, "documents": len(docnos)}
    for system, full in systems.items():
        runs, sizes = [], {}
        for name, (storage, size) in STORAGES.items():
            stored = full.stored(storage, size)
            runs.append((name, 0, look_ahead_run(stored, queries, encoder, name)))
            sizes[name] = stored.nbytes
        evaluations = gather(collection, runs, (MEASURE,), exclude=source_documents(path))
        against = {d.system: d for d in differences_from("fp32", evaluations, (MEASURE,))}
        found[system] = {
            one.name: {
                MEASURE: one.means[MEASURE],
                "p": against[one.name].p if one.name in against else None,
                "p, Holm": against[one.name].holm if one.name in against else None,
                "bytes": sizes[one.name],
            }
            for one in evaluations
        }
        print(_table(system, found[system], len(docnos)), "\n", flush=True)
    return found


def _table(system: str, figures: dict[str, Any], documents: int) -> str:
    rows = [
        [
            name,
            f"{one[MEASURE]:.4f}",
            "" if one["p"] is None else f"{one['p']:.3f}",
            "" if one["p"] is None else f"{one['p, Holm']:.3f}",
            *(f"{one['bytes'].get(view, 0) / documents:,.0f}" for view in ("vectors", "words")),
        ]
        for name, one in figures.items()
    ]
    return render([system, MEASURE, "p", "p, Holm", "bytes per document: vectors", "words"], rows, "markdown")


def main() -> None:
    """Measure each collection, print its tables, and save the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("collections", nargs="+", help="folders, or pydocs")
    parser.add_argument("--backbone", default="gr2-mini", help="a text encoder (gr2-mini)")
    parser.add_argument("--out", type=Path, required=True, help="keeps vectors")
    parser.add_argument("--lead", type=int, default=0, help="read leading tokens only; 0: all pieces (0)")
    parser.add_argument("--json", type=Path, help="save the figures")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    saved = {}
    for path in options.collections:
        saved[Path(path).name] = measured(options, path)
        if options.json:
            about = {"backbone": Path(options.backbone).name, "lead": options.lead}
            write_json(options.json, {"settings": about, "collections": saved})


if __name__ == "__main__":
    main()
