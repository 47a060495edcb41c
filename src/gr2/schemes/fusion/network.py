"""Regularised fusion: a generator and an autoencoder that share a decoder and a latent space (paper §3.1).

The generator reads a document, the autoencoder a query; both generate the query. A transformer has no initial
state, so the latent vector z becomes a few memory slots that the decoder attends to: the autoencoder's
decoder sees nothing else, the generator's also sees the document's states. With `regularised=False` there is
no latent space and no autoencoder, only the plain generator of pseudo-queries (−RF).

Shapes: B texts, S source tokens, T target tokens, W width, Z width of the latent space, M slots.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gr2.model.config import NetworkConfig
from gr2.model.network import END, START, Network
from gr2.model.padding import masked_mean
from gr2.model.quantised_io import weights_of
from gr2.schemes.config import FusionConfig
from gr2.schemes.fusion import latent
from gr2.training import likelihoods
from gr2.training.gradients import Each, whole


class Fusion(nn.Module):
    """Generator and autoencoder; with `regularised=False` the generator alone."""

    def __init__(self, generator: Network, config: FusionConfig) -> None:
        """Add an autoencoder to a generator: its own copy of the encoder, the same decoder."""
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
        """Build from a T5, BART or encoder checkpoint; `tokens` of its vocabulary can be generated."""
        generator = Network.build(backbone, tokens, NetworkConfig(dropout=config.dropout), seed=seed)
        for unused in (generator.xi_query, generator.xi_docid):
            unused.requires_grad_(False)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return cls(generator, config)

    def read_documents(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor | None]:
        """Token ids and mask [B, S] → states [B, S, W], and e_d [B, Z] if there is a latent space."""
        states = self.generator.encode(ids, mask)
        return states, self._pooled("document", states, mask) if self.config.regularised else None

    def read_queries(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Token ids and mask [B, S] → e_q [B, Z]."""
        states = self.autoencoder(input_ids=ids, attention_mask=mask).last_hidden_state
        return self._pooled("query", self.generator.bridge(states), mask)

    def _pooled(self, name: str, states: Tensor, mask: Tensor) -> Tensor:
        """The masked mean of the states, projected into the latent space; tanh bounds every coordinate."""
        return torch.tanh(self.into[name](masked_mean(states, mask)))

    @torch.no_grad()
    def fill_space(self, batch: "PairBatch") -> None:
        """Initialise the projections so that a large batch fills the latent space."""
        states = self.generator.encode(batch.documents, batch.document_mask)
        found = self.autoencoder(input_ids=batch.queries, attention_mask=batch.query_mask).last_hidden_state
        weights, *biases = latent.filling(
            masked_mean(states, batch.document_mask),
            masked_mean(self.generator.bridge(found), batch.query_mask),
            self.config.width,
        )
        for name, bias in zip(("document", "query"), biases, strict=True):
            layer: Any = self.into[name]
            layer.weight[: len(weights)] = weights
            layer.bias[: len(weights)] = bias

    def memory(self, z: Tensor | None, states: Tensor | None, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """What the decoder attends to: the slots of z [B, Z], then the states [B, S, W] if it sees them."""
        found: list[tuple[Tensor, Tensor]] = []
        if z is not None:
            slots = self.slots(z).view(len(z), self.config.slots, -1)
            found.append((slots, torch.ones(slots.shape[:2], dtype=torch.long, device=slots.device)))
        if states is not None and mask is not None and not (self.config.latent_only and z is not None):
            found.append((states, mask))
        return torch.cat([states for states, _ in found], 1), torch.cat([mask for _, mask in found], 1)

    def log_likelihood(self, memory: tuple[Tensor, Tensor], targets: Tensor, real: Tensor) -> Tensor:
        """The log-likelihood [B] of targets [B, T] that include END, given what the decoder attends to."""
        reads = torch.cat([torch.full_like(targets[:, :1], START), targets[:, :-1]], 1)
        hidden = self.generator.decode(*memory, reads)
        return likelihoods.log_likelihood(
            self.generator.head(hidden).float(), targets, real, smoothing=self.config.smoothing
        )

    def weights(self) -> dict[str, Tensor]:
        """The weights by name; shared weights appear once, under their first name."""
        return weights_of(self)

    def load(self, stored: Mapping[str, Tensor]) -> None:
        """Load what `weights` returned; a missing or unknown name is an error."""
        missing, unknown = self.load_state_dict(dict(stored), strict=False)
        wanted = set(missing) & set(self.weights())
        if wanted or unknown:
            raise ValueError(
                f"the weights do not fit the docid model: missing {sorted(wanted)[:3]}, unknown {unknown[:3]}"
            )

    def pretrained(self) -> set[nn.Parameter]:
        """The parameters of the backbone, in the generator and in the autoencoder."""
        own = set(self.autoencoder.parameters()) if self.config.regularised else set()
        return self.generator.pretrained() | own

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.generator.device

    def freeze(self, *, encoder: bool, embeddings: bool = False) -> None:
        """Freeze or unfreeze both encoders; their word embeddings are always frozen."""
        self.generator.freeze(encoder=encoder, embeddings=embeddings)
        if self.config.regularised:
            self.autoencoder.requires_grad_(not encoder)
            self.autoencoder.get_input_embeddings().requires_grad_(False)


@dataclass(frozen=True)
class PairBatch:
    """Pairs of documents and queries; targets are the queries in the decoder's own vocabulary."""

    documents: Tensor  # [B, S]
    document_mask: Tensor  # [B, S]
    queries: Tensor  # [B, S]
    query_mask: Tensor  # [B, S]
    targets: Tensor  # [B, T] with END, then padded with 0
    real: Tensor  # [B, T] False at padding

    @property
    def examples(self) -> int:
        """Number of pairs."""
        return len(self.documents)

    @property
    def sizes(self) -> dict[str, int]:
        """The number of examples of each term of the loss."""
        return {"generator": self.examples, "autoencoder": self.examples}

    def parts(self, count: int) -> list["PairBatch"]:
        """The pairs in at most so many parts, in order, each padded to its own longest texts."""
        rows = torch.arange(self.examples, device=self.documents.device).tensor_split(count)
        return [self._part(some) for some in rows if len(some)]

    def _part(self, rows: Tensor) -> "PairBatch":
        masks = (self.document_mask, self.query_mask, self.real)
        document, query, target = (int(mask[rows].sum(1).max()) for mask in masks)
        return PairBatch(
            self.documents[rows, :document],
            self.document_mask[rows, :document],
            self.queries[rows, :query],
            self.query_mask[rows, :query],
            self.targets[rows, :target],
            self.real[rows, :target],
        )


class FusionObjective:
    """L_Docid; without a latent space, the generator's L_MLE."""

    def __init__(self, config: FusionConfig) -> None:
        """Weigh the terms by α and β of the configuration."""
        self.config = config

    def __call__(self, fusion: Fusion, batch: PairBatch) -> dict[str, Tensor]:
        """The terms of L_Docid of a batch, and their `total`."""
        return whole(self, fusion, batch)

    @property
    def compares(self) -> bool:
        """Whether there are L_Rel and L_Div, which compare vectors across the batch."""
        return self.config.regularised

    def each(self, fusion: Fusion, batch: PairBatch) -> Each:
        """L_MLE of both models for each pair [B], and the latent vectors e_d and e_q [B, Z]."""
        states, e_d = fusion.read_documents(batch.documents, batch.document_mask)
        memory = fusion.memory(e_d, states, batch.document_mask)
        terms = {"generator": -fusion.log_likelihood(memory, batch.targets, batch.real)}
        if e_d is None:
            return Each(terms)
        e_q = fusion.read_queries(batch.queries, batch.query_mask)
        own = fusion.memory(e_q, None, None)
        terms["autoencoder"] = -fusion.log_likelihood(own, batch.targets, batch.real)
        return Each(terms, (e_d, e_q))

    def across(self, batch: PairBatch, representations: Sequence[Tensor]) -> dict[str, Tensor]:
        """L_Rel and L_Div, from e_d and e_q [B, Z]."""
        how = self.config
        rel = latent.relevance(
            *representations, kind=how.similarity, temperature=how.temperature, log=how.log
        )
        return {"relevance": rel, "distinctness": latent.distinctness(*representations, kind=how.similarity)}

    def total(self, terms: Mapping[str, Tensor]) -> Tensor:
        """L_Docid of the means of the terms; a missing one counts as 0."""
        names = ("generator", "autoencoder", "relevance", "distinctness")
        nothing = torch.zeros((), device=next(iter(terms.values())).device)
        means = (terms.get(name, nothing).mean() for name in names)
        return latent.docid_loss(*means, alpha=self.config.alpha, beta=self.config.beta)


def with_end(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Targets of different lengths → tokens [B, T] with END appended, and a mask that is False at padding."""
    longest = max(map(len, rows)) + 1
    targets = torch.zeros(len(rows), longest, dtype=torch.long)
    for index, row in enumerate(rows):
        targets[index, : len(row) + 1] = torch.tensor([*row, END])
    lengths = torch.tensor([len(row) + 1 for row in rows])
    return targets, torch.arange(longest) < lengths[:, None]
