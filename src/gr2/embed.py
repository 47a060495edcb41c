"""Texts → unit vectors, by any pretrained encoder checkpoint: the masked mean of its last hidden states.

An encoder-decoder is read by its encoder half. Nothing is trained here, and this file knows no documents, no
queries and no docids.
"""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import normalize

from gr2.backbone import FreshDecoder, is_own, parts_of, tokenizer_of
from gr2.batches import padded

Vectors = NDArray[np.float32]
T5_LIKE = {"t5", "mt5", "umt5"}


class Encoder:
    """A pretrained text encoder with its tokenizer."""

    def __init__(self, name: str, network: Any, tokenizer: Any) -> None:
        """Put the parts together; use `Encoder.load` to get them from a checkpoint."""
        self.name, self.network, self.tokenizer = name, network, tokenizer
        self.width = int(getattr(network.config, "hidden_size", None) or network.config.d_model)
        positions = getattr(network.config, "max_position_embeddings", None) or tokenizer.model_max_length
        self.limit = min(int(positions), int(tokenizer.model_max_length))

    @classmethod
    def load(cls, backbone: str | Path) -> "Encoder":
        """Read a checkpoint by folder or hub name; one that lacks weights of the encoder is refused."""
        if is_own(backbone):
            encoder = parts_of(backbone, FreshDecoder()).encoder
            return cls(Path(backbone).name, encoder.eval(), tokenizer_of(backbone))
        hf = import_module("transformers")
        kind = hf.AutoConfig.from_pretrained(backbone)
        reader = hf.AutoModelForTextEncoding if kind.model_type in T5_LIKE else hf.AutoModel
        model, found = reader.from_pretrained(backbone, dtype=torch.float32, output_loading_info=True)
        missing = {name for name in found["missing_keys"] if not name.startswith(("pooler.", "decoder."))}
        network = model
        if kind.is_encoder_decoder:
            network, tables = model.get_encoder(), {"shared.weight", "encoder.embed_tokens.weight"}
            # transformers ties the two only if the config ties the head too; else one is filled with noise.
            if hasattr(model, "shared") and "shared.weight" not in missing:
                network.embed_tokens.weight = model.shared.weight
            if not tables <= missing:
                missing -= tables
        if missing:
            raise ValueError(f"{backbone}: has no weights for {', '.join(sorted(missing)[:3])}")
        return cls(Path(backbone).name, network.eval(), hf.AutoTokenizer.from_pretrained(backbone))

    @torch.inference_mode()
    def encode(
        self, texts: Sequence[str], *, batch: int = 64, longest: int = 128, progress: bool = False
    ) -> Vectors:
        """Texts → unit vectors [N, width], in the texts' order; equal texts are encoded once.

        The batches depend on the set of texts and not on their order, so neither do the vectors.

        Args:
            texts: any number of texts; one that has no token at all becomes the zero vector.
            batch: texts encoded together; it changes the speed, and the vectors by rounding only.
            longest: tokens at which a text is cut, special ones included; at most what the checkpoint reads.
            progress: whether to show a bar.
        """
        from tqdm import tqdm

        place = {text: index for index, text in enumerate(dict.fromkeys(texts))}
        rows = self._read(list(place), min(longest, self.limit))
        order = sorted(range(len(rows)), key=lambda i: (len(rows[i]), rows[i].tobytes()))
        vectors = np.zeros((len(rows), self.width), np.float32)
        groups = [order[start : start + batch] for start in range(0, len(order), batch)]
        with tqdm(total=len(rows), unit="text", leave=False, disable=not progress) as bar:
            for group in reversed(groups):  # the longest first: the time left is not underestimated
                vectors[group] = self._vectors([rows[i] for i in group])
                bar.update(len(group))
        return vectors[[place[text] for text in texts]]

    def _read(self, texts: list[str], longest: int, block: int = 4096) -> list[NDArray[np.int32]]:
        """Token ids of each text, kept small: a corpus of them is held at once."""
        return [
            np.array(row, np.int32)
            for start in range(0, len(texts), block)
            for row in self.tokenizer(texts[start : start + block], truncation=True, max_length=longest)[
                "input_ids"
            ]
        ]

    def _vectors(self, rows: list[NDArray[np.int32]]) -> Vectors:
        ids, mask = padded([row.tolist() for row in rows])
        if not ids.numel():
            return np.zeros((len(rows), self.width), np.float32)
        states = self.network(input_ids=ids, attention_mask=mask).last_hidden_state  # [B, S, W]
        states = torch.where(mask.unsqueeze(-1) > 0, states, 0.0)
        means: Vectors = normalize(states.sum(1) / mask.sum(1, keepdim=True).clamp_min(1), dim=1).numpy()
        return means
