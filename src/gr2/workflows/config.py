"""The settings of pre-training and of generators.

Imports nothing heavy, because the command line is generated from these classes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from tyro.conf import arg

from gr2.model.config import BACKBONE
from gr2.schemes.config import FusionConfig, GeneratorConfig, SchemeConfig
from gr2.systems.config import PAPER_BACKBONE, PAPER_TRAINING
from gr2.training.config import (
    AugmentConfig,
    BatchConfig,
    OptimiserConfig,
    PriorConfig,
    ScheduleConfig,
    TrainingConfig,
)


@dataclass(frozen=True, kw_only=True)
class PretrainConfig:
    """Pre-training of a backbone (GR²P)."""

    backbone: str = BACKBONE
    """gr2-mini, or folder or hub name of a T5, BART or encoder checkpoint to start from."""
    docids: SchemeConfig = SchemeConfig(scheme="title", words=12)
    training: Annotated[TrainingConfig, arg(name="")] = TrainingConfig(
        batches=BatchConfig(texts=16),
        optimiser=OptimiserConfig(learning_rate=1e-3, pretrained_rate=0.05),
        schedule=ScheduleConfig(steps=2000),
        prior=PriorConfig(vectors_per_document=0.0),
    )
    storage: Literal["fp32", "fp16", "int8"] = "fp32"
    """Number format of the stored weights; int8 has one scale per row."""


PRETRAIN_PRESETS: Mapping[str, PretrainConfig] = {
    "default": PretrainConfig(),
    "paper": PretrainConfig(
        backbone=PAPER_BACKBONE,
        docids=SchemeConfig(scheme="title", words=32),
        training=replace(
            PAPER_TRAINING,
            schedule=replace(PAPER_TRAINING.schedule, self_negative_steps=0),
            augment=AugmentConfig(document=True, pieces=0, max_words=512),
        ),
    ),
}
"""`default`: for a small backbone on a CPU; `paper`: the paper's settings, with whole titles as docids."""


def pretrain_preset(name: str) -> PretrainConfig:
    """A preset of pre-training by name; the error for an unknown name lists the known ones."""
    if name not in PRETRAIN_PRESETS:
        raise ValueError(
            f"pre-training has no preset {name!r}; its presets are: {', '.join(PRETRAIN_PRESETS)}"
        )
    return PRETRAIN_PRESETS[name]


@dataclass(frozen=True, kw_only=True)
class QuestionsConfig:
    """How a generator learns to ask."""

    steps: int = 300
    """Optimiser steps."""
    batch: int = 16
    """Pairs per batch."""
    optimiser: OptimiserConfig = GeneratorConfig().optimiser
    text_tokens: int = 96
    """Tokens to which a text is truncated."""
    question_tokens: int = 32
    """Tokens to which a question is truncated."""
    smoothing: float = 0.0
    """Label smoothing of the questions' tokens, from 0 to 1."""
    seed: int = 0
    """Random seed; the same seed gives the same generator."""
    device: str = "auto"
    """Device to train on: auto takes cuda, then mps, else cpu."""

    @property
    def generation(self) -> GeneratorConfig:
        """The settings of a docid generator that learns nothing but to ask."""
        return GeneratorConfig(
            fusion=FusionConfig(regularised=False, smoothing=self.smoothing),
            steps=self.steps,
            batch=self.batch,
            optimiser=self.optimiser,
            document_tokens=self.text_tokens,
            query_tokens=self.question_tokens,
            device=self.device,
        )
