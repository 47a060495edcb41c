"""The docids of every scheme: made from one generator that has learned to ask, and what they are worth.

    python recipes/fusion.py ask    --generator ASKER --out FOLDER COLLECTION ...
    python recipes/fusion.py slots  --generator ASKER --out FOLDER COLLECTION ... [--changes NAME ...]
    python recipes/fusion.py build  --generator ASKER --out FOLDER COLLECTION ...
    python recipes/fusion.py report --generator ASKER --out FOLDER COLLECTION ... [--docs docs]

ASKER comes from `gr2 generator train`. `ask` lets it ask about every document; fusion and `query` learn from
the questions by which BM25 finds their document first, and from training queries that few answer. `slots`
trains fusion once for each change of `CHANGES`, and writes docids of a sample while its decoder sees the
document and the latent vector, the document alone, and the latent vector alone. `build` compares radii on a
sample, writes fusion's docids at the radius that this suggests, and makes those of all other schemes; what is
generated is made once for every seed. `rarest` is no scheme of its own: fusion with the option
`rarest_first`. `report` prints the tables; figures of other collections stay in docids.json. Whatever is
there is not made again.
"""

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gr2.data.formats import open_collection
from gr2.docids.clashes import resolve_clashes
from gr2.docids.docids import Docids
from gr2.evaluate.describe import headline
from gr2.evaluate.tables import render
from gr2.model.backbone import tokeniser
from gr2.model.config import VectorConfig
from gr2.model.document_vectors import document_vectors
from gr2.schemes.config import FusionConfig, GeneratorConfig, SchemeConfig
from gr2.schemes.fusion.generator import DocidGenerator
from gr2.schemes.fusion.radius import AtRadius, as_dicts, as_table, compare_radii, suggested
from gr2.schemes.health import Health, health, side_by_side
from gr2.schemes.plots import draw_healths, draw_radii
from gr2.schemes.registry import SchemeContext, build, own_questions, trained_generator
from gr2.schemes.word_order import rarest_first, tokenise_ordered
from gr2.store import Workspace, read_json, write_json
from gr2.training.config import with_settings

GENERATED = ("fusion", "query")
CODED = ("kmeans", "rq", "codes-words")
SCHEMES = (*GENERATED, "title", "summary", "terms", *CODED, "rarest")
CODES = {"rq": 8}
"""Codes of a docid where it is not the default."""
LEAD = 128
"""Leading tokens of a document from which codes are made."""
RADII = (0.0, 1.0, 2.0, 3.0)
CHANGES: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "narrower": {"fusion.width": 64, "fusion.slots": 4},
    "wider": {"fusion.width": 256, "fusion.slots": 16},
}
"""Changes of the generator that are tried one at a time."""


def generation(options: argparse.Namespace, radius: float) -> GeneratorConfig:
    """How fusion and `query` are trained and written."""
    return GeneratorConfig(
        fusion=FusionConfig(),
        steps=options.steps,
        pairs=5000,
        document_tokens=options.tokens,
        radius=radius,
        beams=options.beams,
        round_trip=1.0,
        most_answers=3,
        own_questions=3,
    )


def folder_of(options: argparse.Namespace, path: str, scheme: str, seed: int = 0) -> Path:
    """Where the docids of a scheme are kept."""
    own = f".{seed}" if scheme in GENERATED else ""
    return Path(options.out / f"{Path(path).name}.{scheme}{own}")


def questions(options: argparse.Namespace, path: str) -> Mapping[str, Sequence[str]]:
    """What ASKER asks about each document and finds it by, kept in a file."""
    kept = options.out / f"{Path(path).name}.questions.json"
    if not kept.exists():
        begun = time.process_time()
        found = own_questions(context(options, path, "questions"))
        write_json(kept, found)
        spent = time.process_time() - begun
        print(f"{kept}: {sum(map(len, found.values())):,} questions, {spent:.0f} CPU-seconds", flush=True)
    return read_json(kept, dict[str, list[str]])


def context(
    options: argparse.Namespace,
    path: str,
    scheme: str,
    *,
    seed: int = 0,
    radius: float = 0.0,
    known: Mapping[str, Sequence[str]] | None = None,
    change: str = "none",
) -> SchemeContext:
    """What a scheme is made from; `known` are the questions that were asked already."""
    collection, vectors = open_collection(path), None
    if scheme in CODED:
        docnos = sorted(document.docno for document in collection.documents)
        lead = VectorConfig.leading(LEAD)
        vectors = document_vectors(collection, docnos, options.backbone, options.out, lead, progress=True)
    name = scheme if change == "none" else f"{scheme}, {change}"
    return SchemeContext(
        collection=collection,
        backbone=options.backbone,
        folder=Workspace(folder_of(options, path, name, seed)).making,
        config=SchemeConfig(
            scheme=scheme,
            code_length=CODES.get(scheme, 0),
            generator=options.generator,
            generation=with_settings(generation(options, radius), CHANGES[change]),
            seed=seed,
        ),
        resume=True,
        progress=True,
        known_vectors=vectors,
        known_questions=known,
    )


def slots(options: argparse.Namespace, path: str, change: str) -> dict[str, Any]:
    """What fusion with a change writes for a sample, by what its decoder sees, and at each radius; kept."""
    kept = slots_file(options, path, change)
    if not kept.exists():
        begun = time.process_time()
        how = context(options, path, "fusion", known=questions(options, path), change=change)
        generator = by_likelihood(trained_generator(how))
        trained = time.process_time() - begun
        views = {"both": (0.0, 2.0), "document alone": (0.0,), "slots alone": (0.0,)}
        rows = {
            name: as_dicts(
                compare_radii(
                    seeing(generator, name),
                    how.collection,
                    radii,
                    how.folder / name.replace(" ", "-"),
                    sample=options.sample,
                )
            )
            for name, radii in views.items()
        }
        loss = generator.dev_loss(generator.parted()[1])
        write_json(kept, {"cpu_seconds": trained, "loss": loss, "views": rows})
    return read_json(kept, dict[str, Any])


def slots_file(options: argparse.Namespace, path: str, change: str) -> Path:
    """Where the figures of `slots` are kept."""
    return Path(options.out / f"{Path(path).name}.slots.{change}.json")


def by_likelihood(generator: DocidGenerator) -> DocidGenerator:
    """The generator, its proposals in the order of likelihood alone."""
    generator.config = replace(generator.config, round_trip=0.0)
    return generator


def seeing(generator: DocidGenerator, view: str) -> DocidGenerator:
    """The generator, its decoder seeing both halves of its memory or one of them alone."""
    memory = type(generator.fusion).memory.__get__(generator.fusion)
    generator.fusion.memory = {  # type: ignore[method-assign]
        "both": memory,
        "document alone": lambda z, states, mask: memory(None, states, mask),
        "slots alone": lambda z, states, mask: memory(z, None, None),
    }[view]
    return generator


def slots_table(options: argparse.Namespace, path: str) -> str:
    """A row for each change: what is found by the docid, and how many are unique."""
    rows = []
    for change in options.changes:
        found = slots(options, path, change)
        each = {f"{view} {row['radius']:g}": row for view, rows in found["views"].items() for row in rows}
        cells = [f"{row['found']:.3f}, {row['unique']:.0%}" for row in each.values()]
        rows.append([change, f"{found['loss']:.1f}", *cells])
    return render(["change", "loss", *each], rows, "markdown")


def make(options: argparse.Namespace, path: str, scheme: str, seed: int) -> None:
    """Make the docids of a scheme, unless they are there, and keep what that costs."""
    folder = folder_of(options, path, scheme, seed)
    if folder.exists():
        return
    known, radius, cost, begun = None, 0.0, {}, time.process_time()
    if scheme in GENERATED:
        known = questions(options, path)
        regularised = scheme == "fusion"
        trained_generator(context(options, path, scheme, seed=seed, known=known), regularised=regularised)
        cost = {"training_cpu_seconds": round(time.process_time() - begun, 1)}
        radius = chosen_radius(options, path, seed) if regularised else 0.0
    begun = time.process_time()
    if scheme == "rarest":
        docids = turned(Docids.load(folder_of(options, path, "fusion", seed)), options.backbone)
    else:
        docids = build(context(options, path, scheme, seed=seed, radius=radius, known=known))
    cost |= {"cpu_seconds": round(time.process_time() - begun, 1)}
    replace(docids, about={**docids.about, **cost}).save(folder)
    print(f"{folder}: {dict(docids.clashes)}, {cost}", flush=True)


def turned(docids: Docids, backbone: str) -> Docids:
    """The same docids, written by the decoder with their rarest words first."""
    tokenise = tokenise_ordered(tokeniser(backbone), rarest_first(docids.texts))
    proposals = {docno: [(text, 0.0)] for docno, text in zip(docids.docnos, docids.texts, strict=True)}
    return resolve_clashes(proposals, tokenise, {**docids.about, "scheme": "rarest"})


def chosen_radius(options: argparse.Namespace, path: str, seed: int) -> float:
    """The radius that a comparison on a sample of the documents suggests; the comparison is kept."""
    kept = options.out / f"{Path(path).name}.radii.{seed}.json"
    if not kept.exists():
        how = context(options, path, "fusion", seed=seed, known=questions(options, path))
        generator = trained_generator(how)
        rows = compare_radii(generator, how.collection, RADII, how.folder, sample=options.sample)
        write_json(kept, as_dicts(rows))
    return suggested([AtRadius(**row) for row in json.loads(kept.read_text(encoding="utf-8"))])


def report(options: argparse.Namespace, path: str) -> dict[str, Any]:
    """Print a collection's tables and return its figures."""
    collection, name = open_collection(path), Path(path).name
    print(f"### {headline(collection)}\n")
    saved: dict[str, Any] = {"fingerprint": collection.fingerprint}
    healths: dict[str, Health] = {}
    for scheme in options.schemes:
        for seed in options.seeds if scheme in GENERATED else (0,):
            folder = folder_of(options, path, scheme, seed)
            if folder.exists():
                own = f"{scheme} {seed}" if scheme in GENERATED else scheme
                healths[own] = health(Docids.load(folder), collection)
    print(side_by_side(healths), "\n")
    print(costs(healths), "\n")
    saved["health"] = {scheme: each.as_dict() for scheme, each in healths.items()}
    for seed in options.seeds:
        kept = options.out / f"{name}.radii.{seed}.json"
        if kept.exists():
            rows = [AtRadius(**row) for row in json.loads(kept.read_text(encoding="utf-8"))]
            saved[f"radii {seed}"] = as_dicts(rows)
            print(f"seed {seed}, suggested: {suggested(rows):g}\n\n{as_table(rows)}\n")
            if options.docs and seed == 0:
                draw_radii(rows, options.docs / "plots" / f"radii-{name}.svg")
    if options.docs:
        draw_healths(healths, options.docs / "plots" / f"docids-{name}.svg")
    changes = [change for change in CHANGES if slots_file(options, path, change).exists()]
    if changes:
        options.changes = changes
        print(slots_table(options, path), "\n")
        saved["slots"] = {change: slots(options, path, change) for change in changes}
    return saved


def costs(healths: Mapping[str, Health]) -> str:
    """What making docids took: of a thousand documents, and of training."""
    each = [1000 * one.about["cpu_seconds"] / one.documents for one in healths.values()]
    training = [one.about.get("training_cpu_seconds", 0.0) for one in healths.values()]
    rows = [
        ["CPU-seconds per 1,000 documents", *(f"{seconds:.1f}" for seconds in each)],
        ["CPU-seconds of training", *(f"{seconds:.0f}" for seconds in training)],
    ]
    return render(["cost", *healths], rows, "markdown")


def main() -> None:
    """Ask, compare changes, build or report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("do", choices=("ask", "slots", "build", "report"))
    parser.add_argument("collections", nargs="+", help="folders")
    parser.add_argument("--generator", required=True, help="a checkpoint that has learned to ask")
    parser.add_argument(
        "--backbone", default="gr2-mini", help="checkpoint that reads the docids; encoder of codes (gr2-mini)"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of docids")
    parser.add_argument("--schemes", nargs="+", choices=SCHEMES, default=list(SCHEMES), help="(all)")
    parser.add_argument("--changes", nargs="+", choices=CHANGES, default=list(CHANGES), help="(all)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1], help="of what is generated (0 1)")
    parser.add_argument("--steps", type=int, default=100, help="training steps of fusion and query (100)")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of a document that are read (64)")
    parser.add_argument("--beams", type=int, default=5, help="proposals per document (5)")
    parser.add_argument("--sample", type=int, default=300, help="documents on which radii are compared (300)")
    parser.add_argument("--docs", type=Path, help="folder for plots and results/docids.json")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.do == "report":
        saved = {Path(path).name: report(options, path) for path in options.collections}
        if options.docs:
            figures = options.docs / "results" / "docids.json"
            others = read_json(figures, dict[str, Any]) if figures.exists() else {}
            write_json(figures, others | saved)
    for path in options.collections if options.do != "report" else ():
        if options.do == "ask":
            questions(options, path)
        elif options.do == "slots":
            print(f"{Path(path).name}\n\n{slots_table(options, path)}\n", flush=True)
        else:
            for seed in options.seeds:
                for scheme in options.schemes:
                    if seed == options.seeds[0] or scheme in GENERATED:
                        make(options, path, scheme, seed)


if __name__ == "__main__":
    main()
