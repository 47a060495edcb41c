"""What GR² retrieves with each docid scheme, without look-ahead and with it.

    python recipes/schemes.py sweep  --backbone B --docids FOLDER --out FOLDER COLLECTION ...
    python recipes/schemes.py report --backbone B --docids FOLDER --out FOLDER COLLECTION ... [--json FILE]

The docids come from recipes/fusion.py. Every scheme has the same network, steps and data. Without look-ahead
a fresh decoder on a frozen encoder learns L_total and writes docids as in the paper, by beam search with the
softmax over the vocabulary and no vectors. With look-ahead the decoder is a residual on φ. GR²S starts
from the backbone, GR²P from gr2-mini, which was pre-trained. The schemes of `REPEATED` have `--seeds` seeds
of the retrieval model, the others have one; generated docids have two seeds, which take turns. `report`
compares finished trials, with look-ahead alone and the controls beside them. Collections with folds are
cross-validated, and the documents of a file `source_docs.tsv` (qid and docno) are left out of rankings.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gr2.data.collection import Collection
from gr2.data.formats import open_collection
from gr2.data.formats.trec import read_pairs
from gr2.data.runs import Ranking, Run
from gr2.docids.codes import CODES_WORDS
from gr2.evaluate.describe import headline
from gr2.evaluate.measures import without_pairs
from gr2.evaluate.significance import compare
from gr2.evaluate.tables import comparison_table, render
from gr2.experiments.executors import sweep
from gr2.experiments.look_ahead_runs import KnownQueries, look_ahead_run, with_memory
from gr2.experiments.plans import PLAIN, source_documents
from gr2.experiments.tables import baselines_over_folds, differences_from, gather, query_groups, trial_figures
from gr2.experiments.trial import Trial
from gr2.model.config import BACKBONE, LookAheadConfig, VectorConfig
from gr2.model.document_vectors import vectors_by_kind
from gr2.store import read_json, write_json
from gr2.training.fit_look_ahead import judged_queries, learn_look_ahead
from gr2.training.plain_views import PlainViews, Weights

MEASURES = ("nDCG@20", "nDCG@5", "ERR@20", "Hits@1")
GENERATED = ("fusion", "query")
REPEATED = (*GENERATED, "rq", CODES_WORDS)
SCHEMES = (*REPEATED, "title", "summary", "terms", "kmeans", "rarest")
OURS, AHEAD = "GR²S, fusion", "look-ahead"
LEAD = 128
"""Leading tokens of a document from which the vectors of look-ahead are made."""
PAPER = {**PLAIN, "normaliser": "vocabulary"}
"""The paper's decoding; `frozen_steps` are added."""
VIEWS = {
    "recipe": "gr2",
    "steps": 0,
    "look_ahead.enabled": True,
    "look_ahead.documents.pieces": 0,
    "look_ahead.documents.max_tokens": LEAD,
}
RESIDUAL = {**VIEWS, "look_ahead.weights.residual": 2.0, "learning_rate": 1e-3, "pretrained_rate": 0.1}
"""A decoder that adds to look-ahead."""
SETTINGS = ("paper", "look-ahead")


def trials(options: argparse.Namespace, path: str) -> Iterator[Trial]:
    """All trials of a collection, the most informative ones first."""
    for seed in range(options.seeds):
        for setting in options.settings:
            for scheme in options.schemes:
                if seed == 0 or scheme in REPEATED:
                    yield from over_folds(options, path, scheme, setting, seed, f"GR²S, {scheme}")
            for scheme in (one for one in options.schemes if one in GENERATED and seed == 0):
                yield from over_folds(options, path, scheme, setting, seed, f"GR²P, {scheme}")
        if seed == 0 and AHEAD in options.settings and CODES_WORDS in options.schemes:
            yield from over_folds(options, path, CODES_WORDS, "no decoder", seed, CODES_WORDS)


def over_folds(
    options: argparse.Namespace, path: str, scheme: str, setting: str, seed: int, name: str
) -> Iterator[Trial]:
    """The trials of a system: one, or one for each fold."""
    plan: Mapping[str, Any] = {
        "paper": {**PAPER, "frozen_steps": options.steps},
        "look-ahead": {**RESIDUAL, "frozen_steps": options.residual_steps},
        "no decoder": VIEWS,
    }[setting]
    own = f".{seed % 2}" if scheme in GENERATED else ""
    for fold in range(len(open_collection(path).folds)) or (None,):
        yield Trial(
            system=name if setting == "paper" else f"{name} + {AHEAD}",
            collection=path,
            backbone=BACKBONE if name.startswith("GR²P") else options.backbone,
            docids=str(options.docids / f"{Path(path).name}.{scheme}{own}"),
            plan={**plan, "seed": seed},
            fold=fold,
        )


def controls(options: argparse.Namespace, collection: Collection, path: str) -> list[Run]:
    """BM25 and the controls, what look-ahead does without a decoder, and the hybrid with memory; kept."""
    folder = options.out / f"{Path(path).name}.controls"
    if not folder.exists():
        runs = [*baselines_over_folds(collection), *without_decoder(options, collection, path)]
        folder.mkdir()
        for run in runs:
            run.write(folder / f"{run.name}.trec")
    return [replace(Run.read(file), name=file.stem) for file in sorted(folder.glob("*.trec"))]


def without_decoder(options: argparse.Namespace, collection: Collection, path: str) -> list[Run]:
    """The runs of dense search, the hybrid, the hybrid with memory, and look-ahead, over the folds."""
    how, documents = VectorConfig.leading(LEAD), sorted(collection.documents, key=lambda d: d.docno)
    docnos = [document.docno for document in documents]
    vectors = vectors_by_kind(collection, docnos, options.backbone, options.docids, how)
    views = PlainViews(documents, vectors, LookAheadConfig())
    encoder = KnownQueries(collection, options.backbone, options.docids, how)
    found: dict[str, dict[str, Ranking]] = {}
    for fold in range(len(collection.folds)) or (None,):
        part = collection if fold is None else collection.fold(fold)
        hidden = read_pairs(source_documents(path))
        part = replace(part, qrels={s: without_pairs(qrels, hidden) for s, qrels in part.qrels.items()})
        queries = {qid: part.queries[qid] for qid in part.split("test")}
        splits = judged_queries(part, encoder)
        each = {
            "dense": views.at(Weights(next(iter(vectors)), 0.0)),
            "hybrid": views.at(views.usual),
            "hybrid + memory": with_memory(views, splits)[0],
            AHEAD: learn_look_ahead(views, splits, variant="gr2")[0],
        }
        for name, system in each.items():
            found.setdefault(name, {}).update(look_ahead_run(system, queries, encoder, name).rankings)
    return [Run(rankings, name) for name, rankings in found.items()]


def finished(options: argparse.Namespace, path: str) -> list[Trial]:
    """The finished trials; a seed of a system counts when all of its folds are done."""
    every = list(trials(options, path))
    missing = {(t.system, t.plan["seed"]) for t in every if not (options.out / t.name).exists()}
    left = sorted({f"{system} (seed {seed})" for system, seed in missing})
    print(f"not measured: {', '.join(left) or 'nothing'}\n")
    return [t for t in every if (t.system, t.plan["seed"]) not in missing]


def report(options: argparse.Namespace, path: str) -> dict[str, Any]:
    """Print a collection's tables and return its figures."""
    collection = open_collection(path)
    print(f"### {headline(collection)}\n")
    done = finished(options, path)
    rows = [(run.name, 0, run) for run in controls(options, collection, path)]
    rows += [(t.system, t.plan["seed"], Run.read(options.out / t.name / "run.trec")) for t in done]
    evaluations = gather(collection, rows, MEASURES, exclude=source_documents(path))
    settings = {"steps": options.steps, "residual steps": options.residual_steps, "lead": LEAD}
    saved: dict[str, Any] = {"fingerprint": collection.fingerprint, "settings": settings}
    saved["trials"] = trial_figures([(t, options.out / t.name) for t in done])
    saved["seeds"] = {t.system: sorted({o.plan["seed"] for o in done if o.system == t.system}) for t in done}
    for group, qids in query_groups(collection).items():
        some = [one.only(qids) for one in evaluations]
        print(f"{group} queries ({len(qids)})\n\n{comparison_table(compare(some), 'markdown')}\n")
        saved[group] = {"queries": len(qids), "means": {one.name: one.means for one in some}}
        plain = [one for one in some if not one.name.endswith(AHEAD) or one.name == AHEAD]
        ahead = [one for one in some if one.name.endswith(AHEAD)]
        for to, family in {OURS: plain, f"{OURS} + {AHEAD}": ahead, AHEAD: ahead}.items():
            tested = differences_from(to, family, MEASURES[:1])
            saved[group][f"against {to}"] = [asdict(d) for d in tested]
            cells = [[d.system, f"{d.gain:+.4f}", f"{d.p:.3f}", f"{d.holm:.3f}"] for d in tested]
            print(render([f"against {to}", MEASURES[0], "p", "p (Holm)"], cells, "markdown"), "\n")
    return saved


def main(arguments: Sequence[str] | None = None) -> None:
    """Sweep or report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("do", choices=("sweep", "report"))
    parser.add_argument("collections", nargs="+", help="folders")
    parser.add_argument("--backbone", required=True, help="a text encoder; that of GR²S and look-ahead")
    parser.add_argument("--docids", type=Path, required=True, help="folder that recipes/fusion.py wrote")
    parser.add_argument("--out", type=Path, required=True, help="folder of trials")
    parser.add_argument("--schemes", nargs="+", choices=SCHEMES, default=list(SCHEMES), help="(all)")
    parser.add_argument(
        "--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS), help="decoding (both)"
    )
    parser.add_argument("--steps", type=int, default=200, help="training steps without look-ahead (200)")
    parser.add_argument("--residual-steps", type=int, default=60, help="training steps of a residual (60)")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds (3)")
    parser.add_argument("--workers", type=int, default=2, help="trials run at the same time (2)")
    parser.add_argument("--json", type=Path, help="save the figures; those of other collections stay there")
    options = parser.parse_args(arguments)
    if options.do == "sweep":
        wanted = [trial for path in options.collections for trial in trials(options, path)]
        sweep(sorted(wanted, key=lambda trial: trial.plan["seed"]), options.out, workers=options.workers)
        return
    saved = {Path(path).name: report(options, path) for path in options.collections}
    if options.json:
        others = read_json(options.json, dict[str, Any]) if options.json.exists() else {}
        write_json(options.json, others | saved)


if __name__ == "__main__":
    main()
