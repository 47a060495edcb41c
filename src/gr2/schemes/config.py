"""All settings of docid schemes; each default is defined here and nowhere else.

Imports nothing heavy, because the command line is generated from these classes.
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from gr2.training.config import OptimiserConfig


@dataclass(frozen=True, kw_only=True)
class FusionConfig:
    """The fusion network and its loss; the defaults are the paper's unless a field says otherwise."""

    regularised: bool = True
    """Train with the latent space; without it, this is the plain generator of the scheme `query` (−RF)."""
    width: int = 128
    """Z, dimensions of the latent space."""
    slots: int = 8
    """M, memory slots through which the decoder attends to the latent vector."""
    latent_only: bool = False
    """Let the generator's decoder attend to the slots only, as the autoencoder's does."""
    similarity: Literal["cosine", "dot"] = "cosine"
    """Similarity used in L_Rel and L_Div. paper: dot."""
    temperature: float = 0.1
    """Temperature that divides the similarities in L_Rel. paper: none, since its dot products are large."""
    log: bool = True
    """Compute L_Rel as cross-entropy. paper: the softmax ratio without the logarithm."""
    alpha: float = 1.0
    """α, weight of L_Rel."""
    beta: float = 30.0
    """β, weight of L_Div."""
    smoothing: float = 0.1
    """Label smoothing of the generated tokens, from 0 to 1."""
    dropout: bool = False
    """Train with the backbone's own dropout (T5: 0.1). paper: yes."""


@dataclass(frozen=True, kw_only=True)
class GeneratorConfig:
    """Training and decoding of the docid generator (schemes fusion and query)."""

    fusion: FusionConfig = FusionConfig()
    steps: int = 1000
    """Optimiser steps of the docid generator. paper: 50000."""
    pairs: int = 20_000
    """Maximum document-query pairs to train on, of each document first its most specific queries; 0 takes
    all. paper: all."""
    batch: int = 16
    """Document-query pairs per batch. paper: 60."""
    optimiser: OptimiserConfig = OptimiserConfig(
        learning_rate=1e-3, pretrained_rate=0.3, average=0.0, bf16=False
    )
    document_tokens: int = 128
    """Tokens to which a document is truncated. paper: 512."""
    query_tokens: int = 16
    """Tokens to which a query is truncated; also the maximum length of a docid."""
    radius: float = 2.0
    """|r|, distance from the document's latent vector at which to sample. paper: 2 (graded), 1.5 (binary)."""
    beams: int = 10
    """Beams, hence the maximum proposals per document."""
    length_penalty: float = 1.0
    """Exponent of the length by which a proposal's score is divided."""
    round_trip: float = 0.0
    """Weight of log(1 / rank) in a proposal's score, the rank at which BM25 finds the document by it. paper:
    0, likelihood alone."""
    most_answers: int = 0
    """Queries that more documents answer are not learned from, nor those by which BM25 does not find the
    document among as many; 0 takes all. paper: all."""
    own_questions: int = 0
    """Questions of each document to learn from that the checkpoint itself asks, if BM25 finds the document
    by them first; the checkpoint must be a trained generator (`gr2 generator train`). paper: 0."""
    device: str = "auto"
    """Device to train and decode on: auto takes cuda, then mps, else cpu."""
    tries: int = 3
    """New samples for a document whose proposals are all taken, each at twice the previous radius."""

    @property
    def learning(self) -> dict[str, Any]:
        """The settings of training; the others concern decoding and can change afterwards."""
        writing = ("radius", "beams", "length_penalty", "tries", "round_trip", "device")
        return {name: value for name, value in asdict(self).items() if name not in writing}


@dataclass(frozen=True, kw_only=True)
class SchemeConfig:
    """How documents get docids."""

    scheme: str = "auto"
    """Docid scheme; auto takes title if nearly all documents have one, else summary."""
    words: int = 6
    """Maximum words of a docid taken from the document's text (title, url, summary, terms)."""
    rarest_first: bool = False
    """Let the decoder write the words of a docid in the order of their rarity; the text that people see keeps
    its own order. Docids of codes are not affected."""
    branches: int = 10
    """Clusters per level of hierarchical k-means. DSI: 10. NCI: 30."""
    max_leaf: int = 100
    """Documents up to which k-means does not split a cluster again. DSI: 100. NCI: 30."""
    code_length: int = 0
    """Codes per pq, rq or codes-words docid; 0 means 24 for pq (Ultron) and codes-words, 32 for rq
    (RIPOR)."""
    codebook_size: int = 256
    """Different codes at each position of a pq, rq or codes-words docid; a power of 2."""
    kept_words: int = 64
    """Best words of each document that codes-words keeps beside its codes."""
    encoder: str = ""
    """Checkpoint that encodes documents for kmeans, pq, rq and codes-words; empty means the backbone."""
    generator: str = ""
    """Checkpoint from which the docid generator of fusion and query is trained; empty means the backbone."""
    generation: GeneratorConfig = GeneratorConfig()
    seed: int = 0
    """Random seed; the same seed gives the same docids."""
