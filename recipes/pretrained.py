"""GR²P against GR²S: the same training from a pre-trained backbone and from the encoder it was made of.

    python recipes/pretrained.py sweep  --start MINILM --backbone gr2-mini --out FOLDER COLLECTION ...
    python recipes/pretrained.py report --start MINILM --backbone gr2-mini --out FOLDER COLLECTION ...

Both have the same steps and docids, and a node prior from their own encoder; the encoders alone are beside
them, since what P gains may be theirs. Without judgements too: `indexed` learns from the documents' own texts
alone, as many a step as else queries and texts, `before training` has not learned anything. With `--prior 0`
there is none, as in the paper, and the plan is that of recipes/schemes.py: a frozen encoder, larger batches.
With `--apart` there is GR²E too, P's encoder with a fresh decoder, to tell what P has of which.
With `--lead 0` trials are those of recipes/graded.py: in one folder, what one has done the other need not.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from graded import MEASURES, START, baselines, dense, groups
from graded import trials as graded_trials
from schemes import PLAIN

from gr2.backbone import FreshDecoder, identity, parts_of, tokenizer_of
from gr2.compare import compare
from gr2.experiment import Trial, gather, sweep
from gr2.formats import open_collection
from gr2.info import headline
from gr2.learn import Plan
from gr2.measures import Evaluation
from gr2.runs import Run
from gr2.store import atomic_folder, write_json
from gr2.tables import comparison_table, render

INDEXED = "indexed"
P_DENSE = "dense, pre-trained"
RATES = {"pydocs": 1e-5}
"""Learning rates other than usual, chosen on development queries (docs/log.md)."""
SYSTEM = "GR²S"
"""As recipes/graded.py calls it, whatever it starts from."""


def trials(options: argparse.Namespace) -> Iterator[tuple[str, Trial]]:
    """The name in the table, and the trial; seed by seed."""
    sides = {"S": options.start, "P": options.backbone}
    if options.apart:
        sides["E"] = encoder_of(options.backbone, options.out)
    found = [(letter, t) for letter, place in sides.items() for t in graded_trials(_for(options, place))]
    for letter, usual in sorted(found, key=lambda row: row[1].plan["seed"]):
        rate = {"learning_rate": RATES.get(usual.collection, usual.plan["learning_rate"])}
        alone = {**PLAIN, "frozen_steps": usual.plan["steps"], "seed": usual.plan["seed"]}
        trial = replace(usual, plan=alone)
        if options.prior:
            trial = replace(usual, plan={**usual.plan, **rate}, lead=options.lead)
        if trial.system == SYSTEM:
            yield f"GR²{letter}", trial
        if letter != "E" and trial.fold in (None, 0):  # what reads no judgement is the same for every fold
            once = replace(trial, fold=None)
            if trial.system == SYSTEM:
                plan = {**once.plan, "texts": once.plan["texts"] + once.plan.get("queries", Plan.queries)}
                yield f"GR²{letter}, {INDEXED}", replace(once, system=INDEXED, judged=False, plan=plan)
            elif not trial.plan["seed"]:
                yield f"GR²{letter}, {START}", once


def _for(options: argparse.Namespace, backbone: str) -> argparse.Namespace:
    more = {"backbone": backbone, "systems": [SYSTEM, START], "all_seeds": False}
    return argparse.Namespace(**{**vars(options), **more})


def encoder_of(backbone: str, out: Path) -> str:
    """A backbone's encoder as a checkpoint of its own, which gets a fresh decoder as any encoder does."""
    folder = out / f"encoder of {identity(backbone)}".replace(" ", "-")
    if not folder.exists():
        with atomic_folder(folder) as temporary:
            tokenizer_of(backbone).save_pretrained(temporary)
            parts_of(backbone, FreshDecoder()).encoder.save_pretrained(temporary)
    return str(folder)


def report(options: argparse.Namespace, path: str) -> dict[str, Any]:
    """Print a collection's table and return its figures."""
    collection = open_collection(path)
    source, lead = Path(path) / "source_docs.tsv", options.lead
    found = [(name, t) for name, t in trials(options) if t.collection == path]
    missing = {(name, t.plan["seed"]) for name, t in found if not (options.out / t.name).exists()}
    missing |= {(f"GR²{side}{name[4:]}", s) for name, s in missing if name != "GR²E" for side in "SP"}
    rows = [(run.name, 0, run) for run in baselines(collection, options.start, options.out, lead=lead)]
    rows += [(P_DENSE, 0, dense(collection, options.backbone, options.out, P_DENSE, lead=lead))]
    rows += [
        (name, t.plan["seed"], Run.read(options.out / t.name / "run.trec"))
        for name, t in found
        if (name, t.plan["seed"]) not in missing  # of S and P the same seeds
    ]
    evaluations = gather(collection, rows, MEASURES, exclude=source if source.is_file() else None)
    comparison = compare(evaluations)
    print(f"### {headline(collection)}\n\n{comparison_table(comparison, 'markdown')}\n")
    seeds = {name: len({s for n, s, _ in rows if n == name}) for name, _, _ in rows}
    print("seeds: " + ", ".join(f"{name} {count}" for name, count in seeds.items()), "\n")
    saved: dict[str, Any] = {"fingerprint": collection.fingerprint, "seeds": seeds}
    for group, qids in groups(collection).items():
        some = [evaluation.only(qids) for evaluation in evaluations]
        print(f"{group} queries ({len(qids)})\n")
        saved[group] = {"means": {e.name: e.means for e in some}, "gains": gains(some)}
    return saved


def gains(evaluations: Sequence[Evaluation]) -> list[dict[str, Any]]:
    """What P gains over S, of each kind, and its encoder and decoder apart; printed and returned."""
    pairs = [(f"GR²P{end}", f"GR²S{end}") for end in ("", f", {INDEXED}", f", {START}")]
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
    parser.add_argument("--start", required=True, help="the encoder that the backbone was made of")
    parser.add_argument("--backbone", default="gr2-mini", help="(gr2-mini)")
    parser.add_argument("--apart", action="store_true", help="train P's encoder with a fresh decoder too")
    parser.add_argument("--out", type=Path, required=True, help="where trials are kept")
    parser.add_argument("--prior", type=int, choices=(0, 1), default=1, help="node prior, or none (1)")
    parser.add_argument(
        "--lead", type=int, default=128, help="tokens of a document's vector; 0: all, in pieces (128)"
    )
    parser.add_argument("--steps", type=int, default=100, help="of each training at most (100)")
    parser.add_argument("--words", type=int, default=6, help="of a docid (6)")
    parser.add_argument("--seeds", type=int, default=3, help="(3)")
    parser.add_argument("--workers", type=int, default=2, help="trials side by side (2)")
    parser.add_argument("--json", type=Path, help="save the figures")
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
