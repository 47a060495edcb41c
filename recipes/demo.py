"""What `gr2 demo` gives, for several seeds: every demo in full, with its time, and all of them in one table.

    python recipes/demo.py --out FOLDER [--seeds 3] [--json docs/results/demo.json]

Each seed is a demo of its own, planned to its time on this machine; interrupted, it goes on. Rankings of a
system are averaged over the seeds, query by query, before differences are tested.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from gr2.compare import compare
from gr2.demo import job
from gr2.experiment import mean_of
from gr2.formats import open_collection
from gr2.index import DETAIL, PLAN, index
from gr2.measures import PAPER, Convention, Evaluation, evaluate
from gr2.model import GR2
from gr2.report import OURS, rivals
from gr2.report.evidence import DEPTH
from gr2.runs import Run
from gr2.store import write_json
from gr2.tables import comparison_table


def read_json(path: Path) -> dict[str, Any]:
    """What is kept beside a demo."""
    return dict(json.loads(path.read_text(encoding="utf-8")))


def demos(options: argparse.Namespace) -> tuple[list[Run], list[dict[str, Any]]]:
    """The runs of every seed, and what each took."""
    collection = open_collection("pydocs")
    queries = {qid: collection.queries[qid] for qid in collection.split("test")}
    runs, facts = [], []
    for seed in range(options.seeds):
        wanted = replace(job(collection, options.out / f"seed-{seed}", options.backbone), seed=seed)
        kept = wanted.folder / "recipe.json"
        if not kept.exists():
            begun = time.monotonic()
            for line in index(wanted):
                print(line, flush=True)
            write_json(kept, {"seed": seed, "seconds": time.monotonic() - begun})
        ours = GR2.from_pretrained(wanted.out).search(queries, DEPTH)
        found = {OURS: ours.rankings}
        for name, path in (("MLE", "MLE.trec"), ("dense, untrained", "dense.trec")):
            found[name] = Run.read(wanted.folder / path).rankings
        runs += [Run(rankings, name) for name, rankings in found.items()]
        more = {**read_json(wanted.folder / PLAN), "vectors": read_json(wanted.folder / DETAIL)}
        facts.append({**more, **read_json(kept)})
    return runs, facts


def main() -> None:
    """Run the demos and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="where the demos are kept")
    parser.add_argument("--backbone", default="gr2-mini", help="(gr2-mini)")
    parser.add_argument("--seeds", type=int, default=3, help="(3)")
    parser.add_argument("--json", type=Path, help="save the figures")
    options = parser.parse_args()
    runs, facts = demos(options)
    collection = open_collection("pydocs")
    qrels, how = collection.split("test"), Convention(gain="exponential", max_grade=4)
    each: dict[str, list[Evaluation]] = {}
    for run in [*rivals(collection, "test"), *runs]:
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
