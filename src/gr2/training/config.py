"""All settings of a training run; each default is defined here and nowhere else.

The defaults are those that docs/results.md recommends for a small model on a CPU; where the paper's value is
known and differs, the field says so. `systems/config.py` has the paper's settings as a preset. Imports
nothing heavy, because the command line is generated from these classes.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from typing import Any, Literal, TypeVar

from gr2.model.config import LookAheadConfig, NetworkConfig, Normaliser, VectorConfig, VectorStorage
from gr2.store import typed

Similarity = Literal["cosine", "dot"]
Constraint = Literal["pair", "next", "level_mean", "off"]
Penalty = Literal["prose", "literal", "pow2", "uniform"]
Against = Literal["all", "lower"]
Config = TypeVar("Config")


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig:
    """The loss L_total = γ·L_MGCC + L_MLE^q + L_MLE^d and its variants."""

    gamma: float = 1.0
    """γ, weight of L_MGCC; 0 drops L_MGCC and does not compute representations."""
    temperature: float = 0.1
    """τ, temperature of L_MGCC."""
    similarity: Similarity = "cosine"
    """Similarity of f_q and f_id in L_MGCC."""
    penalty: Penalty = "prose"
    """Interpretation of the grade penalty λ; uniform is the variant no-lambda."""
    constraint: Constraint = "pair"
    """How a grade's loss is bounded by those of higher grades; off is the variant no-max."""
    against: Against = "all"
    """Docids that L_MGCC contrasts a docid with: all of A_q, or lower grades and negatives (decoupled)."""
    query_loss: str = "mle"
    """Loss of query-docid pairs: mle (L_MLE^q), weighted (CE), lambda_rank (LR), listwise, soft, or a
    registered one; with + between the names, their sum."""
    normaliser: Normaliser = "trie"
    """Softmax over the children of a trie node, or over all docid tokens. paper: vocabulary."""
    smoothing: float = 0.0
    """Label smoothing of docid tokens, from 0 to 1. paper: 0.1."""


@dataclass(frozen=True, kw_only=True)
class BatchConfig:
    """The size of a training batch."""

    queries: int = 16
    """Queries per batch."""
    per_grade: int = 2
    """Maximum docids per query and grade; the judged documents of a grade take turns over the epochs."""
    texts: int = 4
    """Document texts per batch."""
    self_negatives: int = 2
    """Self-negatives per query in the self-negative stage."""


@dataclass(frozen=True, kw_only=True)
class OptimiserConfig:
    """The optimiser, its learning rates, and weight averaging."""

    learning_rate: float = 1e-4
    """Peak learning rate of new parameters; a new decoder without a node prior needs 1e-3. paper: 5e-5."""
    pretrained_rate: float = 1.0
    """Factor on the learning rate of pretrained parameters."""
    weight_decay: float = 0.01
    """Weight decay of AdamW. paper: the same value, with Adam."""
    warmup: float = 0.1
    """Share of the steps over which the learning rate warms up, from 0 to 1. paper: the same."""
    clip: float = 1.0
    """Maximum gradient norm; larger gradients are clipped."""
    decay_from: float = 0.5
    """Share of the steps after which the learning rate falls linearly to 0, from 0 to 1. paper: not stated;
    its preset: 0.1, right after the warm-up."""
    accumulate: int = 1
    """Parts in which a batch is computed one after the other, to save memory; the gradient stays that of the
    whole batch, and L_MGCC costs a further forward pass."""
    gradient_checkpointing: bool = False
    """Recompute the activations within layers in the backward pass: far less memory, a third more time."""
    average: float = 0.3
    """Share of the steps, at the end of training, over which weights are averaged; 0 turns it off."""
    bf16: bool | None = None
    """Train in bfloat16 mixed precision; None uses it where the device has it in hardware."""

    def __post_init__(self) -> None:
        """Refuse what would make no sense."""
        if self.accumulate < 1:
            raise ValueError(f"expected accumulate of at least 1, found {self.accumulate}")
        for name in ("average", "warmup", "decay_from"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"expected {name} from 0 to 1, found {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """The stages of training, their length, validation and checkpoints."""

    frozen_steps: int = 0
    """Steps of a first stage with a frozen encoder, whose states are cached: many times faster per step."""
    steps: int = 200
    """Steps of the main stage, in which all weights are trained. paper: 50000."""
    self_negative_steps: int = 0
    """Steps of a last stage with the model's own wrong docids as extra negatives."""
    dev: str = ""
    """Split on which the best weights are selected, by decoding its queries; empty keeps the last weights."""
    measure: str = "nDCG@20"
    """Measure for selecting the best weights (nDCG with exponential gain)."""
    validate_every: int = 100
    """Steps between validations."""
    patience: int = 0
    """Validations without improvement after which training stops; 0 never stops early."""
    checkpoint_minutes: float = 5.0
    """Minutes between checkpoints."""
    log_every: int = 20
    """Steps between lines of metrics.jsonl, at most; short runs log more often."""

    def __post_init__(self) -> None:
        """Refuse what would make no sense."""
        for name in ("frozen_steps", "steps", "self_negative_steps", "patience"):
            if getattr(self, name) < 0:
                raise ValueError(f"expected {name} of at least 0, found {getattr(self, name)}")
        if min(self.validate_every, self.log_every) < 1:
            raise ValueError("expected validate_every and log_every of at least 1")


@dataclass(frozen=True, kw_only=True)
class AugmentConfig:
    """The texts of a document from which its docid is trained, besides its title."""

    document: bool = False
    """The whole document, as far as the model reads, instead of its title. paper: yes."""
    as_queries: bool = False
    """Use paragraphs, sentences, entities and pseudo-queries as queries with their own document as the top
    grade (L_MLE^q, L_MGCC), not as texts of the document (L_MLE^d). paper: yes."""
    paragraphs: int = 0
    """Leading paragraphs per document. paper: 3."""
    sentences: int = 0
    """Leading sentences per document. paper: 3."""
    entities: int = 0
    """Entities per document, drawn at random. paper: 3."""
    pieces: int = 8
    """Maximum pieces per document, spread evenly over its text. paper: none; they give coverage as in DSI."""
    words: int = 32
    """Words per piece."""
    max_words: int = 128
    """Words to which each text is truncated."""


@dataclass(frozen=True, kw_only=True)
class PriorConfig:
    """The node prior: document vectors in the trie, added to the decoder's logits. paper: has none."""

    vectors_per_document: float = 1.0
    """Vectors of the node prior per document; 0 means no prior. A prior needs the trie normaliser."""
    documents: VectorConfig = VectorConfig()
    """How documents are encoded as vectors."""


@dataclass(frozen=True, kw_only=True)
class LookAheadTraining:
    """Look-ahead: a score of every document before decoding, learned from judgements. paper: has none."""

    enabled: bool = False
    """Rank by look-ahead; a decoder is then trained as a residual, for the frozen steps, or not at all."""
    documents: VectorConfig = VectorConfig()
    """How documents are encoded as vectors; with pieces, leading text and mean are compared."""
    encoder: str = ""
    """Folder of a model2vec encoder whose vectors look-ahead uses instead of the backbone's; empty uses the
    backbone's."""
    learn: bool = True
    """Learn from the judgements of `train` and `dev` what cross-validation finds to help."""
    storage: VectorStorage = "fp32"
    """How the finished vectors are stored: fp32, int8 (a quarter of the bytes), or pq (product-quantised, 1
    byte per 8 dimensions; needs faiss and 256 documents). Learning uses fp32."""
    weights: LookAheadConfig = LookAheadConfig()
    """The weights to start from; gate and memory are chosen by cross-validation."""


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """A whole training run; saved in the model folder."""

    variant: str = "gr2"
    """Variant of the paper: gr2 (full), no-fusion (−RF), no-lambda (−λ), no-max (−Max), MLE, CE, LR; or
    LR-MLE, listwise, decoupled, soft, which are not in it."""
    objective: ObjectiveConfig = ObjectiveConfig()
    batches: BatchConfig = BatchConfig()
    optimiser: OptimiserConfig = OptimiserConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    augment: AugmentConfig = AugmentConfig()
    prior: PriorConfig = PriorConfig()
    look_ahead: LookAheadTraining = LookAheadTraining()
    network: NetworkConfig = NetworkConfig()
    max_tokens: int = 64
    """Tokens to which queries and document texts are truncated. paper: 512 for documents."""
    freeze_embeddings: bool = False
    """Freeze the embeddings and output rows of docid tokens; pre-training needs it."""
    seed: int = 0
    """Random seed; the same seed gives the same weights."""
    device: str = "auto"
    """Device to train on: auto takes cuda, then mps, else cpu."""

    def __post_init__(self) -> None:
        """Reject a node prior without the trie normaliser: the model could not be searched."""
        if self.prior.vectors_per_document > 0 and self.objective.normaliser != "trie":
            raise ValueError(
                "a node prior needs the trie normaliser: choose it, or 0 vectors per document for no prior"
            )
        schedule = self.schedule
        if not self.look_ahead.enabled:
            return
        if schedule.steps + schedule.self_negative_steps:
            raise ValueError(
                "with look-ahead the encoder is not trained, because its vectors are part of the score: set "
                "the steps to 0, or turn look_ahead.enabled off (--preset decoder does)"
            )
        if replace(self.objective, normaliser="trie") != ObjectiveConfig():
            raise ValueError("with look-ahead the loss is the variant's: leave the objective's settings out")
        if self.look_ahead.weights.gate is not None or self.look_ahead.weights.memory:
            raise ValueError("gate and memory of look-ahead are chosen by cross-validation: leave them out")
        if schedule.dev:
            raise ValueError(
                "look-ahead may learn from dev, so it cannot be validated there: leave schedule.dev out"
            )
        if (schedule.frozen_steps > 0) != (self.look_ahead.weights.residual > 0):
            raise ValueError(
                "with look-ahead the decoder is a residual: set both frozen_steps and "
                "look_ahead.weights.residual, or neither (--preset residual does)"
            )


def as_json(config: object) -> dict[str, Any]:
    """A configuration as plain JSON values."""
    return json.loads(json.dumps(asdict(config)))  # type: ignore[no-any-return, call-overload]


def from_json(kind: type[Config], stored: Mapping[str, Any]) -> Config:
    """A configuration from what `as_json` returned; missing fields get their defaults.

    >>> from_json(TrainingConfig, {"schedule": {"steps": 5}}).schedule.steps
    5
    """
    return typed(dict(stored), kind, kind.__name__)


def with_settings(config: Config, settings: Mapping[str, Any]) -> Config:
    """A configuration with some fields changed, each given by its dotted path.

    >>> with_settings(TrainingConfig(), {"schedule.steps": 5, "seed": 1}).schedule.steps
    5
    """
    changed: dict[str, Any] = {}
    inner: dict[str, dict[str, Any]] = {}
    for path, value in settings.items():
        name, _, rest = path.partition(".")
        if name not in {field.name for field in fields(config)}:  # type: ignore[arg-type]
            raise ValueError(f"{type(config).__name__} has no field {name!r}")
        if rest and not is_dataclass(getattr(config, name)):
            raise ValueError(f"{name} of {type(config).__name__} has no field {rest!r}")
        if rest:
            inner.setdefault(name, {})[rest] = value
        else:
            changed[name] = value
    for name, own in inner.items():
        changed[name] = with_settings(changed.get(name, getattr(config, name)), own)
    return replace(config, **changed)  # type: ignore[type-var]
