"""A checkpoint's configuration → the family that it belongs to, or an error; and its dropout.

Three families of checkpoint can be trained: T5 (and mT5), BART, and text encoders. Others would load in part
and be wrong in silence: umT5 has position biases in every layer, mBART normalises before each layer.
"""

from importlib import import_module
from pathlib import Path
from typing import Any, Literal

Family = Literal["t5", "bart", "encoder"]
WORKING = (
    "T5 and mT5, BART, text encoders (BERT, RoBERTa, DistilBERT, MPNet, ...), or what gr2 pretrain wrote"
)
"""What an error about an unknown family recommends."""


def family_of(backbone: str | Path) -> Family:
    """The family of a checkpoint, by folder or hub name; one that cannot be trained is an error."""
    config = transformers().AutoConfig.from_pretrained(backbone)
    kind = config.model_type
    if kind in ("t5", "mt5"):
        return "t5"
    if kind == "bart":
        return "bart"
    encoders = import_module("transformers.models.auto.modeling_auto").MODEL_FOR_MASKED_LM_MAPPING_NAMES
    if config.is_encoder_decoder or kind not in encoders:
        raise ValueError(f"{backbone}: is a {kind} checkpoint, which cannot be trained here; use {WORKING}")
    return "encoder"


def configuration(place: str | Path, *, dropout: bool) -> Any:
    """A stored configuration, with its own dropout or with none."""
    config = transformers().AutoConfig.from_pretrained(place)
    for name, value in config.to_dict().items():
        if "drop" in name and isinstance(value, float) and not dropout:
            setattr(config, name, 0.0)
    return config


def dropout_of(config: Any) -> float:
    """The dropout of a text encoder's states, which a decoder beside it gets too."""
    return float(getattr(config, "hidden_dropout_prob", None) or getattr(config, "dropout", None) or 0.0)


def transformers() -> Any:
    """The library, imported on first use; typed as Any because its annotations miss its dynamic classes."""
    return import_module("transformers")
