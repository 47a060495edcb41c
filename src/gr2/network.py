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
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from gr2.prior import Prior

START, END, FIRST = 0, 1, 2
Family = Literal["t5", "bart", "encoder"]


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """What is fresh about the network; everything pretrained is the backbone's."""

    decoder_layers: int = 2
    """Layers of a fresh decoder behind an encoder; T5 and BART bring their own."""
    decoder_heads: int = 6
    """Heads of a fresh decoder."""
    decoder_feed_forward: int = 1024
    """Feed-forward width of a fresh decoder."""
    representation: int = 256
    """H, the width of f_q and f_id."""
    shared: bool = False
    """One projection ξ for queries and docids instead of one each."""


class Network(nn.Module):
    """Encoder, decoder over docid tokens, head and ξ."""

    def __init__(
        self, family: Family, encoder: Any, decoder: Any, head: nn.Linear, config: NetworkConfig
    ) -> None:
        """Put the parts together; use `Network.build` to get them from a backbone."""
        super().__init__()
        self.family, self.encoder, self.decoder, self.head = family, encoder, decoder, head
        source, width = _width(encoder.config), head.in_features
        self.bridge = nn.Identity() if source == width else nn.Linear(source, width)
        self.xi_query = nn.Linear(width, config.representation)
        self.xi_docid = self.xi_query if config.shared else nn.Linear(width, config.representation)
        self.prior: Prior | None = None

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
            backbone: folder or hub name of a T5, BART or encoder checkpoint.
            tokens: the backbone's token ids that docids are made of; or a number of codes, drawn at random.
            config: what is fresh.
            seed: of everything that starts at random.
        """
        kind = _transformers().AutoConfig.from_pretrained(backbone).model_type
        readers = {"t5": cls._from_t5, "mt5": cls._from_t5, "bart": cls._from_bart}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return readers.get(kind, cls._from_encoder)(backbone, tokens, config or NetworkConfig())

    @classmethod
    def _from_t5(cls, backbone: str | Path, tokens: Sequence[int] | int, config: NetworkConfig) -> "Network":
        model = _transformers().T5ForConditionalGeneration.from_pretrained(backbone, dropout_rate=0.0)
        head = _stored_head(backbone)
        scale = 1.0
        if (
            head is None
        ):  # no head of its own is stored: it is tied to the embeddings, and then T5 scales states
            head, scale = model.shared.weight, model.config.d_model**-0.5
        special = (model.config.decoder_start_token_id, model.config.eos_token_id)
        _fuse(model)
        model.encoder.embed_tokens = (
            model.shared
        )  # an untied head may leave the encoder's own filled with noise
        decoder = model.decoder
        decoder.embed_tokens = _embedding(model.shared.weight, special, tokens)
        return cls("t5", model.encoder, decoder, _head(head, special, tokens, scale), config)

    @classmethod
    def _from_bart(
        cls, backbone: str | Path, tokens: Sequence[int] | int, config: NetworkConfig
    ) -> "Network":
        zero = dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), 0.0)
        model = _transformers().BartForConditionalGeneration.from_pretrained(backbone, **zero)
        special = (model.config.decoder_start_token_id, model.config.eos_token_id)
        decoder = model.model.decoder
        table = decoder.embed_tokens.weight * getattr(decoder.embed_tokens, "embed_scale", 1.0)
        decoder.embed_tokens = _embedding(table, special, tokens)
        head = _head(model.lm_head.weight, special, tokens, 1.0)
        return cls("bart", model.model.encoder, decoder, head, config)

    @classmethod
    def _from_encoder(
        cls, backbone: str | Path, tokens: Sequence[int] | int, config: NetworkConfig
    ) -> "Network":
        hf = _transformers()
        zero = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        encoder = hf.AutoModel.from_pretrained(backbone, **zero)
        encoder.pooler = None  # its parameters would never get a gradient
        width = _width(encoder.config)
        stack = hf.models.t5.modeling_t5.T5Stack(
            hf.T5Config(
                vocab_size=FIRST,
                d_model=width,
                d_kv=width // config.decoder_heads,
                d_ff=config.decoder_feed_forward,
                num_layers=config.decoder_layers,
                num_heads=config.decoder_heads,
                feed_forward_proj="gated-gelu",
                dropout_rate=0.0,
                is_decoder=True,
                is_encoder_decoder=False,
                use_cache=False,
                pad_token_id=START,
                eos_token_id=END,
                decoder_start_token_id=START,
            )
        )
        tokenizer = hf.AutoTokenizer.from_pretrained(backbone)
        special = (
            tokenizer.cls_token_id or tokenizer.bos_token_id,
            tokenizer.sep_token_id or tokenizer.eos_token_id,
        )
        words = encoder.get_input_embeddings().weight
        stack.embed_tokens = _embedding(words, special, tokens)
        _fuse(stack)
        return cls("encoder", encoder, stack, _head(words, special, tokens, width**-0.5), config)

    @classmethod
    def empty(
        cls, family: Family, encoder: Path, decoder: Path, size: int, config: NetworkConfig
    ) -> "Network":
        """The same architecture without pretrained weights, from stored configurations, for `load`."""
        hf = _transformers()
        shape = hf.AutoConfig.from_pretrained(decoder)
        if family == "bart":
            reader = hf.models.bart.modeling_bart.BartEncoder(hf.AutoConfig.from_pretrained(encoder))
            writer = hf.models.bart.modeling_bart.BartDecoder(shape)
        else:
            stack = hf.models.t5.modeling_t5.T5Stack
            kind = hf.AutoConfig.from_pretrained(encoder)
            reader = stack(kind) if family == "t5" else hf.AutoModel.from_config(kind)
            writer = stack(shape)
            _fuse(reader)
            _fuse(writer)
        if family == "encoder":
            reader.pooler = None
        width = _width(shape)
        writer.embed_tokens = nn.Embedding(size, width)
        return cls(family, reader, writer, nn.Linear(width, size, bias=False), config)

    def weights(self) -> dict[str, Tensor]:
        """The weights by name; what is shared is there once, under its first name."""
        first: dict[int, str] = {}
        for name, value in self.state_dict().items():
            first.setdefault(value.data_ptr(), name)
        return {
            name: value.contiguous() for name, value in self.state_dict().items() if name in first.values()
        }

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

    def take_prior(self, prior: Prior, *, quiet: float = 0.05) -> None:
        """Let a node prior join the logits; a fresh head is made quiet, so that training starts from it."""
        self.prior = prior
        if self.family == "encoder":
            with torch.no_grad():
                self.head.weight *= quiet

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
            found.add(self.prior.vectors)
        if self.family != "encoder":
            found |= set(self.decoder.parameters()) | set(self.head.parameters())
        return found

    def hold(self, *, encoder: bool) -> None:
        """Let the encoder move or stand still.

        Its word embeddings never move: they are half of a small encoder, and a collection has few of the
        words.
        """
        self.encoder.requires_grad_(not encoder)
        self.encoder.get_input_embeddings().requires_grad_(False)

    def encode(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Token ids and mask [B, S] → states [B, S, W]."""
        states: Tensor = self.bridge(self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state)
        return states

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


def _fuse(model: nn.Module) -> None:
    """T5's gelu as one operation: transformers writes the same formula as eight, which training feels."""
    slow = import_module("transformers.activations").NewGELUActivation
    for module in list(model.modules()):
        if isinstance(getattr(module, "act", None), slow):
            module.act = nn.GELU(approximate="tanh")


def _pooled(project: nn.Module, states: Tensor, mask: Tensor) -> Tensor:
    each = torch.relu(project(states)) * mask.unsqueeze(-1)  # [N, T, H]
    return each.sum(1) / mask.sum(1, keepdim=True).clamp_min(1)


def _width(config: Any) -> int:
    return int(getattr(config, "hidden_size", None) or config.d_model)


def _rows(table: Tensor, special: tuple[int, int], tokens: Sequence[int] | int, scale: float) -> Tensor:
    """Rows for start, end and each docid token; those of codes are drawn at the scale of the others."""
    if isinstance(tokens, int):
        known = table[list(special)].detach()
        rows = torch.cat([known, torch.randn(tokens, table.shape[1]) * table.detach().std()])
    else:
        rows = table[[*special, *tokens]].detach()
    return rows.clone() * scale


def _embedding(table: Tensor, special: tuple[int, int], tokens: Sequence[int] | int) -> nn.Embedding:
    rows = _rows(table, special, tokens, 1.0)
    return nn.Embedding(rows.shape[0], rows.shape[1], _weight=rows)


def _head(table: Tensor, special: tuple[int, int], tokens: Sequence[int] | int, scale: float) -> nn.Linear:
    rows = _rows(table, special, tokens, scale)
    head = nn.Linear(rows.shape[1], rows.shape[0], bias=False)
    head.weight = nn.Parameter(rows)
    return head


def _stored_head(backbone: str | Path) -> Tensor | None:
    """The output layer that a T5 checkpoint stores, if it stores one.

    transformers 5 ties the head to the embeddings by default, also for checkpoints (flan-T5, T5 v1.1) whose
    head is their own; loaded so, they write garbage. What the file holds is what counts.
    """
    from safetensors import safe_open

    file = _transformers().utils.hub.cached_file(
        str(backbone), "model.safetensors", _raise_exceptions_for_missing_entries=False
    )
    if file is None:
        raise ValueError(
            f"{backbone}: expected weights in model.safetensors (convert other files to it first)"
        )
    with safe_open(file, framework="pt") as stored:
        return stored.get_tensor("lm_head.weight").float() if "lm_head.weight" in stored.keys() else None  # noqa: SIM118


def _transformers() -> Any:
    """transformers, loaded when it is first needed; its own annotations do not fit its dynamic classes."""
    return import_module("transformers")
