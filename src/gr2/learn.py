"""A collection and its docids → a trained model in a folder: what `gr2 train` does.

Up to three stages, each a run of `train` with checkpoints of its own: with the encoder frozen, with all
weights moving, and with the model's own mistakes as extra negatives. Started by torchrun, each process reads
batches of its own, and the first one writes.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from gr2.augment import AugmentConfig
from gr2.backbone import identity, makes_vectors
from gr2.baselines.dense import document_vectors
from gr2.batches import BatchConfig, Batches, Examples
from gr2.data import Collection
from gr2.decode import Normaliser
from gr2.docids import Docids
from gr2.embed import Vectors
from gr2.examples import examples_of
from gr2.frozen import STATES, FrozenStates
from gr2.measures import Convention, evaluate
from gr2.model import GR2, GR2Config
from gr2.network import NetworkConfig
from gr2.objective import Objective, recipe
from gr2.prior import Prior
from gr2.progress import shown
from gr2.ranks import accelerator
from gr2.train import TrainConfig, bf16_pays, train
from gr2.words import word_space


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a training run is made of; saved with the model as its provenance.

    The defaults are those of docs/results.md, chosen on development queries; the paper's are noted.
    """

    recipe: str = "gr2"
    changes: Mapping[str, Any] = field(default_factory=dict)
    """What differs from the recipe: fields of `ObjectiveConfig`, such as gamma or temperature."""
    frozen_steps: int = 0
    """Steps of a first stage with the encoder frozen and its states cached."""
    steps: int = 200
    """Steps with all weights moving."""
    self_negative_steps: int = 0
    """Steps of a last stage in which docids the model wrote wrongly are extra negatives."""
    learning_rate: float = 1e-4
    """With a node prior; a fresh decoder without one learns nothing at this rate and wants 1e-3."""
    pretrained_rate: float = 1.0
    """What the learning rate of pretrained parameters is multiplied by."""
    smoothing: float = 0.0
    """Of labels. paper: 0.1."""
    normaliser: Normaliser = "trie"
    prior: float = 1.0
    """Vectors of the node prior, for each document; 0 for no prior. It needs the trie normaliser."""
    queries: int = 16
    texts: int = 4
    per_grade: int = 2
    accumulate: int = 1
    average: float = 0.3
    """Share of the steps of a stage whose weights are averaged."""
    dev: str = ""
    """The split that early stopping is judged on, by real decoding; empty for none."""
    measure: str = "nDCG@20"
    judge_every: int = 100
    patience: int = 0
    seed: int = 0
    freeze_tables: bool = False
    """Whether the rows of docid tokens stand still; pre-training wants it."""
    bf16: bool | None = None
    """Mixed precision; None decides by the processor."""
    augment: AugmentConfig = AugmentConfig()

    def as_dict(self) -> dict[str, Any]:
        """As JSON would bring it back."""
        return json.loads(json.dumps(asdict(self)))  # type: ignore[no-any-return]

    def __post_init__(self) -> None:
        """Refuse what could not be searched with."""
        if self.prior > 0 and self.normaliser != "trie":
            raise ValueError("a node prior needs the trie normaliser: choose it, or a prior of 0")


def learn(
    collection: Collection,
    docids: Docids,
    backbone: str,
    out: Path,
    plan: Plan,
    *,
    vectors: Vectors | None = None,
    pseudo_queries: Mapping[str, Sequence[str]] | None = None,
    ready: "Ready | None" = None,
    states: Path | None = None,
    resume: bool = False,
    checkpoint_minutes: float = TrainConfig.checkpoint_minutes,
    progress: bool = False,
) -> GR2:
    """Train on the `train` split and write the model; checkpoints and metrics lie in OUT.training.

    Args:
        collection: what to learn; without a `train` split it is indexed from its documents alone.
        docids: of every document of the collection.
        backbone: folder or hub name of a checkpoint.
        out: the folder to write.
        plan: everything else.
        vectors: [docids, width] for the node prior, where they are at hand; else the backbone makes them, if
            it is a text encoder. The prior of a T5 or BART is made from its word embeddings.
        pseudo_queries: docno → queries that a model made for the document; texts like any others.
        ready: what `prepare` gave for the same collection, docids, backbone and plan, where it is at hand.
        states: a folder where encoder states of a frozen stage are kept, for other runs with the same encoder
            and texts; without it they lie in OUT.training until the stage is over.
        resume: go on after an interruption.
        checkpoint_minutes: how often a checkpoint is written.
        progress: whether to show bars.
    """
    machine = accelerator()
    show = progress and machine.is_main_process
    folder = out.with_name(out.name + ".training")
    if ready is None and vectors is None and plan.prior > 0 and makes_vectors(backbone):
        vectors = document_vectors(collection, docids.docnos, backbone, folder, progress=show)
    ready = ready or prepare(
        collection, docids, backbone, plan, vectors=vectors, pseudo_queries=pseudo_queries
    )
    model, examples = ready.model, ready.examples
    judge = _judge(model, collection, plan) if plan.dev else None
    about = {"fingerprint": collection.fingerprint, "docids": docids.digest, "plan": plan.as_dict()}
    about |= {"backbone": identity(backbone)}
    for stage in stages(plan):
        if stage.name == "self-negatives":
            examples = with_self_negatives(model, collection, examples)
        ranks = {"rank": machine.process_index, "ranks": machine.num_processes}
        run = train(
            model.network,
            ready.objective,
            Batches(examples, sizes(plan), seed=plan.seed, **ranks),
            replace(stage.settings, checkpoint_minutes=checkpoint_minutes),
            folder / stage.name,
            resume=resume,
            read=_frozen(model, examples, states or folder, show) if stage.name == "frozen" else None,
            judge=judge,
            about=about,
        )
        for _ in shown(run, stage.name, stage.settings.steps, show=show):
            pass
        for used in () if states else folder.glob(f"{STATES}*"):
            used.unlink()
    model.provenance |= {"collection": collection.name, "fingerprint": collection.fingerprint}
    model.provenance |= {"plan": asdict(plan)}
    if machine.is_main_process:
        model.save_pretrained(out, documents=collection.documents)
    machine.wait_for_everyone()  # whoever returns finds the folder
    return model


def _frozen(model: GR2, examples: Examples, folder: Path, show: bool) -> FrozenStates:
    return FrozenStates(model.network, examples, folder=folder, progress=show)


@dataclass(frozen=True)
class Ready:
    """Everything that a training run starts from."""

    model: GR2
    examples: Examples
    objective: Objective


def prepare(
    collection: Collection,
    docids: Docids,
    backbone: str,
    plan: Plan,
    *,
    vectors: Vectors | None,
    pseudo_queries: Mapping[str, Sequence[str]] | None = None,
) -> Ready:
    """An untrained model, what it will read, and the loss; without `vectors` a prior is made from words."""
    config = GR2Config(network=NetworkConfig(loud=plan.freeze_tables), normaliser=plan.normaliser)
    model = GR2.fresh(backbone, docids, config, seed=plan.seed)
    examples = examples_of(
        collection,
        docids,
        model.read,
        augment=plan.augment,
        pseudo_queries=pseudo_queries,
        seed=plan.seed,
    )
    if plan.prior > 0:
        most = round(plan.prior * len(docids))
        prior = _prior(model, examples, vectors, most)
        model.network.take_prior(prior, quiet=not plan.freeze_tables)
    loss = recipe(plan.recipe, normaliser=plan.normaliser, smoothing=plan.smoothing, **plan.changes)
    return Ready(model, examples, Objective(model.tokens, model.trie, max(1, collection.grades), loss))


def _prior(model: GR2, examples: Examples, vectors: Vectors | None, most: int) -> Prior:
    """From the documents' vectors, or from the words of their texts."""
    if vectors is not None:
        return Prior.build(model.trie, vectors, most=most)
    table = model.network.encoder.get_input_embeddings().weight.detach().numpy()
    space = word_space(table, examples.texts, examples.text_docids, len(model.docids))
    return Prior.of_words(model.trie, space, most=most)


def sizes(plan: Plan) -> BatchConfig:
    """How much a step of a plan reads."""
    return BatchConfig(queries=plan.queries, texts=plan.texts, per_grade=plan.per_grade)


@dataclass(frozen=True)
class Stage:
    """One run of the loop."""

    name: str
    settings: TrainConfig


def stages(plan: Plan) -> list[Stage]:
    """The stages of a plan that have steps, in their order."""
    usual = TrainConfig(
        steps=plan.steps,
        learning_rate=plan.learning_rate,
        pretrained_rate=plan.pretrained_rate,
        accumulate=plan.accumulate,
        average=plan.average,
        judge_every=plan.judge_every if plan.dev else 0,
        patience=plan.patience,
        freeze_tables=plan.freeze_tables,
        bf16=bf16_pays() if plan.bf16 is None else plan.bf16,
        seed=plan.seed,
    )
    all_of_them = (
        Stage("frozen", replace(usual, steps=plan.frozen_steps, freeze_encoder=True)),
        Stage("joint", usual),
        Stage("self-negatives", replace(usual, steps=plan.self_negative_steps)),
    )
    return [stage for stage in all_of_them if stage.settings.steps > 0]


def with_self_negatives(model: GR2, collection: Collection, examples: Examples, *, k: int = 10) -> Examples:
    """Decode the training queries and keep what was wrong: docids among the best k that nobody judged."""
    judged = [
        (qid, row) for qid, row in collection.split("train").items() if any(g > 0 for g in row.values())
    ]
    run = model.search({qid: collection.queries[qid] for qid, _ in judged}, k)
    wrong = [[docno for docno in run.docnos(qid) if row.get(docno, 0) <= 0] for qid, row in judged]
    return replace(examples, hard=[[model.docids.index[docno] for docno in row] for row in wrong])


def _judge(model: GR2, collection: Collection, plan: Plan) -> Callable[[], float]:
    qrels = collection.split(plan.dev)
    queries = {qid: collection.queries[qid] for qid in qrels}

    def judge() -> float:
        run = model.search(queries, 20)
        return evaluate(run, qrels, [plan.measure], Convention(gain="exponential")).means[plan.measure]

    return judge
