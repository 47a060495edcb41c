"""Settings and trials that several recipes share.

A plan has the serialised keys of `Trial.plan` (see `trial.KEYS`). Keys and values are part of the names of
finished trials, so changing one would rerun every sweep that used it.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gr2.data.formats import open_collection
from gr2.data.formats.folder import LEFT_OUT
from gr2.experiments.trial import Trial
from gr2.training.config import BatchConfig

SYSTEMS: Mapping[str, str] = {
    "MLE": "MLE",
    "GR²S": "gr2",
    "−λ": "-lambda",
    "−Max": "-Max",
    "CE": "CE",
    "LR": "LR",
}
"""Names in tables → serialised names of variants; LR is LR-MLE today (`trial.VARIANTS`)."""
UNTRAINED = "before training"
"""An optional system: the network with its node prior, without any training step."""
PLAN: Mapping[str, Any] = {
    "texts": 4,
    "smoothing": 0.0,
    "learning_rate": 1e-4,
    "pretrained_rate": 1.0,
    "average": 0.3,
    "augment": {"paragraphs": 0, "sentences": 0, "entities": 0, "pieces": 8},
}
"""Chosen on the dev split of nfcorpus and on inner folds of cranfield and scifact."""
PLAIN: Mapping[str, Any] = {
    "recipe": "gr2",
    "prior": 0.0,
    "steps": 0,
    "learning_rate": 1e-3,
    "queries": 32,
    "texts": 32,
    "augment": {"paragraphs": 0, "sentences": 0, "entities": 0, "pieces": 4},
}
"""A new decoder on a frozen encoder, without a node prior: trained within minutes."""
EPOCHS = 10
"""Maximum passes over the training queries; further steps would only repeat them."""


def graded_trials(
    collections: Sequence[str],
    backbone: str,
    systems: Sequence[str] = tuple(SYSTEMS),
    *,
    steps: int,
    words: int,
    seeds: int,
    all_seeds: bool = False,
) -> Iterator[Trial]:
    """The same training with each system's loss, seed by seed, so that a partial sweep can be evaluated.

    Args:
        collections: folders; those with folds are cross-validated.
        backbone: folder or hub name of a checkpoint.
        systems: names from `SYSTEMS`, or `UNTRAINED`.
        steps: training steps, reduced to at most `EPOCHS` passes over the training queries.
        words: maximum words of a docid.
        seeds: number of seeds. A collection with folds gets one, because each fold is a training run already.
        all_seeds: use all seeds for collections with folds, too.
    """
    for seed in range(seeds):
        for path in collections:
            collection = open_collection(path)
            folds = len(collection.folds)
            if seed and folds and not all_seeds:
                continue
            queries = len((collection.fold(0) if folds else collection).split("train"))
            useful = min(steps, EPOCHS * -(-queries // BatchConfig.queries))
            for system in systems:
                taken = 0 if system == UNTRAINED else useful
                for fold in range(folds) if folds else (None,):
                    yield Trial(
                        system=system,
                        collection=path,
                        backbone=backbone,
                        words=words,
                        plan={**PLAN, "recipe": SYSTEMS.get(system, "MLE"), "steps": taken, "seed": seed},
                        fold=fold,
                    )


def source_documents(path: str) -> Path | None:
    """The file of query-document pairs to exclude from a collection's rankings and judgements, if any."""
    found = Path(path) / LEFT_OUT
    return found if found.is_file() else None
