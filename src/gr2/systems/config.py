"""A whole generative system as one configuration, and the named presets.

Imports nothing heavy, because the command line is generated from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from tyro.conf import arg

from gr2.model.config import (
    BACKBONE,
    LookAheadConfig,
    NetworkConfig,
    SearchConfig,
    VectorConfig,
    VectorStorage,
)
from gr2.schemes.config import FusionConfig, GeneratorConfig, SchemeConfig
from gr2.training.config import (
    AugmentConfig,
    BatchConfig,
    LookAheadTraining,
    ObjectiveConfig,
    OptimiserConfig,
    PriorConfig,
    ScheduleConfig,
    TrainingConfig,
)

PAPER_BACKBONE = "google-t5/t5-base"
PAPER_OPTIMISER = OptimiserConfig(learning_rate=5e-5, warmup=0.1, decay_from=0.1, average=0.0)
PAPER_GENERATION = GeneratorConfig(
    fusion=FusionConfig(dropout=True),
    steps=50_000,
    pairs=0,
    batch=60,
    optimiser=PAPER_OPTIMISER,
    document_tokens=512,
    query_tokens=32,
)
"""The paper's docid generator; what it does not state is that of the retrieval model."""
PAPER_TRAINING = TrainingConfig(
    objective=ObjectiveConfig(normaliser="vocabulary", smoothing=0.1),
    batches=BatchConfig(queries=60, texts=60),
    optimiser=PAPER_OPTIMISER,
    schedule=ScheduleConfig(steps=50_000, self_negative_steps=5_000),
    augment=AugmentConfig(
        document=True, as_queries=True, paragraphs=3, sentences=3, entities=3, pieces=0, max_words=512
    ),
    prior=PriorConfig(vectors_per_document=0.0),
    network=NetworkConfig(dropout=True),
    max_tokens=512,
)
"""The paper's training; the length of its self-negative stage is not stated there."""
LOOK_AHEAD = TrainingConfig(look_ahead=LookAheadTraining(enabled=True), schedule=ScheduleConfig(steps=0))
"""Look-ahead ranks, and no decoder is trained."""


@dataclass(frozen=True, kw_only=True)
class GenerativeConfig:
    """Docids, training and search of a generative system; the defaults are the preset `default`."""

    backbone: str = BACKBONE
    """gr2-mini, or folder or hub name of a T5, BART or encoder checkpoint."""
    docids: SchemeConfig = SchemeConfig()
    training: Annotated[TrainingConfig, arg(name="")] = LOOK_AHEAD
    """Look-ahead, or the training of a decoder."""
    search: SearchConfig = SearchConfig()


@dataclass(frozen=True, kw_only=True)
class LookAheadOptions:
    """Hybrid search with learned offsets."""

    backbone: str = BACKBONE
    """gr2-mini, or folder or hub name of a text encoder; a model2vec folder is a static one."""
    vectors: VectorConfig = VectorConfig()
    look_ahead: LookAheadConfig = LookAheadConfig()
    learn: bool = True
    """Whether to learn from the judgements of `train` and `dev`, where there are some."""
    storage: VectorStorage = "fp32"
    """How the finished vectors are stored: fp32, int8 (a quarter of the bytes), or pq (product-quantised, 1
    byte per 8 dimensions; needs faiss and 256 documents). Learning uses fp32."""
    codes: int = 0
    """Residual codes that each document has in place of vectors, in a byte each, as with docids of the scheme
    codes-words (needs faiss); 0 keeps vectors. How many words are kept is `look_ahead.kept_words`."""
    variant: str = "gr2"
    """The loss, by the name of its variant."""
    seed: int = 0
    """Of the cross-validation."""

    def __post_init__(self) -> None:
        """Refuse what would have no effect."""
        if self.look_ahead.gate is not None or self.look_ahead.memory:
            raise ValueError("gate and memory of look-ahead are chosen by cross-validation: leave them out")
        if self.codes < 0 or (self.codes and self.storage != "fp32"):
            raise ValueError("codes are at least 0, and a storage of their own: leave storage out with them")
        if self.look_ahead.residual:
            raise ValueError(
                "this system has no decoder: a residual needs a model (gr2 index --preset residual)"
            )


PRESETS: Mapping[str, GenerativeConfig] = {
    "default": GenerativeConfig(),
    "fast": GenerativeConfig(
        training=replace(
            LOOK_AHEAD, look_ahead=LookAheadTraining(enabled=True, documents=VectorConfig.leading(48))
        )
    ),
    "residual": GenerativeConfig(
        training=replace(
            LOOK_AHEAD,
            look_ahead=LookAheadTraining(enabled=True, weights=LookAheadConfig(residual=2.0)),
            schedule=ScheduleConfig(frozen_steps=200, steps=0),
            optimiser=OptimiserConfig(learning_rate=1e-3, pretrained_rate=0.1),
        )
    ),
    "decoder": GenerativeConfig(training=TrainingConfig()),
    "paper": GenerativeConfig(
        backbone=PAPER_BACKBONE,
        docids=SchemeConfig(scheme="fusion", generation=PAPER_GENERATION),
        training=PAPER_TRAINING,
        search=SearchConfig(beams=20),
    ),
}
"""`default`: look-ahead, see docs/look-ahead.md; `fast`: with shorter documents; `residual`: with a
decoder that adds to look-ahead; `decoder`: a trained decoder
with a node prior; `paper`: the paper's settings."""


def preset(name: str) -> GenerativeConfig:
    """A preset by name; the error for an unknown name lists the known ones."""
    if name not in PRESETS:
        raise ValueError(f"no preset is called {name!r}; there are: {', '.join(PRESETS)}")
    return PRESETS[name]
