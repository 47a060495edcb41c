"""A configuration and a collection → an error with the reason if training would fail, before any work."""

from gr2.data.collection import Collection
from gr2.docids.codes import CODES_WORDS
from gr2.docids.docids import Docids
from gr2.model.static_encoder import check_static
from gr2.model.vector_storage import check_storage
from gr2.training.config import TrainingConfig
from gr2.training.fit_look_ahead import has_judged_queries
from gr2.training.variants import variant_objective, variant_of


def check(collection: Collection, docids: Docids, config: TrainingConfig) -> None:
    """Check the arguments before any work is done."""
    check_training(config, collection, scheme=str(docids.about.get("scheme")))


def check_training(config: TrainingConfig, collection: Collection, *, scheme: str = "") -> None:
    """Check what can be checked before docids are made; `scheme` is theirs, if it is known."""
    variant = variant_of(config.variant)
    variant_objective(config.variant, config.objective)
    if variant.scheme and scheme not in ("", variant.scheme):
        raise ValueError(
            f"the variant {config.variant} needs docids of the scheme {variant.scheme}, not {scheme}"
        )
    train = collection.qrels.get("train", {})
    if config.schedule.self_negative_steps and not any(g > 0 for row in train.values() for g in row.values()):
        hint = " (this collection has folds: --fold)" if collection.folds else ""
        raise ValueError(
            f"self-negatives are found with training queries, but {collection.name} has none: set "
            f"schedule.self_negative_steps to 0{hint}"
        )
    if config.schedule.dev:
        collection.split(config.schedule.dev)
    if scheme == CODES_WORDS and config.look_ahead.enabled and config.look_ahead.storage != "fp32":
        raise ValueError("documents of codes-words have no vectors to store: leave look_ahead.storage out")
    check_look_ahead(config, collection)


def check_look_ahead(config: TrainingConfig, collection: Collection) -> None:
    """Check the static encoder, the storage and the residual of look-ahead, before docids are made."""
    how = config.look_ahead
    if not how.enabled:
        return
    if config.optimiser.accumulate > 1:
        raise ValueError("with look-ahead the loss is not computed in parts: set optimiser.accumulate to 1")
    check_storage(how.storage, len(collection.docnos))
    if how.encoder:
        check_static(how.encoder)
    if how.weights.residual and not how.learn:
        raise ValueError("a residual learns from judgements: leave --look-ahead.no-learn out")
    if how.weights.residual and not has_judged_queries(collection):
        raise ValueError(f"a residual learns from judgements, but {collection.name} has none to learn from")
