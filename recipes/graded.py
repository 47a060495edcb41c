"""GR²S and its variants against MLE, BM25 and the controls on graded collections: a fair test of MGCC.

    python recipes/graded.py sweep  --backbone CHECKPOINT --out FOLDER nfcorpus medquad-nih cranfield scifact
    python recipes/graded.py report --backbone CHECKPOINT --out FOLDER ... [--json docs/results/graded.json]

All variants have the same network, docids, batches and steps; only the loss differs. The encoder is trained.
`sweep` runs the trials that are missing, several at a time, each with one thread; an interrupted sweep
continues when it is started again. `report` trains nothing: it reads the finished runs. Collections are
folders; those with folds are cross-validated. If a folder has a file `source_docs.tsv` (qid and docno), these
pairs are excluded from rankings and judgements.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gr2.data.formats import open_collection
from gr2.data.runs import Run
from gr2.evaluate.describe import headline
from gr2.evaluate.significance import compare
from gr2.evaluate.tables import comparison_table, render
from gr2.experiments.executors import sweep
from gr2.experiments.plans import PLAN, SYSTEMS, UNTRAINED, graded_trials, source_documents
from gr2.experiments.tables import all_baselines, differences_from, gather, query_groups, trial_figures
from gr2.experiments.trial import Trial
from gr2.store import write_json

MEASURES = ("nDCG@5", "nDCG@20", "P@20", "ERR@20", "Hits@1", "Hits@10")
TESTED = ("nDCG@5", "nDCG@20", "ERR@20")


def trials(options: argparse.Namespace) -> Iterator[Trial]:
    """Every system on every collection."""
    return graded_trials(
        options.collections,
        options.backbone,
        options.systems,
        steps=options.steps,
        words=options.words,
        seeds=options.seeds,
        all_seeds=options.all_seeds,
    )


def finished(options: argparse.Namespace, path: str) -> list[tuple[Trial, Path]]:
    """The finished trials on a collection; a seed that lacks a fold is left out."""
    found = [(t, options.out / t.name) for t in trials(options) if t.collection == path]
    missing = {(t.system, t.plan["seed"]) for t, folder in found if not folder.exists()}
    return [(t, folder) for t, folder in found if (t.system, t.plan["seed"]) not in missing]


def report(options: argparse.Namespace, path: str) -> dict[str, Any]:
    """Print a collection's tables and return its figures."""
    collection, found = open_collection(path), finished(options, path)
    rows = [(run.name, 0, run) for run in all_baselines(collection, options.backbone, options.out)]
    rows += [(t.system, t.plan["seed"], Run.read(folder / "run.trec")) for t, folder in found]
    evaluations = gather(collection, rows, MEASURES, exclude=source_documents(path))
    print(f"### {headline(collection)}\n\n{evaluations[0].convention}\n")
    saved: dict[str, Any] = {"fingerprint": collection.fingerprint}
    for group, qids in query_groups(collection).items():
        comparison = compare([evaluation.only(qids) for evaluation in evaluations])
        print(f"{group} queries ({len(qids)})\n\n{comparison_table(comparison, 'markdown')}\n")
        saved[group] = {e.name: e.means for e in comparison.evaluations}
    tested = differences_from("MLE", [e for e in evaluations if e.name in options.systems], TESTED)
    cells = [[d.system, d.measure, f"{d.gain:+.4f}", f"{d.p:.3f}", f"{d.holm:.3f}"] for d in tested]
    if cells:
        print(render(["against MLE", "measure", "gain", "p", "p (Holm)"], cells, "markdown"), "\n")
    saved["against MLE"] = {
        f"{d.system} {d.measure}": {"mean": d.gain, "p": d.p, "holm": d.holm} for d in tested
    }
    saved["trials"] = trial_figures(found)
    names = list(next(iter(saved["trials"].values()), {}))
    cells = [[s, *(f"{row[name]:.3f}" for name in names)] for s, row in saved["trials"].items()]
    print(render(["trials", *names], cells, "markdown"), "\n")
    return saved


def main() -> None:
    """Sweep or report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("do", choices=("sweep", "report"))
    parser.add_argument("collections", nargs="+", help="folders")
    parser.add_argument("--backbone", required=True, help="folder or hub name of a checkpoint")
    parser.add_argument("--out", type=Path, required=True, help="folder of trials")
    parser.add_argument("--systems", nargs="+", choices=[*SYSTEMS, UNTRAINED], default=list(SYSTEMS))
    parser.add_argument("--steps", type=int, default=200, help="maximal training steps (200)")
    parser.add_argument("--words", type=int, default=6, help="words of a docid (6)")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds (3)")
    parser.add_argument("--all-seeds", action="store_true", help="use every seed for collections with folds")
    parser.add_argument("--workers", type=int, default=2, help="trials run at the same time (2)")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    if options.do == "sweep":
        sweep(trials(options), options.out, workers=options.workers)
        return
    saved = {Path(path).name: report(options, path) for path in options.collections}
    if options.json:
        settings = {"plan": dict(PLAN), "steps": options.steps, "words": options.words}
        about = settings | {"backbone": Path(options.backbone).name, "seeds": options.seeds}
        write_json(options.json, {"settings": about, "collections": saved})


if __name__ == "__main__":
    main()
