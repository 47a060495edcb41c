"""Texts → unit vectors, with any pretrained encoder: the masked mean of its last hidden states.

Of an encoder-decoder, only the encoder is used.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import normalize

from gr2.model.backbone import FreshDecoder, is_own, parts_of, tokenizer_of
from gr2.model.device import device_of
from gr2.model.padding import masked_mean, padded
from gr2.model.quiet import quiet

Vectors = NDArray[np.float32]
QUERY_TOKENS = 128
"""Tokens to which a text is truncated unless told otherwise."""
Watch = Callable[[float], None]
"""Called while texts are encoded, with the share that is done; what it raises ends the encoding."""
T5_LIKE = {"t5", "mt5", "umt5"}


def unwatched(done: float) -> None:
    """Do nothing; the default of `watch`."""


class Encoder:
    """A pretrained text encoder with its tokenizer."""

    def __init__(self, name: str, network: Any, tokenizer: Any) -> None:
        """Store the parts; use `Encoder.load` to load a checkpoint."""
        self.name, self.network, self.tokenizer = name, network, tokenizer
        self.width = int(getattr(network.config, "hidden_size", None) or network.config.d_model)
        positions = getattr(network.config, "max_position_embeddings", None) or tokenizer.model_max_length
        self.limit = min(int(positions), int(tokenizer.model_max_length))

    @classmethod
    def load(cls, backbone: str | Path, *, device: str = "auto") -> "Encoder":
        """Load a checkpoint by folder or hub name; missing encoder weights are an error."""
        place = device_of(device)
        if is_own(backbone):
            encoder = parts_of(backbone, FreshDecoder()).encoder
            return cls(Path(backbone).name, encoder.eval().to(place), tokenizer_of(backbone))
        hf = import_module("transformers")
        kind = hf.AutoConfig.from_pretrained(backbone)
        reader = hf.AutoModelForTextEncoding if kind.model_type in T5_LIKE else hf.AutoModel
        with quiet():
            model, found = reader.from_pretrained(
                backbone, dtype=torch.float32, output_loading_info=True, use_safetensors=True
            )
        missing = {name for name in found["missing_keys"] if not name.startswith(("pooler.", "decoder."))}
        network = model
        if kind.is_encoder_decoder:
            network, tables = model.get_encoder(), {"shared.weight", "encoder.embed_tokens.weight"}
            # transformers ties the two only if the config also ties the head; otherwise one is left random.
            if hasattr(model, "shared") and "shared.weight" not in missing:
                network.embed_tokens.weight = model.shared.weight
            if not tables <= missing:
                missing -= tables
        if missing:
            raise ValueError(f"{backbone}: has no weights for {', '.join(sorted(missing)[:3])}")
        return cls(Path(backbone).name, network.eval().to(place), hf.AutoTokenizer.from_pretrained(backbone))

    @torch.inference_mode()
    def encode(
        self,
        texts: Sequence[str],
        *,
        batch: int = 16,
        max_tokens: int = QUERY_TOKENS,
        progress: bool = False,
        watch: Watch = unwatched,
    ) -> Vectors:
        """Texts → unit vectors [N, width], in the order of the texts; equal texts are encoded once.

        Batches depend on the set of texts, not on their order, so the order does not change any vector.

        Args:
            texts: any number of texts; a text without tokens becomes the zero vector.
            batch: texts encoded together; apart from speed, this changes only rounding.
            max_tokens: tokens to which a text is truncated, including special ones.
            progress: show a progress bar.
            watch: called after each batch with the share of the tokens that are done.
        """
        from tqdm import tqdm

        place = {text: index for index, text in enumerate(dict.fromkeys(texts))}
        rows = self._read(list(place), min(max_tokens, self.limit))
        order = sorted(range(len(rows)), key=lambda i: (len(rows[i]), rows[i].tobytes()))
        vectors = np.zeros((len(rows), self.width), np.float32)
        groups = [order[start : start + batch] for start in range(0, len(order), batch)]
        done, total = 0, sum(map(len, rows))
        with tqdm(total=len(rows), unit="text", leave=False, disable=not progress) as bar:
            for group in reversed(groups):  # longest first, so that the time left is not underestimated
                vectors[group] = self._vectors([rows[i] for i in group])
                bar.update(len(group))
                done += sum(len(rows[i]) for i in group)
                watch(done / max(1, total))
        return vectors[[place[text] for text in texts]]

    def _read(self, texts: list[str], max_tokens: int, block: int = 4096) -> list[NDArray[np.int32]]:
        """Token ids of each text, as compact arrays because a whole corpus is held in memory."""
        return [
            np.array(row, np.int32)
            for start in range(0, len(texts), block)
            for row in self.tokenizer(texts[start : start + block], truncation=True, max_length=max_tokens)[
                "input_ids"
            ]
        ]

    def _vectors(self, rows: list[NDArray[np.int32]]) -> Vectors:
        ids, mask = padded([row.tolist() for row in rows], device=self.network.device)
        if not ids.numel():
            return np.zeros((len(rows), self.width), np.float32)
        states = self.network(input_ids=ids, attention_mask=mask).last_hidden_state  # [B, S, W]
        means: Vectors = normalize(masked_mean(states, mask), dim=1).cpu().numpy()
        return means
