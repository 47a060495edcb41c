"""A query and texts → a score of each text, by a pretrained cross-encoder that reads both at once.

Far slower than vectors and often better: a teacher, not a search system. paper: not in it.
"""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gr2.model.device import device_of
from gr2.model.quiet import quiet

MAX_TOKENS = 256
"""Tokens to which a query and a text together are truncated."""


class CrossEncoder:
    """A pretrained sequence classifier with one logit, and its tokenizer."""

    def __init__(self, name: str, network: Any, tokenizer: Any) -> None:
        """Store the parts; use `CrossEncoder.load` to load a checkpoint."""
        self.name, self.network, self.tokenizer = name, network, tokenizer
        positions = getattr(network.config, "max_position_embeddings", None) or tokenizer.model_max_length
        self.limit = min(int(positions), int(tokenizer.model_max_length))

    @classmethod
    def load(cls, checkpoint: str | Path, *, device: str = "auto") -> "CrossEncoder":
        """Load a checkpoint by folder or hub name; it must have exactly one logit and all of its weights."""
        hf, place = import_module("transformers"), device_of(device)
        logits = hf.AutoConfig.from_pretrained(checkpoint).num_labels
        if logits != 1:
            raise ValueError(f"{checkpoint}: a cross-encoder has one logit, this checkpoint has {logits}")
        with quiet():
            network, found = hf.AutoModelForSequenceClassification.from_pretrained(
                checkpoint, dtype=torch.float32, output_loading_info=True, use_safetensors=True
            )
        if missing := sorted(found["missing_keys"]):
            raise ValueError(f"{checkpoint}: has no weights for {', '.join(missing[:3])}")
        tokenizer = hf.AutoTokenizer.from_pretrained(checkpoint)
        return cls(Path(checkpoint).name, network.eval().to(place), tokenizer)

    @torch.inference_mode()
    def scores(
        self, query: str, texts: Sequence[str], *, batch: int = 16, max_tokens: int = MAX_TOKENS
    ) -> NDArray[np.float32]:
        """The logit of each text for the query [len(texts)], in the order of the texts.

        Args:
            query: read together with each text.
            texts: any number of texts.
            batch: texts read at a time; apart from speed, this changes only rounding.
            max_tokens: tokens to which query and text together are truncated, the longer one first.
        """
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))  # little padding
        found = np.zeros(len(texts), np.float32)
        for start in range(0, len(order), batch):
            rows = order[start : start + batch]
            read = self.tokenizer(
                [query] * len(rows),
                [texts[i] for i in rows],
                truncation=True,
                max_length=min(max_tokens, self.limit),
                padding=True,
                return_tensors="pt",
            ).to(self.network.device)
            found[rows] = self.network(**read).logits[:, 0].float().cpu().numpy()  # [B]
        return found
