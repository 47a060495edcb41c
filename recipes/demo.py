"""`gr2 demo` with several seeds: each with its time, and all of them in one table.

    python recipes/demo.py --out FOLDER [--seeds 3] [--json docs/results/demo.json]

Each seed is a whole demo, planned to its time on this machine; interrupted work continues. A system's values
are averaged over the seeds, query by query, before differences are tested.
"""

import argparse
import json
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from gr2.data.formats import open_collection
from gr2.data.runs import Run
from gr2.evaluate.measures import PAPER, Convention, Evaluation, evaluate
from gr2.evaluate.significance import compare
from gr2.evaluate.tables import comparison_table
from gr2.experiments.tables import mean_of
from gr2.model.gr2 import GR2
from gr2.report import OURS
from gr2.report.evidence import DEPTH
from gr2.store import write_json
from gr2.systems.baselines import DENSE, baseline_runs
from gr2.workflows.demo import demo_job
from gr2.workflows.index import DETAIL, PLAN, index


def read_json(path: Path) -> dict[str, Any]:
    """A file that a demo keeps."""
    return dict(json.loads(path.read_text(encoding="utf-8")))


def demos(options: argparse.Namespace) -> tuple[list[Run], list[dict[str, Any]]]:
    """The runs of every seed, and the facts of each demo."""
    collection = open_collection("pydocs")
    queries = {qid: collection.queries[qid] for qid in collection.split("test")}
    runs, facts = [], []
    for seed in range(options.seeds):
        job = demo_job(collection, options.out / f"seed-{seed}").with_training("seed", seed)
        job = replace(job, config=replace(job.config, backbone=options.backbone))
        kept = job.folder / "recipe.json"
        if not kept.exists():
            begun = time.monotonic()
            index(job, partial(print, flush=True))
            write_json(kept, {"seed": seed, "seconds": time.monotonic() - begun})
        ours = GR2.from_pretrained(job.out).search_many(queries, DEPTH)
        found = {OURS: ours.rankings}
        for name, path in (("MLE", "MLE.trec"), (DENSE, "dense.trec")):
            found[name] = Run.read(job.folder / path).rankings
        runs += [Run(rankings, name) for name, rankings in found.items()]
        more = {**read_json(job.folder / PLAN), "vectors": read_json(job.folder / DETAIL)}
        facts.append({**more, **read_json(kept)})
    return runs, facts


def main() -> None:
    """Run the demos and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the demos")
    parser.add_argument("--backbone", default="gr2-mini", help="backbone of the demos (gr2-mini)")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds (3)")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    runs, facts = demos(options)
    collection = open_collection("pydocs")
    qrels, how = collection.split("test"), Convention.for_grades(collection.grades, gain="exponential")
    each: dict[str, list[Evaluation]] = {}
    for run in [*baseline_runs(collection, "test"), *runs]:
        each.setdefault(run.name, []).append(evaluate(run, qrels, PAPER, how))
    means = [mean_of(found, name) for name, found in each.items()]
    print(f"{how}; mean of {options.seeds} seeds\n\n{comparison_table(compare(means), 'markdown')}\n")
    for fact in facts:
        print(f"seed {fact['seed']}: {fact['steps']} steps, {fact['seconds']:.0f} s")
    if options.json:
        by_seed = [e.means for e in each[OURS]]
        systems = {e.name: e.means for e in means}
        write_json(options.json, {"demos": facts, "means": systems, f"{OURS} by seed": by_seed})


if __name__ == "__main__":
    main()
