"""GR²S and its variants against MLE, BM25 and the controls, on graded collections: the fair test of MGCC.

    python recipes/graded.py sweep  --backbone CHECKPOINT --out FOLDER nfcorpus medquad-nih cranfield scifact
    python recipes/graded.py report --backbone CHECKPOINT --out FOLDER ... [--json docs/results/graded.json]

Every variant has the same network, docids, batches and steps; only the loss differs, and the encoder trains.
`sweep` does what is missing, so many trials side by side, each with one thread; interrupted, it goes on.
`report` needs no training: it reads the runs that are there. Collections are folders; those with folds are
cross-validated, and a file `source_docs.tsv` (qid and docno) is left out of rankings and judgements.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from controls import controls

from gr2.backbone import identity, is_own, makes_vectors
from gr2.baselines.dense import Dense, DenseConfig, keep_vectors, vectors_path
from gr2.baselines.sparse import BM25, BM25Config
from gr2.compare import compare
from gr2.data import Collection
from gr2.embed import Encoder
from gr2.experiment import Trial, gather, sweep
from gr2.formats import open_collection
from gr2.info import headline
from gr2.leaks import Leaks, seen_and_unseen
from gr2.learn import Plan
from gr2.measures import Evaluation
from gr2.runs import Run
from gr2.store import write_json
from gr2.tables import comparison_table, render

SYSTEMS = {"MLE": "MLE", "GR²S": "gr2", "−λ": "-lambda", "−Max": "-Max", "CE": "CE", "LR": "LR"}
START = "before training"
"""A system on request: the network with its node prior and not a single step."""
MEASURES = ("nDCG@5", "nDCG@20", "P@20", "ERR@20", "Hits@1", "Hits@10")
TESTED = ("nDCG@5", "nDCG@20", "ERR@20")
SETTINGS = (BM25Config(k1=0.9, b=0.4), BM25Config(k1=1.5, b=0.75))
PLAN: Mapping[str, Any] = {
    "texts": 4,
    "smoothing": 0.0,
    "learning_rate": 1e-4,
    "pretrained_rate": 1.0,
    "average": 0.3,
    "augment": {"paragraphs": 0, "sentences": 0, "entities": 0, "pieces": 8},
}
"""What differs from the defaults; chosen on nfcorpus' dev split and inner folds of cranfield and scifact."""
EPOCHS = 10
"""Of the training queries at most: where they are few, more steps would only repeat them."""


def trials(options: argparse.Namespace) -> Iterator[Trial]:
    """Seed by seed, so that an unfinished sweep has whole comparisons; folds count as seeds."""
    for seed in range(options.seeds):
        for path in options.collections:
            collection = open_collection(path)
            folds = len(collection.folds)
            queries = len((collection.fold(0) if folds else collection).split("train"))
            steps = min(options.steps, EPOCHS * -(-queries // Plan.queries))
            if seed and folds and not options.all_seeds:
                continue  # five folds are five trainings already
            for system in options.systems:
                many = 0 if system == START else steps
                for fold in range(folds) if folds else (None,):
                    yield Trial(
                        system=system,
                        collection=path,
                        backbone=options.backbone,
                        words=options.words,
                        plan={**PLAN, "recipe": SYSTEMS.get(system, "MLE"), "steps": many, "seed": seed},
                        fold=fold,
                    )


def done(options: argparse.Namespace, path: str) -> list[tuple[Trial, Path]]:
    """The trials on a collection that left a run; a seed that lacks a fold is left out."""
    found = [(t, options.out / t.name) for t in trials(options) if t.collection == path]
    missing = {(t.system, t.plan["seed"]) for t, folder in found if not folder.exists()}
    return [(t, folder) for t, folder in found if (t.system, t.plan["seed"]) not in missing]


def baselines(
    collection: Collection, backbone: str, out: Path, split: str = "test", *, lead: int = 0
) -> list[Run]:
    """BM25 at both settings, the controls, and the encoder before any training; dense search is kept."""
    queries = {qid: collection.queries[qid] for qid in collection.split(split)}
    runs = [
        BM25.index(collection.documents, config).search(queries, name=f"BM25 k1={config.k1:g} b={config.b:g}")
        for config in SETTINGS
    ]
    if not makes_vectors(backbone):
        return [*runs, *controls(collection, split)]
    return [*runs, *controls(collection, split), dense(collection, backbone, out, split=split, lead=lead)]


def dense(
    collection: Collection,
    backbone: str | Path,
    out: Path,
    name: str = "dense, untrained",
    *,
    split: str = "test",
    lead: int = 0,
) -> Run:
    """What an encoder finds for the queries of a split before any training; kept.

    Encoding the documents is what it costs, so all splits of few queries are searched at once, and vectors
    are kept for the node prior of trials in the same folder. With `lead` a document is its leading tokens.
    """
    how = DenseConfig.leading(lead)
    name_of_it = identity(backbone) if is_own(backbone) else Path(backbone).name
    start = f"dense.{name_of_it.replace(' ', '.')}.{collection.fingerprint[:12]}"
    start += f".{lead}" if lead else ""
    splits = (set(collection.qrels) - {"train"}) | {split}
    kept = {one: out / f"{start}{'' if one == 'test' else f'.{one}'}.trec" for one in splits}
    if not kept[split].exists():
        index = Dense.index(collection.documents, Encoder.load(backbone), how)
        docnos = sorted(document.docno for document in collection.documents)
        keep_vectors(index, docnos, vectors_path(collection, str(backbone), out, how))
        for one, path in kept.items():
            queries = {qid: collection.queries[qid] for qid in collection.split(one)}
            index.search(queries, 100).write(path)
    return Run(Run.read(kept[split]).rankings, name)


def agreements(found: Sequence[tuple[Trial, Path]]) -> dict[str, dict[str, float]]:
    """Means over seeds and folds of what each trial says of itself."""
    rows: dict[str, list[dict[str, float]]] = defaultdict(list)
    for trial, folder in found:
        content = json.loads((folder / "trial.json").read_text(encoding="utf-8"))
        spent = content["cost"]["cpu_seconds"] or np.nan  # null where it was interrupted
        minutes = {"minutes": spent / 60, "prior MB": content["prior_bytes"] / 1e6}
        known = {n: v for n, v in content["agreement"].items() if not np.isnan(v)}  # none on binary grades
        tau = {f"τ {name}": value for name, value in known.items()}
        rows[trial.system].append(minutes | tau)
    return {
        system: {name: float(np.nanmean([row[name] for row in each])) for name in each[0]}
        | {"runs": len(each)}
        for system, each in rows.items()
    }


def report(options: argparse.Namespace, path: str) -> dict[str, Any]:
    """Print a collection's tables and return its figures."""
    collection = open_collection(path)
    source = Path(path) / "source_docs.tsv"
    exclude = source if source.is_file() else None
    found = done(options, path)
    rows = [(run.name, 0, run) for run in baselines(collection, options.backbone, options.out)]
    rows += [(t.system, t.plan["seed"], Run.read(folder / "run.trec")) for t, folder in found]
    evaluations = gather(collection, rows, MEASURES, exclude=exclude)
    print(f"### {headline(collection)}\n\n{evaluations[0].convention}\n")
    saved: dict[str, Any] = {"fingerprint": collection.fingerprint}
    for group, qids in groups(collection).items():
        comparison = compare([evaluation.only(qids) for evaluation in evaluations])
        print(f"{group} queries ({len(qids)})\n\n{comparison_table(comparison, 'markdown')}\n")
        saved[group] = {e.name: e.means for e in comparison.evaluations}
    saved["trials"] = agreements(found)
    saved["against MLE"] = against("MLE", [e for e in evaluations if e.name in options.systems], TESTED)
    return saved


def groups(collection: Collection) -> dict[str, set[str]]:
    """The test queries: all, and apart by what training gives away of them."""
    if "train" not in collection.qrels or collection.folds:
        return {"all": set(collection.split("test"))}
    leaks = Leaks(collection, "test")
    found = dict(seen_and_unseen(leaks.memory))
    if leaks.near_twins:
        found["without near-twin"] = found["all"] - set(leaks.near_twins)
    return found


def against(one: str, evaluations: Sequence[Evaluation], measures: Sequence[str]) -> dict[str, Any]:
    """Every other system against one, tested over the queries with Holm's correction over the systems."""
    if one not in [e.name for e in evaluations] or len(evaluations) < 2:
        return {}
    rows, saved = [], {}
    for d in compare(evaluations, baseline=one).differences:
        if d.measure in measures:
            name, gain = (d.other, -d.mean) if d.system == one else (d.system, d.mean)
            rows.append([name, d.measure, f"{gain:+.4f}", f"{d.t:.3f}", f"{d.t_holm:.3f}"])
            saved[f"{name} {d.measure}"] = {"mean": gain, "p": d.t, "holm": d.t_holm}
    print(render([f"against {one}", "measure", "gain", "p", "p (Holm)"], rows, "markdown"), "\n")
    return saved


def main() -> None:
    """Sweep or report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("do", choices=("sweep", "report"))
    parser.add_argument("collections", nargs="+", help="folders")
    parser.add_argument("--backbone", required=True, help="folder or hub name of a checkpoint")
    parser.add_argument("--out", type=Path, required=True, help="where trials are kept")
    parser.add_argument("--systems", nargs="+", choices=[*SYSTEMS, START], default=list(SYSTEMS))
    parser.add_argument("--steps", type=int, default=200, help="of each training at most (200)")
    parser.add_argument("--words", type=int, default=6, help="of a docid (6)")
    parser.add_argument("--seeds", type=int, default=3, help="(3)")
    parser.add_argument("--all-seeds", action="store_true", help="repeat the folds for every seed as well")
    parser.add_argument("--workers", type=int, default=2, help="trials side by side (2)")
    parser.add_argument("--json", type=Path, help="save the figures")
    options = parser.parse_args()
    if options.do == "sweep":
        sweep(trials(options), options.out, workers=options.workers)
        return
    saved = {Path(path).name: report(options, path) for path in options.collections}
    for path, content in saved.items():
        names = list(next(iter(content["trials"].values()), {}))
        cells = [[s, *(f"{row[name]:.3f}" for name in names)] for s, row in content["trials"].items()]
        print(f"{path}\n\n{render(['trials', *names], cells, 'markdown')}\n")
    if options.json:
        settings = {"plan": dict(PLAN), "steps": options.steps, "words": options.words}
        about = settings | {"backbone": Path(options.backbone).name, "seeds": options.seeds}
        write_json(options.json, {"settings": about, "collections": saved})


if __name__ == "__main__":
    main()
