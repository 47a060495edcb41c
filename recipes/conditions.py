"""When does MGCC help? The same model with one condition changed at a time, compared with MLE.

    python recipes/conditions.py sweep  --backbone CHECKPOINT --out FOLDER COLLECTION
    python recipes/conditions.py report --backbone CHECKPOINT --out FOLDER COLLECTION [--json FILE]

Measured on the dev split if there is one, else on the test split. Every row is GR²S with the change that the
row names. It is compared with MLE, which gets the same change if that concerns batches, learning rates or the
network; a row that weights the likelihood by grade is compared with CE, which does so too.
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gr2.data.formats import open_collection
from gr2.data.runs import Run
from gr2.evaluate.significance import compare
from gr2.evaluate.tables import render
from gr2.experiments.executors import sweep
from gr2.experiments.plans import PLAN
from gr2.experiments.tables import gather
from gr2.experiments.trial import Trial
from gr2.store import write_json

MEASURES = ("nDCG@5", "nDCG@20", "ERR@20")
CONDITIONS: Mapping[str, Mapping[str, Any]] = {
    "as in the results": {},
    "with CE's grade weights": {"changes": {"queries": "weighted"}},
    "with CE's grade weights, γ = 0.1": {"changes": {"queries": "weighted", "gamma": 0.1}},
    "γ = 0.1": {"changes": {"gamma": 0.1}},
    "γ = 0.3": {"changes": {"gamma": 0.3}},
    "γ = 3": {"changes": {"gamma": 3.0}},
    "τ = 0.05": {"changes": {"temperature": 0.05}},
    "τ = 0.5": {"changes": {"temperature": 0.5}},
    "dot product, τ = 1": {"changes": {"similarity": "dot", "temperature": 1.0}},
    "λ as printed, 1/l²": {"changes": {"penalty": "literal"}},
    "λ = 2^(1/l)": {"changes": {"penalty": "pow2"}},
    "max over level means": {"changes": {"constraint": "level_mean"}},
    "4 docids a grade": {"per_grade": 4},
    "1 docid a grade": {"per_grade": 1},
    "32 queries a step": {"queries": 32},
    "no node prior, rate 1e-3 (0.1 for the encoder)": {
        "prior": 0.0,
        "learning_rate": 1e-3,
        "pretrained_rate": 0.1,
    },
}


def trials(options: argparse.Namespace) -> Iterator[tuple[str, Trial]]:
    """GR²S under each condition, and the system that it is compared with."""
    split = "dev" if "dev" in open_collection(options.collection).qrels else "test"
    for seed in range(options.seeds):
        for name, change in CONDITIONS.items():
            for system in (baseline(change), "GR²S"):
                own = change if system == "GR²S" else {n: v for n, v in change.items() if n != "changes"}
                recipe = {"GR²S": "gr2"}.get(system, system)
                plan = {**PLAN, **own, "recipe": recipe, "steps": options.steps, "seed": seed}
                yield (
                    name,
                    Trial(
                        system=system,
                        collection=options.collection,
                        backbone=options.backbone,
                        words=options.words,
                        plan=plan,
                        split=split,
                    ),
                )


def baseline(change: Mapping[str, Any]) -> str:
    """The system without MGCC that a condition is compared with."""
    return "CE" if change.get("changes", {}).get("queries") == "weighted" else "MLE"


def report(options: argparse.Namespace) -> dict[str, Any]:
    """Print and return the figures of each condition, with the gain over its baseline."""
    collection = open_collection(options.collection)
    found: dict[tuple[str, str], list[tuple[Trial, dict[str, Any]]]] = {}
    for name, trial in trials(options):
        folder = options.out / trial.name
        if folder.exists():
            content = json.loads((folder / "trial.json").read_text(encoding="utf-8"))
            found.setdefault((name, trial.system), []).append((trial, content))
    rows, saved = [], {}
    for name, change in CONDITIONS.items():
        ours, other = found.get((name, "GR²S")), found.get((name, baseline(change)))
        if not ours or not other:
            continue
        runs = [
            (t.system, t.plan["seed"], Run.read(options.out / t.name / "run.trec")) for t, _ in other + ours
        ]
        evaluations = gather(collection, runs, MEASURES, split=ours[0][0].split)
        pair = {
            d.measure: (d.mean if d.system == "GR²S" else -d.mean, d.t)
            for d in compare(evaluations).differences
        }
        means = {e.name: e.means for e in evaluations}
        tau = {k: sum(c["agreement"][k] for _, c in ours) / len(ours) for k in ("similarity", "likelihood")}
        saved[name] = {"means": means, "gain": pair, "tau": tau, "seeds": len(ours)}
        cells = [f"{means['GR²S'][m]:.4f} ({pair[m][0]:+.4f}, p {pair[m][1]:.3f})" for m in MEASURES]
        rows.append([name, baseline(change), *cells, f"{tau['similarity']:.3f}", f"{tau['likelihood']:.3f}"])
    print(
        render(
            ["condition", "against", *(f"{m} (gain)" for m in MEASURES), "τ similarity", "τ log P"],
            rows,
            "markdown",
        )
    )
    return saved


def main() -> None:
    """Sweep or report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("do", choices=("sweep", "report"))
    parser.add_argument("collection", help="folder")
    parser.add_argument("--backbone", required=True, help="folder or hub name of a checkpoint")
    parser.add_argument("--out", type=Path, required=True, help="folder of trials")
    parser.add_argument("--steps", type=int, default=200, help="training steps (200)")
    parser.add_argument("--words", type=int, default=6, help="words of a docid (6)")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds (1)")
    parser.add_argument("--workers", type=int, default=2, help="trials run at the same time (2)")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    if options.do == "sweep":
        wanted = {trial.name: trial for _, trial in trials(options)}  # many share a baseline
        sweep(wanted.values(), options.out, workers=options.workers)
        return
    saved = report(options)
    if options.json:
        write_json(options.json, {Path(options.collection).name: saved})


if __name__ == "__main__":
    main()
