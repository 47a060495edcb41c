"""The encoder-decoder that reads text and writes docids, and the projections ξ (paper §3.2).

Any T5 or BART checkpoint, or any text encoder with a fresh T5 decoder stack behind it. The decoder knows
only the tokens that occur in docids: its vocabulary is 0 = start and padding, 1 = end, then those tokens
(text docids) or codes. A head of a few thousand rows instead of tens of thousands is most of the cost of a
small model. This file knows no docids, no losses and no data.

Shapes: B texts, S source tokens, N docids, T tokens (the start included), W width, H width of ξ, V docid
tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from gr2.backbone import (
    END,
    FIRST,
    START,
    Family,
    FreshDecoder,
    empty_stacks,
    parts_of,
    rows_of,
    width_of,
)
from gr2.decode import NodePrior
from gr2.prior import Prior
from gr2.weights import take_memory, weights_of

__all__ = ["END", "FIRST", "START", "Family", "Network", "NetworkConfig"]
QUIET = 0.05
"""What the head is multiplied by beside a node prior."""


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """What is fresh about the network; everything pretrained is the backbone's."""

    decoder_layers: int = 2
    """Layers of a fresh decoder behind an encoder; T5 and BART bring their own."""
    decoder_heads: int = 6
    """Heads of a fresh decoder."""
    decoder_feed_forward: int = 1024
    """Feed-forward width of a fresh decoder."""
    loud: bool = False
    """Whether a fresh decoder's head starts with rows of length 1, as one must that will stand still."""
    representation: int = 256
    """H, the width of f_q and f_id."""
    shared: bool = False
    """One projection ξ for queries and docids instead of one each."""

    @property
    def fresh(self) -> FreshDecoder:
        """The decoder that an encoder gets."""
        return FreshDecoder(
            layers=self.decoder_layers,
            heads=self.decoder_heads,
            feed_forward=self.decoder_feed_forward,
            loud=self.loud,
        )


class Network(nn.Module):
    """Encoder, decoder over docid tokens, head and ξ."""

    def __init__(
        self, family: Family, encoder: Any, decoder: Any, head: nn.Linear, config: NetworkConfig
    ) -> None:
        """Put the parts together; use `Network.build` to get them from a backbone."""
        super().__init__()
        self.family, self.encoder, self.decoder, self.head = family, encoder, decoder, head
        source, width = width_of(encoder.config), head.in_features
        self.bridge = nn.Identity() if source == width else nn.Linear(source, width)
        self.xi_query = nn.Linear(width, config.representation)
        self.xi_docid = self.xi_query if config.shared else nn.Linear(width, config.representation)
        self.prior: Prior | None = None
        self.fresh = False  # whether the decoder has never written a docid

    @classmethod
    def build(
        cls,
        backbone: str | Path,
        tokens: Sequence[int] | int,
        config: NetworkConfig | None = None,
        *,
        seed: int = 0,
    ) -> "Network":
        """Read a backbone and give it a decoder for docids.

        Args:
            backbone: folder or hub name of a T5, BART or encoder checkpoint, or a backbone of our own.
            tokens: the backbone's token ids that docids are made of; or a number of codes, drawn at random.
            config: what is fresh.
            seed: of everything that starts at random.
        """
        config = config or NetworkConfig()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            parts = parts_of(backbone, config.fresh)
            decoder, width = parts.decoder, parts.head.shape[1]
            wanted = tokens if isinstance(tokens, int) else list(tokens)
            read, write = (rows_of(table, parts.special, wanted) for table in (parts.embedding, parts.head))
            decoder.embed_tokens = nn.Embedding(read.shape[0], read.shape[1], _weight=read)
            head = nn.Linear(width, len(write), bias=False)
            head.weight = nn.Parameter(write)
            network = cls(parts.family, parts.encoder, decoder, head, config)
        take_memory(network)
        network.fresh = parts.fresh
        if parts.more:
            network.load({**network.weights(), **parts.more})
        return network

    @classmethod
    def empty(
        cls, family: Family, encoder: Path, decoder: Path, size: int, config: NetworkConfig
    ) -> "Network":
        """The same architecture without pretrained weights, from stored configurations, for `load`."""
        reader, writer = empty_stacks(family, encoder, decoder)
        width = width_of(writer.config)
        writer.embed_tokens = nn.Embedding(size, width)
        return cls(family, reader, writer, nn.Linear(width, size, bias=False), config)

    def weights(self) -> dict[str, Tensor]:
        """The weights by name; what is shared is there once, under its first name."""
        return weights_of(self)

    def take_codes(self, vectors: Tensor) -> None:
        """Let the rows of codes start from the vectors [codes, P] they stand for (RIPOR), at their own scale.

        Vectors of another width than the decoder's, and codes without one (zeros), change nothing.
        """
        if vectors.shape[1] != self.head.in_features:
            return
        known = vectors.norm(dim=1) > 0
        with torch.no_grad():
            for rows in (self.decoder.embed_tokens.weight[FIRST:], self.head.weight[FIRST:]):
                rows[known] = vectors[known] * (rows.norm(dim=1).mean() / vectors[known].norm(dim=1).mean())

    def take_prior(self, prior: Prior, *, quiet: bool = True) -> None:
        """Let a node prior join the logits; the head is made quiet, so that training starts from the prior.

        Even a pre-trained one: what a decoder learned of other docids is noise beside a prior that knows
        these. But not one that will stand still: a decoder that cannot be heard learns nothing.
        """
        self.prior = prior
        if quiet:
            with torch.no_grad():
                self.head.weight *= QUIET

    def load(self, stored: Mapping[str, Tensor]) -> None:
        """Take weights that `weights` gave; a name or shape that does not fit is refused."""
        if self.prior is None and "prior.vectors" in stored:
            own = {n.removeprefix("prior."): v for n, v in stored.items() if n.startswith("prior.")}
            self.prior = Prior.empty(own)
        missing, unknown = self.load_state_dict(dict(stored), strict=False)
        wanted = set(missing) & set(self.weights())
        if wanted or unknown:
            raise ValueError(
                f"the weights do not fit the network: missing {sorted(wanted)[:3]}, unknown {unknown[:3]}"
            )

    def pretrained(self) -> set[nn.Parameter]:
        """What the backbone brought, and the node prior's vectors, which its encoder made."""
        found = set(self.encoder.parameters())
        if self.prior is not None:
            found |= {part for part in (self.prior.vectors, self.prior.centre) if part is not None}
        if self.family != "encoder" or not self.fresh:
            found |= set(self.decoder.parameters()) | set(self.head.parameters())
        return found

    def hold(self, *, encoder: bool, tables: bool = False) -> None:
        """Let the encoder, and the rows of docid tokens, move or stand still.

        Its word embeddings never move: they are half of a small encoder, and a collection has few of the
        words.
        """
        self.encoder.requires_grad_(not encoder)
        self.encoder.get_input_embeddings().requires_grad_(False)
        for table in (self.decoder.embed_tokens, self.head):
            table.requires_grad_(not tables)

    def encode(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Token ids and mask [B, S] → states [B, S, W]."""
        states: Tensor = self.bridge(self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state)
        return states

    def prefer(self, ids: Tensor, states: Tensor, mask: Tensor) -> NodePrior | None:
        """What texts (ids [B, S] and their states [B, S, W]) think of each node; None without a prior."""
        if self.prior is None:
            return None
        words = self.encoder.get_input_embeddings()
        return self.prior(words(ids) if self.prior.reads_words else states, mask)  # type: ignore[no-any-return]

    def decode(self, states: Tensor, mask: Tensor, tokens: Tensor) -> Tensor:
        """Teacher forcing: states [N, S, W], mask [N, S] and docid tokens [N, T] → states [N, T, W].

        Padding needs no mask of its own: it stands behind the docid, and the decoder looks back only.
        """
        hidden: Tensor = self.decoder(
            input_ids=tokens, encoder_hidden_states=states, encoder_attention_mask=mask, use_cache=False
        ).last_hidden_state
        return hidden

    def represent_query(self, states: Tensor, mask: Tensor) -> Tensor:
        """f_q = ξ of the encoder's states [B, S, W] → [B, H]."""
        return _pooled(self.xi_query, states, mask)

    def represent_docid(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """f_id = ξ of the decoder's states [N, T, W] where `mask` is set: not start, not padding."""
        return _pooled(self.xi_docid, hidden, mask)

    def project_docid(self, states: Tensor) -> Tensor:
        """ξ of single decoder states [N, W] → [N, H]; their mean over a docid's tokens is f_id."""
        return torch.relu(self.xi_docid(states))

    def decoder_for_search(self, precision: Literal["fp32", "int8"] = "fp32") -> Any:
        """The decoder in the form that `gr2.decode` searches with."""
        from gr2.decode import bart_decoder, t5_decoder

        read = bart_decoder if self.family == "bart" else t5_decoder
        return read(self.decoder, self.head, start=START, precision=precision)


def _pooled(project: nn.Module, states: Tensor, mask: Tensor) -> Tensor:
    each = torch.relu(project(states)) * mask.unsqueeze(-1)  # [N, T, H]
    return each.sum(1) / mask.sum(1, keepdim=True).clamp_min(1)
