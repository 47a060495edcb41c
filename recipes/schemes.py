"""Docid schemes compared: their health, the effect of |r|, and what the same model achieves with each.

    python recipes/schemes.py build   --backbone B --generator G --out FOLDER COLLECTION ...
    python recipes/schemes.py sweep   --backbone B --generator G --out FOLDER COLLECTION ...
    python recipes/schemes.py slots   --backbone B --generator G --out FOLDER COLLECTION ...
    python recipes/schemes.py report  --backbone B --generator G --out FOLDER COLLECTION ... [--docs docs]

`build` makes the docids of every scheme; the models that generate them are trained for `--generator-steps`.
It also compares radii, and fusion generates at the one that this suggests. `rarest` is no scheme of its own:
it has fusion's docids with the option `rarest_first`, and shows what the order of words is worth.
`slots` lets fusion's decoder see the document alone, then the latent vector alone, and so shows which of them
its relevance comes from (|r| = 0, on the sample on which radii are compared; there it sees both).
`sweep` trains the same retrieval model with the same steps on each scheme, for every seed; the docids of a
scheme are made once. It learns docids from their tokens alone. With `--node-prior`, the toolkit's default,
each branch of the trie starts from the vectors of the documents below it, and docids matter less.
`report` prints the tables and trains nothing. Interrupted work continues; other settings need another folder.
"""

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gr2.data.collection import Collection
from gr2.data.formats import open_collection
from gr2.data.runs import Run
from gr2.docids.clashes import resolve_clashes
from gr2.docids.docids import Docids
from gr2.evaluate.describe import headline
from gr2.evaluate.significance import compare
from gr2.evaluate.tables import comparison_table, render
from gr2.experiments.executors import sweep
from gr2.experiments.plans import PLAIN, PLAN
from gr2.experiments.tables import all_baselines, differences_from, gather, trial_figures
from gr2.experiments.trial import Trial
from gr2.model.backbone import tokeniser
from gr2.model.document_vectors import document_vectors
from gr2.schemes.config import GeneratorConfig, SchemeConfig
from gr2.schemes.fusion.radius import AtRadius, as_dicts, as_table, compare_radii, suggested
from gr2.schemes.health import Health, health, side_by_side
from gr2.schemes.plots import draw_healths, draw_radii
from gr2.schemes.registry import SchemeContext, build, trained_generator
from gr2.schemes.word_order import rarest_first, tokenise_ordered
from gr2.store import Workspace, write_json

SCHEMES = ("fusion", "query", "title", "number", "kmeans", "pq", "rq", "codes-words", "rarest")
MEASURES = ("nDCG@20", "ERR@20", "Hits@1")
RADII = (0.0, 0.5, 1.0, 2.0, 3.0, 4.0)


def context(options: argparse.Namespace, path: str, scheme: str, radius: float = 0.0) -> SchemeContext:
    """What a scheme is made from."""
    collection = open_collection(path)
    folder = options.out / f"{Path(path).name}.{scheme}"
    docnos = sorted(document.docno for document in collection.documents)
    vectors = None
    if scheme in ("kmeans", "pq", "rq", "codes-words"):
        vectors = document_vectors(collection, docnos, options.backbone, options.out)
    return SchemeContext(
        collection=collection,
        backbone=options.backbone,
        folder=Workspace(folder).making,
        config=SchemeConfig(
            scheme=scheme,
            words=6,
            code_length=options.code_length,
            generator=options.generator,
            generation=GeneratorConfig(
                steps=options.generator_steps,
                pairs=options.pairs,
                document_tokens=options.tokens,
                radius=radius,
                beams=options.beams,
            ),
        ),
        resume=True,
        progress=True,
        known_vectors=vectors,
    )


def make(options: argparse.Namespace, path: str) -> None:
    """Make the docids of every scheme that are missing."""
    for scheme in options.schemes:
        folder = options.out / f"{Path(path).name}.{scheme}"
        if not folder.exists():
            made(options, path, scheme).save(folder)
        print(f"{folder}: {dict(Docids.load(folder).clashes)}")


def made(options: argparse.Namespace, path: str, scheme: str) -> Docids:
    """The docids of a scheme; those of fusion at the radius that the comparison suggests."""
    if scheme == "rarest":
        return turned(Docids.load(options.out / f"{Path(path).name}.fusion"), options.backbone)
    radius = radii(options, path) if scheme == "fusion" else 0.0
    return build(context(options, path, scheme, radius))


def turned(docids: Docids, backbone: str) -> Docids:
    """The same docids, written by the decoder with their rarest words first."""
    tokenise = tokenise_ordered(tokeniser(backbone), rarest_first(docids.texts))
    proposals = {docno: [(text, 0.0)] for docno, text in zip(docids.docnos, docids.texts, strict=True)}
    return resolve_clashes(proposals, tokenise, {**docids.about, "scheme": "rarest"})


def radii(options: argparse.Namespace, path: str) -> float:
    """Compare the radii on a sample of the documents, once; returns the suggested one."""
    kept = options.out / f"{Path(path).name}.radii.json"
    if not kept.exists():
        how = context(options, path, "fusion")
        generator = trained_generator(how)
        rows = compare_radii(
            generator, how.collection, RADII, how.folder, sample=options.sample, progress=True
        )
        write_json(kept, as_dicts(rows))
        print(as_table(rows))
    return suggested([AtRadius(**row) for row in json.loads(kept.read_text(encoding="utf-8"))])


def slots(options: argparse.Namespace, path: str) -> None:
    """Generate docids for the sample while fusion's decoder sees one half of its memory; kept."""
    kept = options.out / f"{Path(path).name}.slots.json"
    if not kept.exists():
        how = context(options, path, "fusion")
        generator = trained_generator(how)
        both = generator.fusion.memory
        views = {
            "document alone": lambda z, states, mask: both(None, states, mask),
            "slots alone": lambda z, states, mask: both(z, None, None),
        }
        found: dict[str, Any] = {}
        for name, view in views.items():
            generator.fusion.memory = view  # type: ignore[method-assign]
            folder = how.folder / name.replace(" ", "-")
            rows = compare_radii(
                generator, how.collection, (0.0,), folder, sample=options.sample, progress=True
            )
            found[name] = as_dicts(rows)[0]
        write_json(kept, found)
    known = json.loads(kept.read_text(encoding="utf-8"))
    for view, row in known.items():
        figures = f"MRR {row['found']:.3f} ± {row['error']:.3f}, unique {row['unique']:.1%}"
        print(f"{Path(path).name}, {view}: {figures}")


def trials(options: argparse.Namespace, path: str, *, prior: bool) -> Iterator[Trial]:
    """Every scheme, seed by seed; on the dev split if there is one."""
    split = "dev" if "dev" in open_collection(path).qrels else "test"
    with_prior = {**PLAN, "recipe": "gr2", "prior": 1.0, "steps": options.steps}
    plan = with_prior if prior else {**PLAIN, "frozen_steps": options.steps}
    for seed in range(options.seeds):
        for scheme in options.schemes:
            yield Trial(
                system=scheme,
                collection=path,
                backbone=options.backbone,
                docids=str(options.out / f"{Path(path).name}.{scheme}"),
                plan={**plan, "seed": seed},
                split=split,
            )


def report(options: argparse.Namespace, path: str) -> dict[str, Any]:
    """Print a collection's tables and return its figures."""
    collection = open_collection(path)
    name = Path(path).name
    print(f"### {headline(collection)}\n")
    folders = {scheme: options.out / f"{name}.{scheme}" for scheme in options.schemes}
    healths = {s: health(Docids.load(f), collection) for s, f in folders.items() if f.exists()}
    print(side_by_side(healths), "\n")
    saved: dict[str, Any] = {"health": {scheme: each.as_dict() for scheme, each in healths.items()}}
    compared = options.out / f"{name}.radii.json"
    if compared.exists():
        saved["radii"] = json.loads(compared.read_text(encoding="utf-8"))
        _radii(options, name, saved["radii"])
        if "fusion" in healths:
            print(f"generated at |r| = {Docids.load(folders['fusion']).about['radius']:g}\n")
    if (options.out / f"{name}.slots.json").exists():
        slots(options, path)
        saved["slots"] = json.loads((options.out / f"{name}.slots.json").read_text(encoding="utf-8"))
    if options.docs:
        _draw(options.docs / "plots", name, healths)
    for name, prior in {"by tokens alone": False, "with a node prior": True}.items():
        if done := _done(options, trials(options, path, prior=prior)):
            print(f"#### {name}\n")
            saved[name] = _retrieval(options, collection, done)
    return saved


def _done(options: argparse.Namespace, wanted: Iterable[Trial]) -> list[Trial]:
    """The finished trials: of every scheme that was begun, the seeds that all of them have."""
    every = list(wanted)
    begun = {t.system for t in every if (options.out / t.name).exists()}
    every = [t for t in every if t.system in begun]
    missing = {t.plan["seed"] for t in every if not (options.out / t.name).exists()}
    return [t for t in every if t.plan["seed"] not in missing]


def _radii(options: argparse.Namespace, name: str, rows: list[dict[str, Any]]) -> None:
    known = [AtRadius(**row) for row in rows]
    print(as_table(known), "\n")
    if options.docs:
        draw_radii(known, options.docs / "plots" / f"radii-{name}.svg")


def _draw(folder: Path, name: str, healths: Mapping[str, Health]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    draw_healths(healths, folder / f"docids-{name}.svg")


def _retrieval(options: argparse.Namespace, collection: Collection, done: list[Trial]) -> dict[str, Any]:
    split = done[0].split
    rows = [(run.name, 0, run) for run in all_baselines(collection, options.backbone, options.out, split)]
    rows += [(t.system, t.plan["seed"], Run.read(options.out / t.name / "run.trec")) for t in done]
    evaluations = gather(collection, rows, MEASURES, split=split)
    print(f"{split} queries\n\n{comparison_table(compare(evaluations), 'markdown')}\n")
    tested = differences_from("fusion", [e for e in evaluations if e.name in options.schemes], MEASURES)
    cells = [[d.system, d.measure, f"{d.gain:+.4f}", f"{d.p:.3f}", f"{d.holm:.3f}"] for d in tested]
    if cells:
        print(render(["against fusion", "measure", "gain", "p", "p (Holm)"], cells, "markdown"), "\n")
    return {
        "split": split,
        "seeds": sorted({t.plan["seed"] for t in done}),
        "plan": {name: value for name, value in done[0].plan.items() if name != "seed"},
        "means": {e.name: e.means for e in evaluations},
        "against fusion": {
            f"{d.system} {d.measure}": {"mean": d.gain, "p": d.p, "holm": d.holm} for d in tested
        },
        "trials": trial_figures([(t, options.out / t.name) for t in done]),
    }


def main() -> None:
    """Build, sweep, compare slots or report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("do", choices=("build", "slots", "sweep", "report"))
    parser.add_argument("collections", nargs="+", help="folders")
    parser.add_argument("--backbone", required=True, help="checkpoint of the retrieval model")
    parser.add_argument("--generator", required=True, help="checkpoint that learns to generate docids")
    parser.add_argument("--out", type=Path, required=True, help="folder of docids and trials")
    parser.add_argument("--schemes", nargs="+", choices=SCHEMES, default=list(SCHEMES), help="(all)")
    parser.add_argument("--generator-steps", type=int, default=200, help="training steps of it (200)")
    parser.add_argument(
        "--pairs", type=int, default=5000, help="maximal number of pairs it learns from (5,000)"
    )
    parser.add_argument("--tokens", type=int, default=64, help="tokens of a document that it reads (64)")
    parser.add_argument("--beams", type=int, default=5, help="proposals per document (5)")
    parser.add_argument(
        "--code-length",
        type=int,
        default=8,
        help="codes of a pq, rq or codes-words docid; 0: 24 or 32, slower (8)",
    )
    parser.add_argument("--sample", type=int, default=600, help="documents on which radii are compared (600)")
    parser.add_argument("--steps", type=int, default=200, help="training steps of each retrieval model (200)")
    parser.add_argument("--node-prior", action="store_true", help="sweep with a node prior (without)")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds (3)")
    parser.add_argument("--workers", type=int, default=2, help="trials run at the same time (2)")
    parser.add_argument("--docs", type=Path, help="folder for plots and results/docids.json")
    options = parser.parse_args()
    if options.do == "build":
        for path in options.collections:
            make(options, path)
    elif options.do == "slots":
        for path in options.collections:
            slots(options, path)
    elif options.do == "sweep":
        wanted = [t for path in options.collections for t in trials(options, path, prior=options.node_prior)]
        sweep(sorted(wanted, key=lambda t: t.plan["seed"]), options.out, workers=options.workers)
    else:
        saved = {Path(path).name: report(options, path) for path in options.collections}
        if options.docs:
            write_json(options.docs / "results" / "docids.json", saved)


if __name__ == "__main__":
    main()
