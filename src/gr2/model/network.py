"""The encoder-decoder that maps text to docids, and the projections ξ (paper §3.2).

It is built from any T5 or BART checkpoint, or from any text encoder with a new T5 decoder stack. The
decoder's vocabulary contains only the tokens that occur in docids: 0 = start and padding, 1 = end, then those
tokens (text docids) or codes. In a small model, an output layer of a few thousand rows instead of tens of
thousands saves most of the cost. Input: a backbone and the tokens of docids. Output: states, logits and
representations.

Shapes: B texts, S source tokens, N docids, T tokens (including the start), W width, H width of ξ, V docid
tokens.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gr2.decode import Decoder, NodePrior, Precision, bart_decoder, t5_decoder
from gr2.model.backbone import (
    END,
    FIRST,
    START,
    FreshDecoder,
    empty_stacks,
    parts_of,
    rows_of,
    width_of,
)
from gr2.model.config import NetworkConfig
from gr2.model.families import Family
from gr2.model.node_prior import Prior
from gr2.model.padding import masked_mean
from gr2.model.quantised_io import copy_to_torch, weights_of

__all__ = ["END", "FIRST", "START", "Family", "Network"]
HEAD_SCALE = 0.05
"""Factor on the head's weights when a node prior is attached."""


def new_decoder(config: NetworkConfig) -> FreshDecoder:
    """The decoder that a text encoder gets."""
    return FreshDecoder(
        layers=config.decoder_layers,
        heads=config.decoder_heads,
        feed_forward=config.decoder_feed_forward,
        unit_norm_head=config.unit_norm_head,
    )


class Network(nn.Module):
    """Encoder, decoder over docid tokens, head and ξ."""

    def __init__(
        self, family: Family, encoder: Any, decoder: Any, head: nn.Linear, config: NetworkConfig
    ) -> None:
        """Store the parts; use `Network.build` to build them from a backbone."""
        super().__init__()
        self.family, self.encoder, self.decoder, self.head = family, encoder, decoder, head
        source, width = width_of(encoder.config), head.in_features
        self.bridge = nn.Identity() if source == width else nn.Linear(source, width)
        self.xi_query = nn.Linear(width, config.representation)
        self.xi_docid = self.xi_query if config.shared else nn.Linear(width, config.representation)
        self.prior: Prior | None = None
        self.fresh = False  # whether the decoder has never been trained on docids
        self._search_decoder: tuple[object, Decoder] | None = None

    @classmethod
    def build(
        cls,
        backbone: str | Path,
        tokens: Sequence[int] | int,
        config: NetworkConfig | None = None,
        *,
        seed: int = 0,
    ) -> "Network":
        """Load a backbone and give it a decoder for docids.

        Args:
            backbone: folder or hub name of a T5, BART or encoder checkpoint, or a backbone of our own.
            tokens: the backbone's token ids that occur in docids; or a number of codes, with random rows.
            config: settings of the new parts.
            seed: seed of the random initialisation.
        """
        config = config or NetworkConfig()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            parts = parts_of(backbone, new_decoder(config), dropout=config.dropout)
            decoder, width = parts.decoder, parts.head.shape[1]
            wanted = tokens if isinstance(tokens, int) else list(tokens)
            read, write = (rows_of(table, parts.special, wanted) for table in (parts.embedding, parts.head))
            decoder.embed_tokens = nn.Embedding(read.shape[0], read.shape[1], _weight=read)
            head = nn.Linear(width, len(write), bias=False)
            head.weight = nn.Parameter(write)
            network = cls(parts.family, parts.encoder, decoder, head, config)
        copy_to_torch(network)
        network.fresh = parts.fresh
        if parts.more:
            network.load({**network.weights(), **parts.more})
        return network

    @classmethod
    def empty(
        cls, family: Family, encoder: Path, decoder: Path, size: int, config: NetworkConfig
    ) -> "Network":
        """The same architecture with random weights, from stored configurations; `load` fills it."""
        reader, writer = empty_stacks(family, encoder, decoder)
        width = width_of(writer.config)
        writer.embed_tokens = nn.Embedding(size, width)
        return cls(family, reader, writer, nn.Linear(width, size, bias=False), config)

    def weights(self) -> dict[str, Tensor]:
        """The weights by name; a shared weight appears once, under its first name."""
        return weights_of(self)

    def attach_code_vectors(self, vectors: Tensor) -> None:
        """Initialise the rows of codes with their vectors [codes, P] (RIPOR), scaled to the norm of the rows.

        Nothing changes if the width differs from the decoder's; codes without a vector (zeros) keep theirs.
        """
        if vectors.shape[1] != self.head.in_features:
            return
        known = vectors.norm(dim=1) > 0
        with torch.no_grad():
            for rows in (self.decoder.embed_tokens.weight[FIRST:], self.head.weight[FIRST:]):
                rows[known] = vectors[known] * (rows.norm(dim=1).mean() / vectors[known].norm(dim=1).mean())

    def attach_prior(self, prior: Prior, *, scale_head: bool = True) -> None:
        """Add a node prior to the logits; the head is scaled down, so that training starts from the prior.

        A pretrained head is scaled down too, because what it learned about other docids is noise here. A
        frozen head is not scaled down: the decoder's signal would vanish.
        """
        self.prior = prior.to(self.device)
        if scale_head:
            with torch.no_grad():
                self.head.weight *= HEAD_SCALE

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.head.weight.device

    def train(self, mode: bool = True) -> "Network":
        """Switch between training and evaluation mode; the decoder prepared for search is discarded."""
        self._search_decoder = None
        super().train(mode)
        return self

    def load(self, stored: Mapping[str, Tensor]) -> None:
        """Load what `weights` returned; a missing or unknown name is an error."""
        self._search_decoder = None
        if self.prior is None and "prior.vectors" in stored:
            own = {n.removeprefix("prior."): v for n, v in stored.items() if n.startswith("prior.")}
            self.prior = Prior.empty(own).to(self.device)
        missing, unknown = self.load_state_dict(dict(stored), strict=False)
        wanted = set(missing) & set(self.weights())
        if wanted or unknown:
            raise ValueError(
                f"the weights do not fit the network: missing {sorted(wanted)[:3]}, unknown {unknown[:3]}"
            )

    def pretrained(self) -> set[nn.Parameter]:
        """The backbone's parameters, and the node prior's vectors, which come from its encoder."""
        found = set(self.encoder.parameters())
        if self.prior is not None:
            found |= {part for part in (self.prior.vectors, self.prior.centre) if part is not None}
        if self.family != "encoder" or not self.fresh:
            found |= set(self.decoder.parameters()) | set(self.head.parameters())
        return found

    def freeze(self, *, encoder: bool, embeddings: bool = False) -> None:
        """Freeze or unfreeze the encoder, and the embeddings and head rows of docid tokens.

        The encoder's word embeddings are always frozen: they are half of a small encoder's weights, and most
        of the words do not occur in a collection.
        """
        self.encoder.requires_grad_(not encoder)
        self.encoder.get_input_embeddings().requires_grad_(False)
        for table in (self.decoder.embed_tokens, self.head):
            table.requires_grad_(not embeddings)

    def encode(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Token ids and mask [B, S] → states [B, S, W]."""
        states: Tensor = self.bridge(self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state)
        return states

    def prior_scores(self, ids: Tensor, states: Tensor, mask: Tensor) -> NodePrior | None:
        """Scores of the trie nodes for texts (ids [B, S], their states [B, S, W]); None without a prior."""
        if self.prior is None:
            return None
        words = self.encoder.get_input_embeddings()
        return self.prior(words(ids) if self.prior.reads_words else states, mask)  # type: ignore[no-any-return]

    def decode(self, states: Tensor, mask: Tensor, tokens: Tensor) -> Tensor:
        """Teacher forcing: states [N, S, W], mask [N, S] and docid tokens [N, T] → states [N, T, W].

        Padding needs no mask: it follows the docid, and the decoder is causal.
        """
        hidden: Tensor = self.decoder(
            input_ids=tokens, encoder_hidden_states=states, encoder_attention_mask=mask, use_cache=False
        ).last_hidden_state
        return hidden

    def represent_query(self, states: Tensor, mask: Tensor) -> Tensor:
        """f_q = ξ of the encoder's states [B, S, W] → [B, H]."""
        return masked_mean(torch.relu(self.xi_query(states)), mask)

    def represent_docid(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """f_id = ξ of the decoder's states [N, T, W] where `mask` is set: not start, not padding."""
        return masked_mean(torch.relu(self.xi_docid(hidden)), mask)

    def project_docid(self, states: Tensor) -> Tensor:
        """ξ of single decoder states [N, W] → [N, H]; the mean over a docid's tokens is f_id."""
        return torch.relu(self.xi_docid(states))

    def decoder_for_search(self, precision: Precision = "fp32") -> Decoder:
        """The decoder in the form that `gr2.decode` needs, prepared once and cached in evaluation mode."""
        read = bart_decoder if self.family == "bart" else t5_decoder
        if self.training or precision != "fp32":
            return read(self.decoder, self.head, start=START, precision=precision)
        weights = (*self.decoder.parameters(), self.head.weight)
        versions = tuple((weight.device, weight._version) for weight in weights)  # rise with every change
        if self._search_decoder is None or self._search_decoder[0] != versions:
            self._search_decoder = versions, read(self.decoder, self.head, start=START)
        return self._search_decoder[1]


def recompute_activations(modules: Iterable[Any], *, enabled: bool) -> None:
    """Turn gradient checkpointing on or off in those modules that are stacks of transformers."""
    for stack in modules:
        if not getattr(stack, "supports_gradient_checkpointing", False):
            continue
        if enabled:
            stack.gradient_checkpointing_enable({"use_reentrant": False})
        else:
            stack.gradient_checkpointing_disable()
