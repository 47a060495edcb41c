"""Look-ahead against BM25, dense search, the hybrid and the controls; and its loss against the ablations.

    python recipes/look_ahead.py --out FOLDER nfcorpus cranfield ... [--variants MLE CE ...] [--json FILE]

`dense` is the encoder with mean vectors and best pieces; the hybrid adds words to the vectors of leading
texts, with fixed weights (20 and 1) and nothing learned; `hybrid + memory` chooses weights and adds the
judgements of similar queries as is best in cross-validation; look-ahead chooses everything by its own rule.
Nothing is tuned on test queries. Collections with folds are cross-validated, and the documents of a file
`source_docs.tsv` (qid and docno) are left out of rankings and judgements. With --variants, the same is
learned by other losses.
"""

import argparse
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gr2.data.collection import Collection
from gr2.data.formats import open_collection
from gr2.data.formats.trec import read_pairs
from gr2.data.runs import Run
from gr2.evaluate.describe import headline
from gr2.evaluate.measures import without_pairs
from gr2.evaluate.significance import compare
from gr2.evaluate.tables import comparison_table, render
from gr2.experiments.look_ahead_runs import KnownQueries, look_ahead_run, with_memory
from gr2.experiments.plans import source_documents
from gr2.experiments.tables import baselines_over_folds, differences_from, gather, query_groups
from gr2.model.config import LookAheadConfig, VectorConfig
from gr2.model.document_vectors import vectors_by_kind
from gr2.store import write_json
from gr2.training.fit_look_ahead import judged_queries, learn_look_ahead, selection_facts
from gr2.training.plain_views import PlainViews, Weights

MEASURES = ("nDCG@5", "nDCG@20", "ERR@20", "Hits@10")
OURS = "look-ahead"
CONTROL = "hybrid + memory"


def runs(
    collection: Collection, judged: Collection, path: str, options: argparse.Namespace
) -> tuple[list[tuple[str, int, Run]], list[dict[str, Any]]]:
    """The runs of all systems over the folds, and what each fold chose.

    `judged` has the judgements; vectors are kept by the fingerprint of the collection itself.
    """
    how = VectorConfig.leading(options.lead)
    documents = sorted(collection.documents, key=lambda document: document.docno)
    docnos = [document.docno for document in documents]
    vectors = vectors_by_kind(collection, docnos, options.backbone, options.out, how, progress=True)
    views = PlainViews(documents, vectors, LookAheadConfig())
    encoder = KnownQueries(collection, options.backbone, options.out, how)
    hidden = read_pairs(source_documents(path))
    dense = views.at(Weights(list(vectors)[-1], 0.0))
    fixed = {"dense, untrained": dense, "hybrid": views.at(views.usual)}
    rows, chosen = [], []
    for fold in range(len(judged.folds)) if judged.folds else (None,):
        part = judged if fold is None else judged.fold(fold)
        part = replace(part, qrels={s: without_pairs(qrels, hidden) for s, qrels in part.qrels.items()})
        queries = {qid: part.queries[qid] for qid in part.split("test")}
        rows += [(name, 0, look_ahead_run(plain, queries, encoder, name)) for name, plain in fixed.items()]
        splits = judged_queries(part, encoder)
        ways = {CONTROL: "", OURS: "gr2"} | {f"{OURS}, {variant}": variant for variant in options.variants}
        for name, variant in ways.items():
            begun = time.process_time()
            if name == CONTROL:
                found, selection = with_memory(views, splits)
            else:
                found, selection = learn_look_ahead(views, splits, variant=variant)
            seconds = round(time.process_time() - begun, 1)
            rows.append((name, 0, look_ahead_run(found, queries, encoder, name)))
            about = {"fold": fold, "system": name, "cpu_seconds": seconds, "bytes": found.nbytes}
            chosen.append(about | selection_facts(selection))
            what = f"{chosen[-1].get('weights', 'usual weights')}, {chosen[-1]['chosen']}"
            print(f"{part.name} fold {fold}: {name}: {what} ({seconds:.0f} CPU-seconds)", flush=True)
    return rows, chosen


def report(options: argparse.Namespace, path: str) -> dict[str, Any]:
    """Print a collection's tables and return its figures."""
    whole = collection = open_collection(path)
    if options.train != "train":
        kept = {"train": collection.split(options.train), "test": collection.split("test")}
        collection = replace(collection, qrels=kept)
    own, chosen = runs(whole, collection, path, options)
    others = [(run.name, 0, run) for run in baselines_over_folds(collection)]
    evaluations = gather(collection, [*others, *own], MEASURES, exclude=source_documents(path))
    print(f"### {headline(collection)}\n\n{evaluations[0].convention}\n")
    saved: dict[str, Any] = {"fingerprint": collection.fingerprint, "chosen": chosen}
    for group, qids in query_groups(collection).items():
        some = [evaluation.only(qids) for evaluation in evaluations]
        print(f"{group} queries ({len(qids)})\n\n{comparison_table(compare(some), 'markdown')}\n")
        ablations = [one for one in some if one.name.startswith(f"{OURS},")]
        controls = [one for one in some if one not in ablations]
        ours = next(one for one in controls if one.name == OURS)
        gains = differences_from(OURS, controls, ("nDCG@20",))  # two families of tests, each with its Holm
        gains += differences_from(OURS, [ours, *ablations], ("nDCG@20",)) if ablations else []
        cells = [[d.system, f"{-d.gain:+.4f}", f"{d.p:.3f}", f"{d.holm:.3f}"] for d in gains]
        print(render([f"{OURS} over", "nDCG@20", "p", "p (Holm)"], cells, "markdown"), "\n", flush=True)
        saved[group] = {
            "queries": len(qids),
            "means": {e.name: e.means for e in some},
            "over": [asdict(d) for d in gains],
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
    parser.add_argument("--train", default="train", help="the only split to learn from, if not train (train)")
    parser.add_argument("--variants", nargs="*", default=[], help="losses to compare with, such as MLE CE LR")
    parser.add_argument("--json", type=Path, help="save the figures")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    saved = {}
    for path in options.collections:
        saved[Path(path).name] = report(options, path)
        if options.json:
            about = {"backbone": Path(options.backbone).name, "lead": options.lead, "train": options.train}
            write_json(options.json, {"settings": about, "collections": saved})


if __name__ == "__main__":
    main()
