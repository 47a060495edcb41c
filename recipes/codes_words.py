"""Documents as codes and words: nDCG@20 and bytes per document beside look-ahead with vectors.

    python recipes/codes_words.py --out FOLDER nfcorpus cranfield ... [--json FILE]

The documents of `codes-words` are residual codes of their vectors and their best words. Untrained they have
the usual weights; learned, everything is chosen by cross-validation on other queries, with the loss of GR²
(MGCC), with MLE, and without a gate, which needs the vectors of training queries. Hybrid is φ with full
vectors and all words, nothing learned; look-ahead learns all that it can. Collections with folds are
cross-validated, and the documents of a file `source_docs.tsv` (qid and docno) are left out of rankings and
judgements.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gr2.data.collection import Collection
from gr2.data.formats import open_collection
from gr2.data.formats.trec import read_pairs
from gr2.data.runs import Run
from gr2.evaluate.describe import headline
from gr2.evaluate.measures import without_pairs
from gr2.evaluate.tables import render
from gr2.experiments.look_ahead_runs import KnownQueries, look_ahead_run
from gr2.experiments.plans import source_documents
from gr2.experiments.tables import baselines_over_folds, differences_from, gather, query_groups
from gr2.model.config import LookAheadConfig, VectorConfig
from gr2.model.document_vectors import vectors_by_kind
from gr2.model.look_ahead import FIXED, LookAhead
from gr2.schemes.clusters import residual_vectors
from gr2.store import write_json
from gr2.training.candidates import candidates
from gr2.training.fit_look_ahead import judged_queries, learn_look_ahead, selection_facts
from gr2.training.judged import Unencoded
from gr2.training.plain_views import PlainViews, Weights

MEASURE, HYBRID, OURS = "nDCG@20", "hybrid", "codes-words, GR²"
MEASURES = (MEASURE, "nDCG@5")
UNTRAINED, MLE, FULL = "codes-words, untrained", "codes-words, MLE", "look-ahead"
OPEN = "codes-words, GR², no gate"
LEARNED = {FULL: "gr2", OURS: "gr2", MLE: "MLE", OPEN: "gr2"}
"""Name → loss."""


def systems(
    full: PlainViews, codes: PlainViews, splits: dict[str, Unencoded]
) -> Iterator[tuple[str, LookAhead, dict[str, Any]]]:
    """Every system of a fold, and what it chose."""
    dense = next(iter(full.vectors))
    yield "dense", full.at(Weights(dense, 0.0)), {}
    yield HYBRID, full.at(full.usual), {}
    yield UNTRAINED, codes.at(codes.usual), {}
    for name, variant in LEARNED.items():
        begun = time.process_time()
        ways = [one for one in candidates(list(splits), codes=True) if one.gate is None]
        found, selection = learn_look_ahead(
            full if name == FULL else codes,
            splits,
            variant=variant,
            options=ways if name == OPEN else None,
        )
        facts = selection_facts(selection)
        spent = time.process_time() - begun
        print(f"{name}: {facts.get('weights')}, {facts['chosen']} ({spent:.0f} CPU-seconds)", flush=True)
        yield name, found, facts | {"cpu_seconds": round(spent, 1)}


def runs(
    collection: Collection, path: str, options: argparse.Namespace
) -> tuple[list[tuple[str, int, Run]], list[dict[str, Any]]]:
    """The runs of all systems over the folds, and what each fold chose."""
    how = VectorConfig.leading(options.lead)
    documents = sorted(collection.documents, key=lambda document: document.docno)
    vectors = vectors_by_kind(collection, [d.docno for d in documents], options.backbone, options.out, how)
    rows, _ = vectors.get("mean", next(iter(vectors.values())))
    coded = {"codes": (residual_vectors(rows, options.codes), None)}
    codes = PlainViews(documents, coded, LookAheadConfig(kept_words=options.words))
    full, encoder = (
        PlainViews(documents, vectors, LookAheadConfig()),
        KnownQueries(collection, options.backbone, options.out, how),
    )
    hidden, found, chosen = read_pairs(source_documents(path)), list[tuple[str, int, Run]](), []
    for fold in range(len(collection.folds)) if collection.folds else (None,):
        part = collection if fold is None else collection.fold(fold)
        part = replace(part, qrels={s: without_pairs(qrels, hidden) for s, qrels in part.qrels.items()})
        queries = {qid: part.queries[qid] for qid in part.split("test")}
        for name, system, facts in systems(full, codes, judged_queries(part, encoder)):
            found.append((name, 0, look_ahead_run(system, queries, encoder, name)))
            sizes = {"bytes per document": system.bytes_per_document, "bytes": system.nbytes}
            chosen.append({"fold": fold, "system": name, **sizes, **facts})
    return found, chosen


def report(options: argparse.Namespace, path: str) -> dict[str, Any]:
    """Print a collection's tables and return its figures."""
    collection = open_collection(path)
    own, chosen = runs(collection, path, options)
    others = [(run.name, 0, run) for run in baselines_over_folds(collection) if run.name.startswith("BM25")]
    evaluations = gather(collection, [*others, *own], MEASURES, exclude=source_documents(path))
    sizes = {row["system"]: row["bytes per document"] for row in chosen}
    apart = {
        row["system"]: {view: size for view, size in row["bytes"].items() if view in FIXED} for row in chosen
    }
    print(f"### {headline(collection)}\n")
    saved: dict[str, Any] = {"fingerprint": collection.fingerprint, "chosen": chosen}
    for group, qids in query_groups(collection).items():
        some = [evaluation.only(qids) for evaluation in evaluations]
        over = {to: {d.system: d for d in differences_from(to, some, (MEASURE,))} for to in (HYBRID, OURS)}
        cells = [
            [
                one.name,
                f"{one.means[MEASURE]:.4f}",
                *(
                    f"{row[one.name].gain:+.4f} ({row[one.name].holm:.3f})" if one.name in row else ""
                    for row in over.values()
                ),
                ", ".join(f"{view} {size:,.0f}" for view, size in sizes.get(one.name, {}).items()),
                ", ".join(f"{view} {size / 1e6:.1f}" for view, size in apart.get(one.name, {}).items()),
            ]
            for one in some
        ]
        header = [
            "system",
            MEASURE,
            f"over {HYBRID} (p, Holm)",
            f"over {OURS}",
            "bytes per document",
            "MB apart",
        ]
        print(f"{group} queries ({len(qids)})\n\n{render(header, cells, 'markdown')}\n", flush=True)
        saved[group] = {
            "queries": len(qids),
            "means": {one.name: one.means for one in some},
            **{f"over {to}": [asdict(d) for d in row.values()] for to, row in over.items()},
        }
    return saved


def main() -> None:
    """Measure each collection, print its tables, and save the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("collections", nargs="+", help="folders, or pydocs")
    parser.add_argument("--backbone", default="gr2-mini", help="a text encoder (gr2-mini)")
    parser.add_argument("--out", type=Path, required=True, help="keeps vectors")
    parser.add_argument("--lead", type=int, default=0, help="read leading tokens only; 0: all pieces (0)")
    parser.add_argument("--codes", type=int, default=24, help="codes of a document (24)")
    parser.add_argument("--words", type=int, default=64, help="words of a document (64)")
    parser.add_argument("--json", type=Path, help="save the figures")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    saved = {}
    for path in options.collections:
        saved[Path(path).name] = report(options, path)
        if options.json:
            about = {name: getattr(options, name) for name in ("backbone", "lead", "codes", "words")}
            write_json(options.json, {"settings": about, "collections": saved})


if __name__ == "__main__":
    main()
