"""GR² as in the paper, at a small fraction of its steps: fusion docids, vocabulary normaliser, no node prior.

    python recipes/paper_setting.py sweep  --backbone T5 --out FOLDER cranfield nfcorpus
    python recipes/paper_setting.py report --backbone T5 --out FOLDER ... [--json FILE]

The settings are those of the preset `paper`, except for what `SMALL` and `SMALL_DOCIDS` change so that a CPU
can do it. Collections are folders; of one with folds, fold 0 is measured. The cells come in the order of
`CELLS` or of `--cells`, and all of a collection come before the next collection. An interrupted sweep
continues when it is started again; `report` reads the finished cells, and names the others. If a folder has a
file `source_docs.tsv` (qid and docno), these pairs are excluded from rankings and judgements.
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from gr2.data.collection import Collection
from gr2.data.formats import open_collection
from gr2.data.runs import Run
from gr2.docids.docids import Docids
from gr2.evaluate.describe import headline
from gr2.evaluate.measures import Evaluation
from gr2.evaluate.significance import compare
from gr2.evaluate.tables import comparison_table, render
from gr2.experiments.executors import sweep
from gr2.experiments.plans import source_documents
from gr2.experiments.tables import differences_from, gather
from gr2.experiments.trial import Trial
from gr2.model.config import BACKBONE
from gr2.schemes.registry import SchemeContext, build
from gr2.store import write_json
from gr2.systems.baselines import BM25_SETTINGS, Baseline
from gr2.systems.config import preset
from gr2.training.config import TrainingConfig, as_json, with_settings

MEASURES = ("nDCG@5", "nDCG@20", "P@20", "ERR@20", "Hits@10")
FULL = "GR²S"
PAPER_STEPS = preset("paper").training.schedule.steps
SMALL: Mapping[str, Any] = {
    "max_tokens": 128,
    "batches.queries": 12,
    "batches.texts": 12,
    "optimiser.learning_rate": 1e-3,
    "schedule.checkpoint_minutes": 2.0,
}
"""What differs from the preset in training, besides the steps."""
SMALL_DOCIDS: Mapping[str, Any] = {
    "generation.document_tokens": 128,
    "generation.query_tokens": 16,
    "generation.batch": 12,
    "generation.beams": 5,
    "generation.optimiser.learning_rate": 1e-3,
}
"""What differs from the preset in the docid generator, besides the steps."""


@dataclass(frozen=True)
class Cell:
    """A row of the table: what it changes in the full system."""

    name: str
    scheme: str = "fusion"
    changes: Mapping[str, Any] = field(default_factory=dict)
    pretrained: bool = False
    """Start from the package's own backbone, which was pre-trained as GR²P, not from T5."""


PRETRAINED = {"optimiser.learning_rate": 1e-4}
"""What differs for a text encoder with a pre-trained decoder."""
P_FUSION, P_TITLES = "GR²P, fusion", "GR²P, titles"
CELLS = (
    Cell(FULL),
    Cell("MLE", changes={"variant": "MLE"}),
    Cell("−RF (query docids)", scheme="query"),
    Cell("no self-negatives", changes={"schedule.self_negative_steps": 0}),
    Cell("no augmentation", changes={f"augment.{n}": 0 for n in ("paragraphs", "sentences", "entities")}),
    Cell("CE", changes={"variant": "CE"}),
    Cell(P_FUSION, changes=PRETRAINED, pretrained=True),
    Cell(P_TITLES, "title", PRETRAINED, pretrained=True),
)


def settings(options: argparse.Namespace, cell: Cell) -> dict[str, Any]:
    """All training settings of a cell that differ from the defaults, by their paths."""
    steps = {
        "schedule.steps": options.steps,
        "schedule.self_negative_steps": round(options.steps * 0.1),
    }
    config = with_settings(preset("paper").training, {**SMALL, **steps, **cell.changes})
    return dict(_differences(as_json(config), as_json(TrainingConfig())))


def _differences(
    one: Mapping[str, Any], two: Mapping[str, Any], start: str = ""
) -> Iterator[tuple[str, Any]]:
    for name, value in one.items():
        if isinstance(value, dict):
            yield from _differences(value, two[name], f"{start}{name}.")
        elif value != two[name]:
            yield f"{start}{name}", value


def docids_folder(options: argparse.Namespace, path: str, cell: Cell) -> Path:
    """Where the docids of a cell are kept: the same texts are other tokens to another backbone."""
    asker = f".{Path(options.generator).name}" if options.generator else ""
    backbone = f".{BACKBONE}" if cell.pretrained else ""
    name = f"{Path(path).name}.{cell.scheme}.{options.generator_steps}{asker}{backbone}"
    return Path(options.out / name)


def make_docids(options: argparse.Namespace, path: str, cell: Cell) -> None:
    """Build the docids of a cell, unless they are there; what a generator wrote serves every backbone."""
    folder = docids_folder(options, path, cell)
    if folder.exists():
        return
    steps = {
        "scheme": cell.scheme,
        "generation.steps": options.generator_steps,
        "generator": options.generator or options.backbone,
    }
    config = with_settings(preset("paper").docids, {**SMALL_DOCIDS, **steps})
    written = docids_folder(options, path, replace(cell, pretrained=False))
    context = SchemeContext(
        collection=open_collection(path),
        backbone=BACKBONE if cell.pretrained else options.backbone,
        folder=written.with_name(f"{written.name}.making"),
        config=config,
        resume=True,
        progress=True,
    )
    build(context).save(folder)


def trial(options: argparse.Namespace, path: str, cell: Cell) -> Trial:
    """The trial of a cell on a collection, or on fold 0 of it."""
    return Trial(
        system=cell.name,
        collection=path,
        backbone=BACKBONE if cell.pretrained else options.backbone,
        plan=settings(options, cell),
        docids=str(docids_folder(options, path, cell)),
        fold=0 if open_collection(path).folds else None,
    )


def run_cells(options: argparse.Namespace) -> None:
    """Run what is missing, in order."""
    for path in options.collections:
        for name in options.cells:
            cell = next(cell for cell in CELLS if cell.name == name)
            make_docids(options, path, cell)
            sweep([trial(options, path, cell)], options.out, workers=1)


def report(options: argparse.Namespace, path: str) -> dict[str, Any]:
    """Print a collection's table and return its figures."""
    whole = open_collection(path)
    collection = whole.fold(0) if whole.folds else whole
    trials = {cell.name: options.out / trial(options, path, cell).name for cell in CELLS}
    done = {name: folder for name, folder in trials.items() if folder.exists()}
    runs = [(run.name, 0, run) for run in controls(collection)]
    runs += [(name, 0, Run.read(folder / "run.trec")) for name, folder in done.items()]
    evaluations = gather(collection, runs, MEASURES, exclude=source_documents(path))
    print(f"### {headline(collection)}\n\n{evaluations[0].convention}\n")
    print(comparison_table(compare(evaluations), "markdown"), "\n")
    ours = [each for each in evaluations if each.name in done]
    pretrained = [each for each in ours if each.name in (P_FUSION, P_TITLES)]
    tested = {FULL: _differences_shown(FULL, ours), P_TITLES: _differences_shown(P_TITLES, pretrained)}
    missing = [name for name in trials if name not in done]
    print(f"not run: {', '.join(missing) or 'none'}\n")
    return {
        "fingerprint": whole.fingerprint,
        "test queries": len(collection.split("test")),
        "means": {each.name: each.means for each in evaluations},
        **{f"against {name}": rows for name, rows in tested.items()},
        "docids": {
            folder.name.partition(".")[2]: Docids.load(folder).clashes
            for folder in sorted({docids_folder(options, path, cell) for cell in CELLS})
            if folder.exists()
        },
        "cpu minutes": {name: minutes(folder) for name, folder in done.items()},
        "not run": missing,
    }


def _differences_shown(name: str, systems: list[Evaluation]) -> list[dict[str, Any]]:
    """What the others gain over the system of this name, printed; nothing if it has not run."""
    if name not in {each.name for each in systems} or len(systems) < 2:
        return []
    tested = differences_from(name, systems, ("nDCG@5", "nDCG@20"))
    cells = [[d.system, d.measure, f"{d.gain:+.4f}", f"{d.p:.3f}", f"{d.holm:.3f}"] for d in tested]
    print(render([f"against {name}", "measure", "gain", "p", "p (Holm)"], cells, "markdown"), "\n")
    return [asdict(difference) for difference in tested]


def minutes(folder: Path) -> float | None:
    """The CPU-minutes of a training; None if it was interrupted."""
    spent = json.loads((folder / "trial.json").read_text(encoding="utf-8"))["cost"]["cpu_seconds"]
    return None if spent is None else round(spent / 60, 1)


def controls(collection: Collection) -> list[Run]:
    """BM25, and what reads no document."""
    queries = {qid: collection.queries[qid] for qid in collection.split("test")}
    rows = [Baseline("BM25 k1=1.5 b=0.75", "bm25", BM25_SETTINGS[1])]
    rows += [Baseline(name, name) for name in ("popularity", "neighbours")]
    return [row.run(collection, queries) for row in rows]


def main() -> None:
    """Sweep or report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("do", choices=("sweep", "report"))
    parser.add_argument("collections", nargs="+", help="folders")
    parser.add_argument("--backbone", default=BACKBONE, help="folder or hub name of a T5 checkpoint")
    parser.add_argument("--out", type=Path, required=True, help="folder of docids and trials")
    parser.add_argument("--steps", type=int, default=80, help="steps of the main stage (80)")
    parser.add_argument("--generator-steps", type=int, default=80, help="steps of the generator (80)")
    parser.add_argument(
        "--generator", default="", help="checkpoint that learns docids, from `gr2 generator train` (the T5)"
    )
    names = [cell.name for cell in CELLS]
    parser.add_argument(
        "--cells", nargs="+", choices=names, default=names, help="cells to run, in order (all)"
    )
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.do == "sweep":
        run_cells(options)
        return
    saved = {Path(path).name: report(options, path) for path in options.collections}
    if options.json:
        about = {
            "backbone": Path(options.backbone).name,
            "steps": options.steps,
            "share of the paper's steps": options.steps / PAPER_STEPS,
            "generator": Path(options.generator or options.backbone).name,
            "generator steps": options.generator_steps,
            "training": dict(SMALL),
            "docids": dict(SMALL_DOCIDS),
        }
        write_json(options.json, {"settings": about, "collections": saved})


if __name__ == "__main__":
    main()
