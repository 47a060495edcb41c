"""Regularised fusion: a generator and an autoencoder with one decoder and one latent space (paper §3.1).

The generator reads a document, the autoencoder a query; both write the query. A transformer has no initial
state, so the latent vector z becomes a few memory slots that the decoder attends to: for the autoencoder
there is nothing else to see, for the generator also the document's states. `regularised=False` has no latent
space and no autoencoder: the plain generator of pseudo-queries (−RF). This file knows no batches and no
collection.

Shapes: B texts, S source tokens, T target tokens, W width, Z width of the latent space, M slots.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gr2 import losses
from gr2.docids import latent
from gr2.network import END, START, Network, NetworkConfig
from gr2.weights import weights_of


@dataclass(frozen=True, kw_only=True)
class FusionConfig:
    """The network and its loss; the defaults are the paper's where it has one."""

    regularised: bool = True
    """False is the plain generator of pseudo-queries: the variant −RF."""
    width: int = 64
    """Z."""
    slots: int = 4
    """M."""
    latent_only: bool = False
    """Whether the generator's decoder sees the slots alone, like the autoencoder's."""
    similarity: latent.Similarity = "cosine"
    """In L_Rel and L_Div. paper: dot."""
    temperature: float = 0.1
    """What similarities are divided by in L_Rel. paper: none, for its dot products are large."""
    log: bool = True
    """L_Rel as cross-entropy. paper: the bare ratio."""
    alpha: float = 1.0
    beta: float = 30.0
    smoothing: float = 0.1
    """Label smoothing."""


class Fusion(nn.Module):
    """Both models; with `regularised=False` the generator alone."""

    def __init__(self, generator: Network, config: FusionConfig) -> None:
        """Put an autoencoder beside a generator: its own copy of the encoder, the same decoder."""
        super().__init__()
        self.config, self.generator = config, generator
        if config.regularised:
            width = generator.head.in_features
            self.autoencoder = deepcopy(generator.encoder)
            self.into = nn.ModuleDict({"document": nn.Linear(width, config.width)})
            self.into["query"] = nn.Linear(width, config.width)
            self.slots = nn.Linear(config.width, config.slots * width)

    @classmethod
    def build(
        cls, backbone: str | Path, tokens: Sequence[int], config: FusionConfig, *, seed: int = 0
    ) -> "Fusion":
        """From a T5, BART or encoder checkpoint; `tokens` are those of its vocabulary that may be written."""
        generator = Network.build(backbone, tokens, NetworkConfig(), seed=seed)
        for unused in (generator.xi_query, generator.xi_docid):
            unused.requires_grad_(False)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return cls(generator, config)

    def read_documents(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor | None]:
        """Token ids and mask [B, S] → states [B, S, W], and e_d [B, Z] where there is a latent space."""
        states = self.generator.encode(ids, mask)
        return states, self._pooled("document", states, mask) if self.config.regularised else None

    def read_queries(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Token ids and mask [B, S] → e_q [B, Z]."""
        states = self.autoencoder(input_ids=ids, attention_mask=mask).last_hidden_state
        return self._pooled("query", self.generator.bridge(states), mask)

    def _pooled(self, name: str, states: Tensor, mask: Tensor) -> Tensor:
        """The masked mean, mapped into the space; tanh bounds every coordinate."""
        return torch.tanh(self.into[name](_mean(states, mask)))

    @torch.no_grad()
    def fill_space(self, batch: "PairBatch") -> None:
        """Let the documents and queries of a large batch fill the latent space, before any training."""
        states = self.generator.encode(batch.documents, batch.document_mask)
        found = self.autoencoder(input_ids=batch.queries, attention_mask=batch.query_mask).last_hidden_state
        weights, *biases = latent.filling(
            _mean(states, batch.document_mask),
            _mean(self.generator.bridge(found), batch.query_mask),
            self.config.width,
        )
        for name, bias in zip(("document", "query"), biases, strict=True):
            layer: Any = self.into[name]
            layer.weight[: len(weights)] = weights
            layer.bias[: len(weights)] = bias

    def memory(self, z: Tensor | None, states: Tensor | None, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """What the decoder attends to: the slots of z [B, Z], then states [B, S, W] where it sees them."""
        found: list[tuple[Tensor, Tensor]] = []
        if z is not None:
            slots = self.slots(z).view(len(z), self.config.slots, -1)
            found.append((slots, torch.ones(slots.shape[:2], dtype=torch.long)))
        if states is not None and mask is not None and not (self.config.latent_only and z is not None):
            found.append((states, mask))
        return torch.cat([states for states, _ in found], 1), torch.cat([mask for _, mask in found], 1)

    def log_likelihood(self, memory: tuple[Tensor, Tensor], targets: Tensor, real: Tensor) -> Tensor:
        """The log P(target) [B] of targets [B, T] with their end, from what the decoder attends to."""
        reads = torch.cat([torch.full_like(targets[:, :1], START), targets[:, :-1]], 1)
        hidden = self.generator.decode(*memory, reads)
        return losses.log_likelihood(
            self.generator.head(hidden).float(), targets, real, smoothing=self.config.smoothing
        )

    def weights(self) -> dict[str, Tensor]:
        """The weights by name; what is shared is there once, under its first name."""
        return weights_of(self)

    def load(self, stored: Mapping[str, Tensor]) -> None:
        """Take weights that `weights` gave; a name or shape that does not fit is refused."""
        missing, unknown = self.load_state_dict(dict(stored), strict=False)
        wanted = set(missing) & set(self.weights())
        if wanted or unknown:
            raise ValueError(
                f"the weights do not fit the docid model: missing {sorted(wanted)[:3]}, unknown {unknown[:3]}"
            )

    def pretrained(self) -> set[nn.Parameter]:
        """What the backbone brought, twice: the generator's encoder and the autoencoder's."""
        own = set(self.autoencoder.parameters()) if self.config.regularised else set()
        return self.generator.pretrained() | own

    def hold(self, *, encoder: bool, tables: bool = False) -> None:
        """Let both encoders move or stand still; their word embeddings never move."""
        self.generator.hold(encoder=encoder, tables=tables)
        if self.config.regularised:
            self.autoencoder.requires_grad_(not encoder)
            self.autoencoder.get_input_embeddings().requires_grad_(False)


@dataclass(frozen=True)
class PairBatch:
    """Documents and queries, row by row; targets are the queries in the decoder's own tokens."""

    documents: Tensor  # [B, S]
    document_mask: Tensor  # [B, S]
    queries: Tensor  # [B, S]
    query_mask: Tensor  # [B, S]
    targets: Tensor  # [B, T] with END, 0 behind it
    real: Tensor  # [B, T] where there is one

    @property
    def examples(self) -> int:
        """Pairs."""
        return len(self.documents)


def objective(fusion: Fusion, batch: PairBatch) -> dict[str, Tensor]:
    """The parts of L_Docid of a batch and `total`; without a latent space, L_MLE of the generator alone."""
    config = fusion.config
    states, e_d = fusion.read_documents(batch.documents, batch.document_mask)
    memory = fusion.memory(e_d, states, batch.document_mask)
    parts = {"generator": -fusion.log_likelihood(memory, batch.targets, batch.real).mean()}
    if e_d is None:
        return parts | {"total": parts["generator"]}
    e_q = fusion.read_queries(batch.queries, batch.query_mask)
    own = fusion.memory(e_q, None, None)
    parts["autoencoder"] = -fusion.log_likelihood(own, batch.targets, batch.real).mean()
    parts["relevance"] = latent.relevance(
        e_d, e_q, kind=config.similarity, temperature=config.temperature, log=config.log
    )
    parts["distinctness"] = latent.distinctness(e_d, e_q, kind=config.similarity)
    parts["total"] = latent.docid_loss(
        parts["generator"],
        parts["autoencoder"],
        parts["relevance"],
        parts["distinctness"],
        alpha=config.alpha,
        beta=config.beta,
    )
    return parts


def _mean(states: Tensor, mask: Tensor) -> Tensor:
    each = mask.unsqueeze(-1).to(states)
    return (states * each).sum(1) / each.sum(1).clamp_min(1)


def with_end(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Targets of unequal length → tokens with END behind them [B, T], and where there is one."""
    longest = max(map(len, rows)) + 1
    targets = torch.zeros(len(rows), longest, dtype=torch.long)
    for index, row in enumerate(rows):
        targets[index, : len(row) + 1] = torch.tensor([*row, END])
    lengths = torch.tensor([len(row) + 1 for row in rows])
    return targets, torch.arange(longest) < lengths[:, None]
