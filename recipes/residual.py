"""Look-ahead with and without the decoder that adds to it, on test queries.

    python recipes/residual.py --out FOLDER nfcorpus ... [--steps 100] [--seeds 0] [--json FILE]

The model is what `gr2 index --preset residual` builds; without the decoder, the same look-ahead ranks alone.
Documents are read as leading texts of 128 tokens unless told otherwise. Vectors and models are kept in
FOLDER; an interrupted run continues.
"""

import argparse
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gr2.data.collection import Collection
from gr2.data.formats import open_collection
from gr2.data.runs import Run
from gr2.evaluate.describe import headline
from gr2.evaluate.tables import render
from gr2.experiments.plans import source_documents
from gr2.experiments.tables import differences_from, gather
from gr2.model.config import VectorConfig
from gr2.model.gr2 import GR2
from gr2.store import write_json
from gr2.systems.config import preset
from gr2.systems.generative import train
from gr2.training.config import with_settings

MEASURES, DEPTH, ON, OFF = ("nDCG@5", "nDCG@20"), 20, "with the decoder", "look-ahead alone"


def model_of(collection: Collection, options: argparse.Namespace, seed: int) -> GR2:
    """The model, trained or read."""
    out = options.out / f"{collection.name}-residual-{options.steps}-{seed}"
    if out.exists():
        return GR2.from_pretrained(out)
    config = preset("residual")
    settings = {"schedule.frozen_steps": options.steps, "seed": seed}
    settings |= {"look_ahead.documents": VectorConfig.leading(options.lead)}
    config = replace(config, training=with_settings(config.training, settings))
    return train(collection, out, config, resume=True, progress=True)


def measured(options: argparse.Namespace, path: str) -> dict[str, Any]:
    """The figures of a collection."""
    collection = open_collection(path)
    queries = {qid: collection.queries[qid] for qid in collection.split("test")}
    runs: list[tuple[str, int, Run]] = []
    for seed in options.seeds:
        model = model_of(collection, options, seed)
        assert model.look_ahead is not None
        alone = model.look_ahead.with_config(replace(model.look_ahead.config, residual=0.0))
        for name, one in ((ON, model), (OFF, model.with_look_ahead(alone))):
            runs.append((name, seed, one.search_many(queries, DEPTH, name=name)))
    evaluations = gather(collection, runs, MEASURES, exclude=source_documents(path))
    gains = differences_from(ON, evaluations, MEASURES)
    print(f"### {headline(collection)}\n")
    cells = [[one.name, *(f"{one.means[m]:.4f}" for m in MEASURES)] for one in evaluations]
    print(render(["system", *MEASURES], cells, "markdown"))
    print(
        "; ".join(f"{d.measure}: {-d.gain:+.4f} over it alone (p {d.p:.3f})" for d in gains), "\n", flush=True
    )
    means = {one.name: one.means for one in evaluations}
    return {"fingerprint": collection.fingerprint, "means": means, "over": [asdict(d) for d in gains]}


def main() -> None:
    """Measure each collection, print its table, and save the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("collections", nargs="+", help="folders with a split train, or pydocs")
    parser.add_argument("--out", type=Path, required=True, help="keeps vectors and models")
    parser.add_argument("--lead", type=int, default=128, help="leading tokens of documents; 0: pieces (128)")
    parser.add_argument("--steps", type=int, default=100, help="steps of the decoder (100)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="(0)")
    parser.add_argument("--json", type=Path, help="save the figures")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    saved = {}
    for path in options.collections:
        saved[Path(path).name] = measured(options, path)
        if options.json:
            about = {"lead": options.lead, "steps": options.steps, "seeds": options.seeds}
            write_json(options.json, {"settings": about, "collections": saved})


if __name__ == "__main__":
    main()
