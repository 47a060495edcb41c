"""All settings of a model and of search; each default is defined here and nowhere else.

Imports nothing heavy, because the command line is generated from these classes.
"""

from dataclasses import dataclass
from typing import Literal

from gr2.bm25 import BM25Config
from gr2.model.document_features import FEATURES

BACKBONE = "gr2-mini"
"""The backbone that comes with the package, and the default everywhere."""
Normaliser = Literal["vocabulary", "trie"]
"""What a token's probability is normalised over: all docid tokens (the paper), or the node's children."""
VectorStorage = Literal["fp32", "int8", "pq"]
"""How look-ahead stores vectors: 32 bits per dimension, 8 bits, or product-quantised, 1 bit per dimension."""


@dataclass(frozen=True, kw_only=True)
class VectorConfig:
    """How a document is encoded as vectors; printed with every result."""

    words: int = 32
    """Words per piece, not counting the title before it."""
    pieces: int = 8
    """Maximum pieces per document; 0 encodes only the leading text, which is much faster."""
    mix: float = 0.5
    """Weight of the document's mean vector in the dense score, from 0 to 1; its best piece has the rest."""
    max_tokens: int = 128
    """Tokens to which each text is truncated, including the leading text."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if min(self.words, self.max_tokens) < 1 or self.pieces < 0 or not 0 <= self.mix <= 1:
            raise ValueError(
                f"expected words and max_tokens from 1, pieces from 0 and mix from 0 to 1, not {self}"
            )

    @classmethod
    def leading(cls, tokens: int) -> "VectorConfig":
        """Encode only the leading tokens of a document; 0 gives the default, with pieces."""
        return cls(pieces=0, max_tokens=tokens) if tokens else cls()

    def __str__(self) -> str:
        """As printed with results. File names of saved vectors hash this text, so its wording is fixed."""
        return f"words={self.words} pieces={self.pieces} mix={self.mix:g} longest={self.max_tokens}"


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """The new parts of a network; all pretrained parts come from the backbone."""

    decoder_layers: int = 2
    """Layers of the new decoder of a text encoder; T5 and BART have a decoder already."""
    decoder_heads: int = 6
    """Attention heads of a new decoder."""
    decoder_feed_forward: int = 1024
    """Feed-forward width of a new decoder."""
    unit_norm_head: bool = False
    """Start the output layer of a new decoder with unit-norm rows; a frozen one needs them."""
    representation: int = 256
    """H, width of the representations f_q and f_id."""
    shared: bool = False
    """Use one projection ξ for both queries and docids."""
    dropout: bool = False
    """Train with the backbone's own dropout (T5: 0.1). paper: yes."""


@dataclass(frozen=True, kw_only=True)
class GR2Config:
    """The settings stored in a model folder, besides weights and docids."""

    network: NetworkConfig = NetworkConfig()
    normaliser: Normaliser
    """Normaliser of token probabilities, in training and in search."""
    max_tokens: int
    """Tokens to which a query or document text is truncated."""


@dataclass(frozen=True, kw_only=True)
class LookAheadConfig:
    """φ(q, d), the score of every document before a token is written. paper: not in it."""

    scale: float = 20.0
    """s, the weight of the dot product of query and document vectors."""
    words: float = 1.0
    """w, the weight of BM25; 0 leaves words out."""
    bm25: BM25Config = BM25Config()
    kept_words: int = 0
    """Best words of each document that are kept, with 4-bit weights; 0 keeps all."""
    gate: tuple[float, float] | None = None
    """Trust in what was learned, by the query's highest cosine to a training query: none at the first number,
    full at the second; None trusts it for every query."""
    memory: float = 0.0
    """η, the weight of the judgements of similar training queries; 0 leaves them out."""
    neighbours: int = 20
    """Training queries that the memory consults."""
    temperature: float = 0.05
    """Of the softmax over the cosines to these training queries."""
    prior: tuple[float, ...] = ()
    """β, the weight of each of `document_features`; empty learns it from judgements, if that gains."""
    residual: float = 0.0
    """Weight of sim(f_q, f_id), which the decoder adds to φ; 0 leaves the decoder out."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if min(self.scale, self.words, self.memory, self.residual, self.kept_words) < 0:
            raise ValueError(
                f"expected scale, words, kept_words, memory and residual of at least 0, not {self}"
            )
        if self.neighbours < 1 or self.temperature <= 0:
            raise ValueError(f"expected neighbours of at least 1 and a temperature above 0, not {self}")
        if len(self.prior) not in (0, len(FEATURES)):
            raise ValueError(f"expected a weight for each of {', '.join(FEATURES)}, found {self.prior}")
        if self.gate is not None and not self.gate[0] < self.gate[1]:
            raise ValueError(f"expected a gate whose first number is below the second, not {self.gate}")


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """How a model is searched."""

    beams: int = 20
    """Beams of beam search; k if k is larger."""
    mode: Literal["beam", "exact"] = "beam"
    """Beam search, or best-first search that proves its result if the budget allows."""
    budget: int = 2000
    """Maximum decoder tokens per query in exact search."""
    similarity_weight: float = 0.0
    """Weight of sim(f_q, f_id) added to log P; 0 ranks by log P alone."""
    batch: int = 16
    """Queries decoded together."""
