"""A collection and its docids → a trained model in a folder: what `gr2 train` does.

There are up to three stages, each a run of `train` with its own checkpoints: with a frozen encoder, with all
weights trained, and with the model's own wrong docids as extra negatives. Under torchrun, each process reads
its own batches, and the first one writes the files.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from gr2.data.collection import Collection
from gr2.docids.codes import CODES_WORDS
from gr2.docids.docids import Docids
from gr2.evaluate.measures import evaluate
from gr2.model.backbone import identity, makes_vectors
from gr2.model.config import GR2Config
from gr2.model.device import device_of
from gr2.model.docid_reader import DocidReader
from gr2.model.document_vectors import document_vectors, vectors_by_kind
from gr2.model.encoder import Vectors
from gr2.model.gr2 import GR2
from gr2.model.node_prior import Prior
from gr2.model.query_encoder import QueryEncoder
from gr2.model.static_encoder import StaticEncoder
from gr2.model.word_prior import word_space
from gr2.store import Workspace, check_replaceable
from gr2.training.batches import Batches, Examples
from gr2.training.checks import check
from gr2.training.config import TrainingConfig, as_json, with_settings
from gr2.training.distributed import join_ranks
from gr2.training.encoder_cache import STATES, EncoderCache
from gr2.training.examples import examples_of
from gr2.training.fit_look_ahead import (
    code_views,
    judged_queries,
    learn_look_ahead,
    learned_from,
    selection_facts,
    word_views,
)
from gr2.training.loop import LoopConfig, Steps, train
from gr2.training.objective import Objective
from gr2.training.plain_views import PlainViews
from gr2.training.progress import progress_bar, status_line
from gr2.training.regression_loss import loss_of
from gr2.training.residual import Residual, ResidualBatches, ResidualObjective, residual_examples
from gr2.training.variants import QueryLoss, variant_objective

LINES = 40
"""Lines of metrics.jsonl that a stage writes at least, if it has so many steps."""


class Stage(Enum):
    """The stages of a training run; the value is the name of the stage's folder."""

    FROZEN = "frozen"
    JOINT = "joint"
    SELF_NEGATIVES = "self-negatives"


@dataclass(frozen=True)
class Prepared:
    """What a training run starts from."""

    model: GR2
    examples: Examples
    objective: Objective


def fit(
    collection: Collection,
    docids: Docids,
    backbone: str,
    out: str | Path,
    config: TrainingConfig | None = None,
    *,
    vectors: Vectors | None = None,
    pseudo_queries: Mapping[str, Sequence[str]] | None = None,
    query_loss: QueryLoss | None = None,
    prepared: Prepared | None = None,
    states: Path | None = None,
    plan: Callable[[int], int] | None = None,
    resume: bool = False,
    progress: bool = False,
) -> GR2:
    """Train on the `train` split and write the model; checkpoints and metrics are kept in OUT.training.

    Args:
        collection: the training data; without a `train` split, only its documents are used.
        docids: the docids of all documents of the collection.
        backbone: folder or hub name of a checkpoint.
        out: the model folder to write.
        config: all other settings.
        vectors: [docids, width] for the node prior, if already computed; otherwise the backbone computes them
            if it is a text encoder. The prior of a T5 or BART is made from its word embeddings.
        pseudo_queries: docno → generated queries, used as further texts of the document.
        query_loss: replaces the configured loss of query-docid pairs.
        prepared: the result of `prepare` for the same arguments, if already computed.
        states: a folder in which to keep the encoder states of the frozen stage, and the documents' vectors
            of look-ahead, for other runs with the same encoder and texts; without it they are deleted.
        plan: called in the main stage with the number of steps done; returns how many there will be in all.
        resume: continue an interrupted run.
        progress: show progress bars.
    """
    out, config = Path(out), config or TrainingConfig()
    check_replaceable(out)
    check(collection, docids, config)
    if config.look_ahead.enabled and (pseudo_queries or query_loss):
        raise ValueError("with look-ahead, pseudo-queries and other losses of queries have no effect")
    ranks = join_ranks(device_of(config.device))
    if config.look_ahead.weights.residual and ranks.several:
        raise ValueError("a residual is trained by one process: start it without torchrun")
    show, folder = progress and ranks.is_first, Workspace(out).training
    if prepared is None and vectors is None and wants_vectors(config, backbone):
        how = config.prior.documents
        vectors = document_vectors(collection, docids.docnos, backbone, folder, how, progress=show)
    start = prepared or prepare(
        collection,
        docids,
        backbone,
        config,
        vectors=vectors,
        pseudo_queries=pseudo_queries,
        query_loss=query_loss,
    )
    model, examples = start.model, start.examples
    residual = None
    if config.look_ahead.enabled:
        residual = _attach_look_ahead(model, collection, backbone, states or folder, config, show=show)
    about = {"fingerprint": collection.fingerprint, "docids": docids.digest, "backbone": identity(backbone)}
    taken = config.schedule.steps
    for stage, settings in stages(config):
        if stage is Stage.SELF_NEGATIVES:
            examples = with_self_negatives(model, collection, examples)
        read, objective = None, residual.objective if residual else start.objective
        batches: Steps = (
            residual.batches
            if residual
            else Batches(examples, config.batches, seed=config.seed, rank=ranks.rank, ranks=ranks.count)
        )
        if stage is Stage.FROZEN:
            sources = residual.batches.examples.plain if residual else examples
            read = EncoderCache(model.network, sources, folder=states or folder, progress=show)
        with progress_bar(stage.value, settings.steps, show=show) as update:
            done = train(
                model.network,
                objective,
                batches,
                settings,
                folder / stage.value,
                resume=resume,
                read=read,
                validate=_validation(model, collection, config) if settings.validate_every else None,
                about=about | {"training": resumable(config)},
                plan=plan if stage is Stage.JOINT else None,
                progress=update,
            )
        if plan and stage is Stage.JOINT:
            taken = done
        for used in folder.glob(f"{STATES}*") if ranks.is_first and not states else ():
            used.unlink(missing_ok=True)
    model.provenance |= {"collection": collection.name, "fingerprint": collection.fingerprint}
    model.provenance |= {"training": as_json(with_settings(config, {"schedule.steps": taken}))}
    if ranks.is_first:
        model.save_pretrained(out, documents=collection.documents)
    ranks.wait()  # every process finds the folder when this returns
    return model


def _attach_look_ahead(
    model: GR2, collection: Collection, backbone: str, folder: Path, config: TrainingConfig, *, show: bool
) -> Residual | None:
    """Build the model's look-ahead and learn from judgements; the choice goes into the provenance.

    Returns what a decoder is trained with as a residual, if the configuration has steps for it.
    """
    how = config.look_ahead
    model.network.eval()
    views, encoder = plain_views(model, collection, backbone, folder, config, progress=show)
    splits = judged_queries(collection, encoder) if how.learn else {}
    with status_line("look-ahead", show=show) as say:
        learned, found = learn_look_ahead(
            views, splits, variant=config.variant, seed=config.seed, progress=say
        )
    whole = replace(learned.config, residual=how.weights.residual)
    model.look_ahead = learned.stored(how.storage).with_config(whole)
    model.__dict__.pop("query_encoder", None)  # a word map or static encoder changes how queries are encoded
    model.provenance["look_ahead"] = selection_facts(found)
    model.judged = learned_from(collection, found)
    if not how.weights.residual:
        return None
    assert found is not None  # `check_look_ahead` made sure that there are judgements
    split = found.chosen.split if found.chosen.learns else found.measured
    queries = splits[split].encoded()
    examples = residual_examples(views.at(found.weights), queries, found.chosen, model.read)
    reader = DocidReader(model.tokens, model.network.device)
    levels = max(1, int(examples.grades.max()))
    objective = ResidualObjective(reader, loss_of(config.variant), how.weights.residual, levels)
    return Residual(objective, ResidualBatches(examples, config.batches.queries, seed=config.seed))


def plain_views(
    model: GR2,
    collection: Collection,
    backbone: str,
    folder: Path,
    config: TrainingConfig,
    *,
    progress: bool = False,
) -> tuple[PlainViews, QueryEncoder]:
    """φ with nothing learned over a model's documents, and what encodes queries for it.

    The documents' vectors are computed once and saved in the folder.
    """
    how, docnos = config.look_ahead, model.docids.docnos
    by_docno = {document.docno: document for document in collection.documents}
    documents = [by_docno[docno] for docno in docnos]
    static = StaticEncoder.load(how.encoder) if how.encoder else None
    if model.docids.about.get("scheme") == CODES_WORDS:
        views = code_views(documents, model.docids, how, how.encoder or backbone)
        return replace(views, encoder=static), static or model.query_encoder
    if static or makes_vectors(backbone):
        name = how.encoder or backbone
        vectors = vectors_by_kind(collection, docnos, name, folder, how.documents, progress=progress)
        return PlainViews(documents, vectors, how.weights, encoder=static), static or model.query_encoder
    table = model.network.encoder.get_input_embeddings().weight.detach().cpu().numpy()
    return word_views(documents, table, model.tokenizer, how.weights, config.max_tokens)


def wants_vectors(config: TrainingConfig, backbone: str) -> bool:
    """Whether the node prior is built from document vectors rather than word embeddings."""
    return config.prior.vectors_per_document > 0 and not config.look_ahead.enabled and makes_vectors(backbone)


def prepare(
    collection: Collection,
    docids: Docids,
    backbone: str,
    config: TrainingConfig,
    *,
    vectors: Vectors | None,
    pseudo_queries: Mapping[str, Sequence[str]] | None = None,
    query_loss: QueryLoss | None = None,
) -> Prepared:
    """An untrained model, its examples, and its loss; without `vectors`, a prior uses word embeddings."""
    frozen = config.freeze_embeddings
    shape = replace(config.network, unit_norm_head=config.network.unit_norm_head or frozen)
    about = GR2Config(network=shape, normaliser=config.objective.normaliser, max_tokens=config.max_tokens)
    model = GR2.fresh(backbone, docids, about, seed=config.seed)
    examples = examples_of(
        collection,
        docids,
        model.read,
        augment=config.augment,
        pseudo_queries=pseudo_queries,
        seed=config.seed,
    )
    if config.prior.vectors_per_document > 0 and not config.look_ahead.enabled:
        most = round(config.prior.vectors_per_document * len(docids))
        prior = _prior(model, examples, vectors, most)
        model.network.attach_prior(prior, scale_head=not frozen)
    device = device_of(config.device)
    model.network.to(device)
    loss = variant_objective(config.variant, config.objective)
    levels = examples.levels
    objective = Objective(model.tokens, model.trie, levels, loss, query_loss=query_loss, device=device)
    return Prepared(model, examples, objective)


def _prior(model: GR2, examples: Examples, vectors: Vectors | None, most: int) -> Prior:
    """A node prior from the documents' vectors, or from the word embeddings of their texts."""
    if vectors is not None:
        return Prior.build(model.trie, vectors, most=most)
    table = model.network.encoder.get_input_embeddings().weight.detach().numpy()
    space = word_space(table, examples.texts, examples.text_docids, len(model.docids))
    return Prior.of_words(model.trie, space, most=most)


def stages(config: TrainingConfig) -> list[tuple[Stage, LoopConfig]]:
    """The stages that have steps, in order."""
    schedule = config.schedule
    joint = LoopConfig(
        steps=schedule.steps,
        optimiser=config.optimiser,
        freeze_embeddings=config.freeze_embeddings,
        validate_every=schedule.validate_every if schedule.dev else 0,
        patience=schedule.patience,
        checkpoint_minutes=schedule.checkpoint_minutes,
        log_every=schedule.log_every,
        seed=config.seed,
    )
    found = (
        (Stage.FROZEN, replace(joint, steps=schedule.frozen_steps, freeze_encoder=True)),
        (Stage.JOINT, joint),
        (Stage.SELF_NEGATIVES, replace(joint, steps=schedule.self_negative_steps)),
    )
    return [(stage, _logged(settings)) for stage, settings in found if settings.steps > 0]


def _logged(settings: LoopConfig) -> LoopConfig:
    """A short stage logs more often, so that its loss can be drawn as a curve."""
    return replace(settings, log_every=min(settings.log_every, max(1, settings.steps // LINES)))


def resumable(config: TrainingConfig) -> dict[str, object]:
    """The settings that must be equal for a run to be resumed: all that affect the weights."""
    found = as_json(config)
    found.pop("device")
    for name in ("checkpoint_minutes", "log_every"):
        found["schedule"].pop(name)
    return found


def with_self_negatives(model: GR2, collection: Collection, examples: Examples, *, k: int = 10) -> Examples:
    """Decode the training queries and keep the irrelevant docids among the best k as negatives."""
    judged = [
        (qid, row) for qid, row in collection.split("train").items() if any(g > 0 for g in row.values())
    ]
    run = model.search_many({qid: collection.queries[qid] for qid, _ in judged}, k)
    wrong = [[docno for docno in run.docnos(qid) if row.get(docno, 0) <= 0] for qid, row in judged]
    negatives = [[model.docids.index[docno] for docno in row] for row in wrong]
    negatives += [[]] * (len(examples.queries) - len(negatives))  # texts of documents, used as queries
    return replace(examples, self_negatives=negatives)


def _validation(model: GR2, collection: Collection, config: TrainingConfig) -> Callable[[], float]:
    qrels, measure = collection.split(config.schedule.dev), config.schedule.measure
    queries = {qid: collection.queries[qid] for qid in qrels}

    def validate() -> float:
        run = model.search_many(queries, 20)
        return evaluate(run, qrels, [measure]).means[measure]

    return validate
