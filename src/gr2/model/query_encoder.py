"""Query texts → unit vectors in the space of the documents' vectors.

A text encoder reads queries as it reads documents (`Encoder`). T5 and BART are no sentence encoders, so there
both are whitened means of word embeddings (`WordEncoder`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gr2.model.encoder import Vectors
from gr2.model.word_prior import unit_rows


class QueryEncoder(Protocol):
    """Whatever turns texts into unit vectors."""

    def encode(self, texts: Sequence[str]) -> Vectors:
        """The vectors of the texts [len(texts), W]; zeros for a text without tokens."""


@dataclass(frozen=True)
class WordMap:
    """The map from a text's mean word embedding m to a vector: ``unit((unit(m) - centre) @ turn)``."""

    centre: Vectors
    """[W]"""
    turn: Vectors
    """[W, W]"""


@dataclass(frozen=True)
class WordEncoder:
    """Texts as whitened means of word embeddings."""

    table: Vectors
    """[V, W] the embedding of each token."""
    tokenizer: Any
    map: WordMap
    max_tokens: int
    """Tokens to which a text is truncated."""

    def encode(self, texts: Sequence[str]) -> Vectors:
        """The vectors of the texts [len(texts), W]; zeros for a text without tokens."""
        found = np.zeros((len(texts), self.table.shape[1]), np.float64)
        for row, text in enumerate(texts):
            tokens = self.tokenizer(text, truncation=True, max_length=self.max_tokens)["input_ids"]
            if tokens:
                found[row] = self.table[tokens].mean(0, dtype=np.float64)
        known = np.linalg.norm(found, axis=1) > 0
        found[known] = unit_rows((unit_rows(found[known]) - self.map.centre) @ self.map.turn)
        return found.astype(np.float32)
