"""A collection and its docids → a trained model in a folder: what `gr2 train` does."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

from gr2.batches import BatchConfig, Batches
from gr2.data import Collection
from gr2.decode import Normaliser
from gr2.docids import Docids
from gr2.examples import examples_of
from gr2.model import GR2, GR2Config
from gr2.network import NetworkConfig
from gr2.objective import Objective, recipe
from gr2.ranks import accelerator
from gr2.train import Progress, TrainConfig, bf16_pays, train

BAR = "{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} steps [{elapsed}{postfix}]"
"""Without tqdm's own time left, which after a resumption takes the steps done before for its own."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a training run is made of; saved with the model as its provenance."""

    recipe: str = "gr2"
    steps: int = 2000
    learning_rate: float = 1e-3
    encoder_rate: float = 0.1
    normaliser: Normaliser = "trie"
    queries: int = 16
    texts: int = 44
    per_grade: int = 2
    seed: int = 0
    bf16: bool | None = None
    """Mixed precision; None decides by the processor."""


def learn(
    collection: Collection,
    docids: Path,
    backbone: str,
    out: Path,
    plan: Plan,
    *,
    resume: bool = False,
    progress: bool = False,
) -> GR2:
    """Train on the `train` split and write the model; checkpoints and metrics lie in OUT.training.

    Started by torchrun, each process reads batches of its own, and the first one writes.
    """
    machine = accelerator()
    config = GR2Config(network=NetworkConfig(), normaliser=plan.normaliser)
    model = GR2.fresh(backbone, Docids.load(docids), config, seed=plan.seed)
    examples = examples_of(collection, model.docids, model.read, seed=plan.seed)
    objective = Objective(
        model.tokens, model.trie, max(1, collection.grades), recipe(plan.recipe, normaliser=plan.normaliser)
    )
    sizes = BatchConfig(queries=plan.queries, texts=plan.texts, per_grade=plan.per_grade)
    settings = TrainConfig(
        steps=plan.steps,
        learning_rate=plan.learning_rate,
        encoder_rate=plan.encoder_rate,
        bf16=bf16_pays() if plan.bf16 is None else plan.bf16,
        seed=plan.seed,
    )
    run = train(
        model.network,
        objective,
        Batches(examples, sizes, seed=plan.seed, rank=machine.process_index, ranks=machine.num_processes),
        settings,
        out.with_name(out.name + ".training"),
        resume=resume,
    )
    _exhaust(run, plan.steps, show=progress and machine.is_main_process)
    model.provenance |= {
        "collection": collection.name,
        "fingerprint": collection.fingerprint,
        "plan": asdict(plan),
    }
    if machine.is_main_process:
        model.save_pretrained(out)
    machine.wait_for_everyone()  # whoever returns finds the folder
    return model


def _exhaust(run: Iterator[Progress], steps: int, *, show: bool) -> None:
    from tqdm import tqdm

    with tqdm(total=steps, bar_format=BAR, disable=not show) as bar:
        for now in run:
            parts = " ".join(f"{name} {value:.3f}" for name, value in now.parts.items())
            left = timedelta(seconds=round(now.seconds_left))
            speed = f"{now.examples_per_second:.0f} examples/s"
            bar.set_postfix_str(f"{left} left, {parts}, {speed}", refresh=False)
            bar.update(now.step - bar.n)
