"""GR²P against GR²S: the same training from a pre-trained backbone and from the encoder it was made from.

    python recipes/pretrained.py sweep  --start MINILM --backbone gr2-mini --out FOLDER COLLECTION ...
    python recipes/pretrained.py report --start MINILM --backbone gr2-mini --out FOLDER COLLECTION ...

Both have the same steps and docids, and a node prior from their own encoder. The encoders alone are measured
too, because P's gain may come from its encoder. Two rows use no judgements: `indexed` learns from the texts
of the documents, as many per step as the others have queries and texts; `before training` takes no step. With
`--prior 0` there is no node prior, as in the paper, and the plan is that of recipes/schemes.py: a frozen
encoder and larger batches. With `--apart` there is also GR²E, P's encoder with a new decoder, which shows
what comes from which part. With `--lead 0` the trials are those of recipes/graded.py, so in one folder each
is run once.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gr2.data.formats import open_collection
from gr2.data.runs import Run
from gr2.evaluate.describe import headline
from gr2.evaluate.measures import Evaluation
from gr2.evaluate.significance import compare
from gr2.evaluate.tables import comparison_table, render
from gr2.experiments.executors import sweep
from gr2.experiments.plans import PLAIN, UNTRAINED, graded_trials, source_documents
from gr2.experiments.tables import all_baselines, gather, kept_dense_run, query_groups
from gr2.experiments.trial import Trial, training_config
from gr2.model.backbone import FreshDecoder, identity, parts_of, tokenizer_of
from gr2.store import atomic_folder, write_json

MEASURES = ("nDCG@5", "nDCG@20", "P@20", "ERR@20", "Hits@1", "Hits@10")
INDEXED = "indexed"
P_DENSE = "dense, pre-trained"
RATES = {"pydocs": 1e-5}
"""Other learning rates than the plan's, by collection; chosen on dev queries (docs/log.md)."""
SYSTEM = "GR²S"
"""Its name in recipes/graded.py, whatever it starts from."""


def trials(options: argparse.Namespace) -> Iterator[tuple[str, Trial]]:
    """The name in the table, and the trial; seed by seed."""
    sides = {"S": options.start, "P": options.backbone}
    if options.apart:
        sides["E"] = encoder_of(options.backbone, options.out)
    how = {"steps": options.steps, "words": options.words, "seeds": options.seeds}
    found = [
        (letter, trial)
        for letter, place in sides.items()
        for trial in graded_trials(options.collections, place, (SYSTEM, UNTRAINED), **how)
    ]
    for letter, usual in sorted(found, key=lambda row: row[1].plan["seed"]):
        rate = {"learning_rate": RATES.get(usual.collection, usual.plan["learning_rate"])}
        alone = {**PLAIN, "frozen_steps": usual.plan["steps"], "seed": usual.plan["seed"]}
        trial = replace(usual, plan=alone)
        if options.prior:
            trial = replace(usual, plan={**usual.plan, **rate}, lead=options.lead)
        if trial.system == SYSTEM:
            yield f"GR²{letter}", trial
        if letter != "E" and trial.fold in (None, 0):  # without judgements all folds are the same
            once = replace(trial, fold=None)
            if trial.system == SYSTEM:
                batches = training_config(once.plan).batches
                plan = {**once.plan, "texts": batches.texts + batches.queries}
                yield f"GR²{letter}, {INDEXED}", replace(once, system=INDEXED, judged=False, plan=plan)
            elif not trial.plan["seed"]:
                yield f"GR²{letter}, {UNTRAINED}", once


def encoder_of(backbone: str, out: Path) -> str:
    """A backbone's encoder as a checkpoint; like any encoder it gets a new decoder."""
    folder = out / f"encoder of {identity(backbone)}".replace(" ", "-")
    if not folder.exists():
        with atomic_folder(folder) as temporary:
            tokenizer_of(backbone).save_pretrained(temporary)
            parts_of(backbone, FreshDecoder()).encoder.save_pretrained(temporary)
    return str(folder)


def report(options: argparse.Namespace, path: str) -> dict[str, Any]:
    """Print a collection's table and return its figures."""
    collection, lead = open_collection(path), options.lead
    found = [(name, t) for name, t in trials(options) if t.collection == path]
    missing = {(name, t.plan["seed"]) for name, t in found if not (options.out / t.name).exists()}
    missing |= {(f"GR²{side}{name[4:]}", s) for name, s in missing if name != "GR²E" for side in "SP"}
    rows = [(run.name, 0, run) for run in all_baselines(collection, options.start, options.out, lead=lead)]
    rows += [(P_DENSE, 0, kept_dense_run(collection, options.backbone, options.out, P_DENSE, lead=lead))]
    rows += [
        (name, t.plan["seed"], Run.read(options.out / t.name / "run.trec"))
        for name, t in found
        if (name, t.plan["seed"]) not in missing  # S and P have the same seeds
    ]
    evaluations = gather(collection, rows, MEASURES, exclude=source_documents(path))
    comparison = compare(evaluations)
    print(f"### {headline(collection)}\n\n{comparison_table(comparison, 'markdown')}\n")
    seeds = {name: len({s for n, s, _ in rows if n == name}) for name, _, _ in rows}
    print("seeds: " + ", ".join(f"{name} {count}" for name, count in seeds.items()), "\n")
    saved: dict[str, Any] = {"fingerprint": collection.fingerprint, "seeds": seeds}
    for group, qids in query_groups(collection).items():
        some = [evaluation.only(qids) for evaluation in evaluations]
        print(f"{group} queries ({len(qids)})\n")
        saved[group] = {"means": {e.name: e.means for e in some}, "gains": gains(some)}
    return saved


def gains(evaluations: Sequence[Evaluation]) -> list[dict[str, Any]]:
    """The gain of P over S in each row, and of its encoder and its decoder alone; printed and returned."""
    pairs = [(f"GR²P{end}", f"GR²S{end}") for end in ("", f", {INDEXED}", f", {UNTRAINED}")]
    pairs += [("GR²E", "GR²S"), ("GR²P", "GR²E")]
    tested = []
    for one, other in pairs:
        both = [e for e in evaluations if e.name in (one, other)]
        if len(both) == 2:
            found = compare(both).differences
            tested += [(one, other, d.measure, d.mean if d.system == one else -d.mean, d.t) for d in found]
    cells = [[*names, f"{gain:+.4f}", f"{chance:.3f}"] for *names, gain, chance in tested]
    print(render(["of", "over", "measure", "gain", "p, uncorrected"], cells, "markdown"), "\n")
    return [dict(zip(("of", "over", "measure", "gain", "p"), row, strict=True)) for row in tested]


def main() -> None:
    """Sweep or report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("do", choices=("sweep", "report"))
    parser.add_argument("collections", nargs="+", help="folders, or pydocs")
    parser.add_argument("--start", required=True, help="the encoder that the backbone was made from")
    parser.add_argument("--backbone", default="gr2-mini", help="the pre-trained one (gr2-mini)")
    parser.add_argument("--apart", action="store_true", help="also train P's encoder with a new decoder")
    parser.add_argument("--out", type=Path, required=True, help="folder of trials")
    parser.add_argument(
        "--prior", type=int, choices=(0, 1), default=1, help="1: with a node prior, 0: without (1)"
    )
    parser.add_argument(
        "--lead",
        type=int,
        default=128,
        help="leading tokens that are encoded; 0: the whole document, in pieces (128)",
    )
    parser.add_argument("--steps", type=int, default=100, help="maximal training steps (100)")
    parser.add_argument("--words", type=int, default=6, help="words of a docid (6)")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds (3)")
    parser.add_argument("--workers", type=int, default=2, help="trials run at the same time (2)")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    if options.do == "sweep":
        sweep([trial for _, trial in trials(options)], options.out, workers=options.workers)
        return
    saved = {Path(path).name: report(options, path) for path in options.collections}
    if options.json:
        settings = {name: getattr(options, name) for name in ("steps", "words", "prior", "lead")}
        write_json(options.json, {**settings, "collections": saved})


if __name__ == "__main__":
    main()
