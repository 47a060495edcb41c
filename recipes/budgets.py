"""What a backbone is worth after some CPU-minutes of training; every budget starts from scratch.

    python recipes/budgets.py sweep  --start MINILM --t5 T5 --out FOLDER pydocs FOLDER ...
    python recipes/budgets.py report --start MINILM --t5 T5 --out FOLDER pydocs FOLDER ...
    python recipes/budgets.py rates  --start MINILM --t5 T5 --out FOLDER --backbones random T5 -- pydocs

Four backbones: gr2-mini; the encoder it was made from, with a new decoder; the same architecture with random
weights (word embeddings too, which are frozen in all trainings); and a T5. The number of steps is planned
from the CPU time of a step on this machine, with one thread; the report shows what each trial really took,
including preparation and saving. Encoding the documents for the node prior comes before and is not part of
the minutes; its time is estimated from a sample and reported too (the prior of a T5 is made from words during
preparation). One seed. `rates` shows how each learning rate was chosen: by a minute of training, measured on
the dev queries. Interrupted work continues.
"""

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from gr2.data.collection import Collection
from gr2.data.formats import open_collection
from gr2.data.runs import Run
from gr2.evaluate.describe import headline
from gr2.evaluate.significance import compare
from gr2.evaluate.tables import comparison_table, render
from gr2.experiments.executors import sweep
from gr2.experiments.plans import PLAN
from gr2.experiments.tables import gather
from gr2.experiments.trial import Trial, training_config
from gr2.model.backbone import identity, is_own, makes_vectors
from gr2.model.config import VectorConfig
from gr2.model.device import has_fused_adamw, to_device
from gr2.model.document_vectors import document_vectors, encode_documents
from gr2.model.encoder import Encoder
from gr2.model.families import transformers
from gr2.schemes.config import SchemeConfig
from gr2.schemes.registry import SchemeContext, build
from gr2.store import atomic_folder, write_json
from gr2.systems.baselines import baselines
from gr2.training.batches import Batches
from gr2.training.config import TrainingConfig
from gr2.training.fit import Prepared, prepare
from gr2.training.gradients import Gradients
from gr2.training.loop import encoded

MEASURES = ("nDCG@20", "ERR@20", "Hits@10")
NAMES = ("gr2-mini", "MiniLM", "random", "T5")
WORDS = 6
RATES: Mapping[tuple[str, str], float] = {("pydocs", name): 1e-5 for name in ("gr2-mini", "MiniLM", "T5")}
"""Other learning rates than `PLAN`'s, by collection and backbone; chosen on dev queries (docs/log.md)."""


def random_one(start: str, out: Path) -> str:
    """A checkpoint with the architecture of the start and random weights."""
    folder = out / f"random-{Path(start).name}"
    if not folder.exists():
        torch.manual_seed(0)
        config = transformers().AutoConfig.from_pretrained(start)
        with atomic_folder(folder) as temporary:
            transformers().AutoTokenizer.from_pretrained(start).save_pretrained(temporary)
            transformers().AutoModel.from_config(config).save_pretrained(temporary)
    return str(folder)


def backbones(options: argparse.Namespace) -> dict[str, str]:
    """The backbones by their names in tables; MiniLM gets a new decoder."""
    every = {"gr2-mini": options.backbone, "MiniLM": options.start, "T5": options.t5}
    every["random"] = random_one(options.start, options.out)
    return {name: every[name] for name in options.backbones}


def pace(options: argparse.Namespace, path: str, backbone: str) -> dict[str, float]:
    """CPU seconds of a step and of encoding all documents; measured once for all encoders."""
    backbone = options.start if makes_vectors(backbone) else backbone
    kept = options.out / f"pace.{Path(path).name}.{Path(backbone).name}.{options.lead}.json"
    if not kept.exists():
        collection = open_collection(path)
        if collection.folds:
            raise ValueError(f"{path}: has folds, but this recipe needs splits")
        config = SchemeConfig(scheme="title", words=WORDS)
        docids = build(
            SchemeContext(collection=collection, backbone=backbone, folder=options.out, config=config)
        )
        vectors, encoding = None, 0.0
        if makes_vectors(backbone):
            how = VectorConfig.leading(options.lead)
            vectors = document_vectors(collection, docids.docnos, backbone, options.out, how)
            encoding = encoding_seconds(collection, backbone, how)
        training = training_config(PLAN)
        prepared = prepare(collection, docids, backbone, training, vectors=vectors)
        step = step_seconds(prepared, training)
        write_json(kept, {"step": step, "encoding": encoding})
    return json.loads(kept.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def step_seconds(prepared: Prepared, config: TrainingConfig, steps: int = 10) -> float:
    """CPU seconds of a training step: the mean of a few, after one for warm-up."""
    network = prepared.model.network
    batches = Batches(prepared.examples, config.batches, seed=config.seed)
    gradients = Gradients(network, prepared.objective, encoded, config.optimiser, (config.seed,))
    network.freeze(encoder=False)
    moving = [weight for weight in network.parameters() if weight.requires_grad]
    optimiser = torch.optim.AdamW(moving, lr=0.0, weight_decay=0.0, fused=has_fused_adamw(network.device))
    for step in range(steps + 1):
        if step == 1:
            begun = time.process_time()
        gradients(to_device(batches[step], network.device), step)
        torch.nn.utils.clip_grad_norm_(moving, config.optimiser.clip)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    return (time.process_time() - begun) / steps


def encoding_seconds(collection: Collection, backbone: str, how: VectorConfig, sample: int = 256) -> float:
    """CPU seconds of encoding all documents, estimated from a sample."""
    worded = [document for document in collection.documents if document.contents.split()]
    some, encoder = worded[:: max(1, len(worded) // sample)], Encoder.load(backbone)
    begun = time.process_time()
    encode_documents(some, encoder, how)
    return (time.process_time() - begun) / len(some) * len(worded)


def trials(options: argparse.Namespace) -> Iterator[tuple[int, str, Trial]]:
    """Minutes, backbone and trial; short ones first."""
    for minutes in options.minutes:
        for path in options.collections:
            for name in backbones(options):
                rate = RATES.get((Path(path).name, name), PLAN["learning_rate"])
                yield minutes, name, trial(options, path, name, minutes, rate)


def trial(
    options: argparse.Namespace, path: str, name: str, minutes: int, rate: float, split: str = "test"
) -> Trial:
    """A backbone trained for some minutes."""
    backbone = backbones(options)[name]
    steps = round(60 * minutes / pace(options, path, backbone)["step"])
    plan = {**PLAN, "recipe": "gr2", "learning_rate": rate, "steps": steps, "seed": 0}
    return Trial(
        system=name,
        collection=path,
        backbone=backbone,
        words=WORDS,
        plan=plan,
        lead=options.lead,
        split=split,
    )


def rates(options: argparse.Namespace, path: str) -> None:
    """Train each backbone for a minute at several learning rates, and measure on the dev queries."""
    wanted = {
        (name, rate): trial(options, path, name, 1, rate, "dev")
        for name in backbones(options)
        for rate in (1e-5, 1e-4, 1e-3)
    }
    sweep(wanted.values(), options.out, workers=options.workers)
    rows = [
        (f"{name}, {rate:g}", 0, Run.read(options.out / one.name / "run.trec"))
        for (name, rate), one in wanted.items()
    ]
    found = gather(open_collection(path), rows, MEASURES, split="dev")
    print(comparison_table(compare(found), "markdown"))


def report(options: argparse.Namespace, path: str) -> dict[str, Any]:
    """Print a collection's tables, one per budget, and return its figures."""
    collection = open_collection(path)
    print(f"### {headline(collection)}\n")
    queries = {qid: collection.queries[qid] for qid in collection.split("test")}
    bm25 = [each for each in baselines(collection) if each.system == "bm25"]
    lexical = [(each.name, 0, each.run(collection, queries)) for each in bm25]
    saved: dict[str, Any] = {"fingerprint": collection.fingerprint}
    for minutes in options.minutes:
        found = [(n, t) for m, n, t in trials(options) if m == minutes and t.collection == path]
        done = [(n, t) for n, t in found if (options.out / t.name).exists()]
        rows = [*lexical, *((n, 0, Run.read(options.out / t.name / "run.trec")) for n, t in done)]
        evaluations = gather(collection, rows, MEASURES)
        print(f"minutes: {minutes}\n\n{comparison_table(compare(evaluations), 'markdown')}\n")
        spent = {n: cost(options, t) for n, t in done}
        cells = [
            [n, *("" if value is None else f"{value:,.0f}" for value in row.values())]
            for n, row in spent.items()
        ]
        print(render(["", "steps", "CPU seconds", "encoding"], cells, "markdown"), "\n")
        saved[f"{minutes} minutes"] = {"spent": spent, "means": {e.name: e.means for e in evaluations}}
    means = [saved[f"{minutes} minutes"]["means"] for minutes in options.minutes]
    for measure in MEASURES:
        cells = [
            [name, *(f"{row[name][measure]:.4f}" if name in row else "" for row in means)]
            for name in options.backbones
        ]
        print(render([f"{measure} after minutes", *map(str, options.minutes)], cells, "markdown"), "\n")
    return saved


def cost(options: argparse.Namespace, trial: Trial) -> dict[str, float | None]:
    """Steps of a trial, CPU seconds of its training (None if interrupted) and of encoding."""
    content = json.loads((options.out / trial.name / "trial.json").read_text(encoding="utf-8"))
    encoding = pace(options, trial.collection, trial.backbone)["encoding"]
    return {"steps": trial.plan["steps"], "cpu": content["cost"]["cpu_seconds"], "encoding": encoding}


def main() -> None:
    """Sweep, report, or compare learning rates."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("do", choices=("sweep", "report", "rates"))
    parser.add_argument("collections", nargs="+", help="folders, or pydocs")
    parser.add_argument("--start", required=True, help="the encoder that gr2-mini was made from")
    parser.add_argument("--t5", required=True, help="a T5 to compare with")
    parser.add_argument("--backbone", default="gr2-mini", help="what is called gr2-mini in tables (gr2-mini)")
    parser.add_argument("--backbones", nargs="+", choices=NAMES, default=NAMES, help="which of them (all)")
    parser.add_argument("--out", type=Path, required=True, help="folder of trials")
    parser.add_argument(
        "--lead",
        type=int,
        default=128,
        help="leading tokens that are encoded; 0: the whole document, in pieces (128)",
    )
    parser.add_argument(
        "--minutes", type=int, nargs="+", default=[0, 1, 3, 5, 10], help="budgets (0 1 3 5 10)"
    )
    parser.add_argument("--workers", type=int, default=2, help="trials run at the same time (2)")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    if options.do == "sweep":
        sweep([trial for _, _, trial in trials(options)], options.out, workers=options.workers)
        return
    if options.do == "rates":
        for path in options.collections:
            rates(options, path)
        return
    saved = {Path(path).name: report(options, path) for path in options.collections}
    if options.json:
        rates_of = {f"{path}, {name}": rate for (path, name), rate in RATES.items()}
        settings = {"lead": options.lead, "plan": dict(PLAN), "other rates": rates_of, "seeds": 1}
        made = {
            name: identity(place) if is_own(place) else name for name, place in backbones(options).items()
        }
        write_json(options.json, {**settings, "backbones": made, "collections": saved})


if __name__ == "__main__":
    main()
