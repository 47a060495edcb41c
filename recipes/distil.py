"""Look-ahead distilled into codes: what is left of its nDCG@20 without any view, and in how many bytes.

    python recipes/distil.py --out FOLDER nfcorpus scifact ... [--json FILE]

The teacher is look-ahead with everything that it learns. The student has residual codes of the documents'
vectors, and maybe the best words of each document, and learns code vectors from the teacher's rankings of the
training queries; it has no offsets, no memory, and no vector per document. Code vectors are counted apart,
because they do not grow with the collection. λ is fixed. Collections with folds are cross-validated, and the
documents of a file `source_docs.tsv` (qid and docno) are left out of rankings and judgements.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from gr2.data.formats import open_collection
from gr2.data.formats.trec import read_pairs
from gr2.data.runs import Run
from gr2.evaluate.describe import headline
from gr2.evaluate.measures import without_pairs
from gr2.evaluate.tables import render
from gr2.experiments.look_ahead_runs import KnownQueries, look_ahead_run
from gr2.experiments.plans import source_documents
from gr2.experiments.tables import differences_from, gather
from gr2.model.config import LookAheadConfig, VectorConfig
from gr2.model.document_vectors import vectors_by_kind
from gr2.model.look_ahead import CODEBOOKS, LookAhead
from gr2.schemes.clusters import residual_codes
from gr2.store import write_json
from gr2.training.distil import coded, distil
from gr2.training.fit_look_ahead import judged_queries, learn_look_ahead
from gr2.training.judged import Unencoded
from gr2.training.plain_views import PlainViews, Weights

MEASURE, TEACHER = "nDCG@20", "look-ahead"
WORDS = 48
"""Words of each document, in some 2 bytes each: with 32 codes less than a tenth of a vector of 384 floats."""


def students(
    views: PlainViews, splits: dict[str, Unencoded], quantised: Callable[[str], dict[int, Any]]
) -> dict[str, LookAhead]:
    """The teacher, what it is made from, and what is distilled from it."""
    teacher, found = learn_look_ahead(views, splits)
    if found is None:
        raise SystemExit("there are no judged queries to learn from")
    print(f"{found.weights}, {found.chosen}", flush=True)
    kind = "mean" if found.weights.vectors == "pieces" else found.weights.vectors
    systems = {"dense": views.at(Weights(kind, 0.0)), "hybrid": views.at(views.usual), TEACHER: teacher}
    asked = splits["train" if "train" in splits else found.measured].encoded()
    for size, (codes, vectors) in quantised(kind).items():
        for words in (0, WORDS):
            name = f"{size} codes{f' and {words} words' if words else ''}"
            start = coded(teacher, codes, vectors, words=words)
            systems[f"{name}, untrained"] = start
            systems[f"{name}, distilled"] = distil(teacher, start, asked.texts, asked.vectors)
    return systems


def measured(options: argparse.Namespace, path: str) -> dict[str, Any]:
    """The figures of a collection by system."""
    collection, how = open_collection(path), VectorConfig.leading(options.lead)
    documents = sorted(collection.documents, key=lambda document: document.docno)
    vectors = vectors_by_kind(collection, [d.docno for d in documents], options.backbone, options.out, how)
    views = PlainViews(documents, vectors, LookAheadConfig())
    encoder = KnownQueries(collection, options.backbone, options.out, how)
    hidden, runs = read_pairs(source_documents(path)), list[tuple[str, int, Run]]()

    @cache
    def quantised(kind: str) -> dict[int, Any]:
        return {size: residual_codes(vectors[kind][0], places=size, codes=256) for size in options.codes}

    sizes: dict[str, dict[str, int]] = {}
    for fold in range(len(collection.folds)) if collection.folds else (None,):
        part = collection if fold is None else collection.fold(fold)
        part = replace(part, qrels={s: without_pairs(qrels, hidden) for s, qrels in part.qrels.items()})
        queries = {qid: part.queries[qid] for qid in part.split("test")}
        for name, system in students(views, judged_queries(part, encoder), quantised).items():
            runs.append((name, 0, look_ahead_run(system, queries, encoder, name)))
            sizes[name] = system.nbytes
    evaluations = gather(collection, runs, (MEASURE,), exclude=source_documents(path))
    against = {d.system: d for d in differences_from(TEACHER, evaluations, (MEASURE,))}
    whole = next(one.means[MEASURE] for one in evaluations if one.name == TEACHER)
    figures = {
        one.name: {
            MEASURE: one.means[MEASURE],
            "share": one.means[MEASURE] / whole,
            "p, Holm": against[one.name].holm if one.name in against else None,
            "bytes": sizes[one.name],
        }
        for one in evaluations
    }
    cells = [
        [name, f"{one[MEASURE]:.4f}", f"{one['share']:.1%}", _bytes(one, len(documents))]
        for name, one in figures.items()
    ]
    print(f"### {headline(collection)}\n")
    print(render(["system", MEASURE, f"of {TEACHER}", "bytes"], cells, "markdown"), "\n", flush=True)
    return {"fingerprint": collection.fingerprint, "documents": len(documents), "systems": figures}


def _bytes(figures: dict[str, Any], documents: int) -> str:
    sizes = dict(figures["bytes"])
    books = sizes.pop(CODEBOOKS, 0)
    shared = f", and {books / 1e6:.1f} MB of code vectors" if books else ""
    return f"{sum(sizes.values()) / documents:,.0f} per document{shared}"


def main() -> None:
    """Measure each collection, print its table, and save the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("collections", nargs="+", help="folders, or pydocs")
    parser.add_argument("--backbone", default="gr2-mini", help="a text encoder (gr2-mini)")
    parser.add_argument("--out", type=Path, required=True, help="keeps vectors")
    parser.add_argument("--lead", type=int, default=0, help="read leading tokens only; 0: all pieces (0)")
    parser.add_argument("--codes", type=int, nargs="+", default=[32, 64], help="codes of a document (32 64)")
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
