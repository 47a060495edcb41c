"""The name of a pretrained text encoder → the encoder: a network, or a static table of embeddings."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from gr2.model.backbone import is_static
from gr2.model.encoder import QUERY_TOKENS, Encoder, Vectors, Watch, unwatched
from gr2.model.static_encoder import StaticEncoder


class TextEncoder(Protocol):
    """Whatever turns documents and queries into unit vectors."""

    name: str

    def encode(
        self,
        texts: Sequence[str],
        *,
        max_tokens: int = QUERY_TOKENS,
        progress: bool = False,
        watch: Watch = unwatched,
    ) -> Vectors:
        """The vectors of the texts [len(texts), W]; zeros for a text without tokens."""


def load_encoder(name: str | Path, *, device: str = "auto") -> TextEncoder:
    """Load an encoder by folder or hub name; a folder of model2vec is a static encoder."""
    return StaticEncoder.load(name) if is_static(name) else Encoder.load(name, device=device)
