"""The modules of a transformers decoder → plain weights in one common form.

T5 (gated or plain feed-forward, tied or untied head), a T5 stack behind any encoder, and BART differ in where
they normalise, how they encode positions and whether they have biases. Here each of them becomes the same few
tensors and prepared matrix products, so that the search need not know the model's family.

Shapes: D width, H heads, E width of a head, S width of the encoder, F feed-forward width, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gr2.decode.kernels import rms_norm
from gr2.decode.linear import Multiply, Precision, linear


@dataclass(frozen=True)
class Norm:
    """Layer normalisation; without a bias it is T5's, which only divides by the root mean square."""

    weight: Tensor
    bias: Tensor | None
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        if self.bias is None:
            return rms_norm(x, self.weight, self.eps)
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One decoder layer; `Decoder.pre_norm` says whether norms come before each part or after it."""

    self_in: Multiply
    """D → 3·H·E: queries, keys and values."""
    self_out: Multiply
    """H·E → D."""
    cross_in: Multiply
    """D → H·E: the queries to the encoder's states."""
    memory: Multiply
    """S → 2·H·E: keys and values of the encoder's states, once per query."""
    cross_out: Multiply
    """H·E → D."""
    up: Multiply
    """D → F, or D → 2·F when gated."""
    down: Multiply
    """F → D."""
    norms: tuple[Norm, Norm, Norm]
    """Of self-attention, cross-attention and feed-forward."""


@dataclass(frozen=True, kw_only=True)
class Decoder:
    """The weights of a decoder, read once by `decoder_of`, `t5_decoder` or `bart_decoder`."""

    embedding: Tensor
    """[V, D], already scaled where the model scales it."""
    layers: tuple[Layer, ...]
    heads: int
    inner: int
    """H·E, the width of all heads together; equal to D in BART, not always in T5."""
    pre_norm: bool
    """Normalise before each part (T5) or after it (BART)."""
    gated: bool
    activation: Callable[[Tensor], Tensor]
    attention_scale: float
    """Multiplies the dot products of queries and keys; 1 in T5."""
    head: Multiply
    """D → V, without `head_bias`."""
    head_rows: Tensor
    """[V, D] the rows of the head, for the logits of a few tokens."""
    head_bias: Tensor | None
    """[V]."""
    head_scale: float
    """Multiplies the states before the head; D ** -0.5 in T5 with tied embeddings."""
    start: int
    """The token that decoding starts from."""
    distance_bias: Tensor | None = None
    """[H, distances] added to attention scores by distance to the past; the last entry holds for all larger
    distances (T5)."""
    positions: Tensor | None = None
    """[positions, D] learned, added to the token embeddings (BART)."""
    first_norm: Norm | None = None
    """After the embeddings (BART)."""
    last_norm: Norm | None = None
    """After the last layer (T5)."""

    @property
    def device(self) -> torch.device:
        """The device of the weights, on which the search runs."""
        return self.embedding.device

    @property
    def longest(self) -> int | None:
        """The most tokens that can be read, the start included; None if there is no limit."""
        return None if self.positions is None else len(self.positions)

    def logits(self, states: Tensor) -> Tensor:
        """States [R, D] → logits over the vocabulary [R, V]."""
        scores = self.head(states * self.head_scale if self.head_scale != 1 else states)
        return scores if self.head_bias is None else scores + self.head_bias


def decoder_of(model: nn.Module, *, precision: Precision = "fp32") -> Decoder:
    """Read the decoder of a `T5ForConditionalGeneration` or `BartForConditionalGeneration`.

    The weights may be shared with the model or copied: after further training, read the decoder again.

    Args:
        model: in training or evaluation mode: dropout is never applied here.
        precision: "fp32", or "int8" for 8-bit weights (CPU only; scores and some ranks change).
    """
    config: Any = model.config
    parts: Any = model
    if config.model_type == "bart":
        bias = parts.final_logits_bias[0].detach()
        start = config.decoder_start_token_id
        return bart_decoder(parts.model.decoder, parts.lm_head, start=start, bias=bias, precision=precision)
    stack: Any = getattr(model, "decoder", None)
    if not hasattr(stack, "block") or not hasattr(model, "lm_head"):
        raise ValueError(
            f"{type(model).__name__} ({config.model_type!r}) is neither of the T5 nor of the BART family; "
            "for a T5 stack behind another encoder use t5_decoder(stack, head)"
        )
    # transformers 5 scales by scale_decoder_outputs; older configurations lack it and scale if tied.
    scaled = getattr(config, "scale_decoder_outputs", config.tie_word_embeddings)
    return t5_decoder(
        stack,
        model.lm_head,
        start=config.decoder_start_token_id,
        head_scale=config.d_model**-0.5 if scaled else 1.0,
        precision=precision,
    )


def t5_decoder(
    stack: nn.Module, head: Any, *, start: int, head_scale: float = 1.0, precision: Precision = "fp32"
) -> Decoder:
    """Read a `T5Stack` decoder and its `nn.Linear` head; the states may come from any encoder.

    Args:
        stack: a `T5Stack` with `is_decoder=True` in its configuration.
        head: `nn.Linear` from the stack's width to the vocabulary.
        start: the token that decoding starts from.
        head_scale: multiplies the states before the head.
        precision: see `decoder_of`.
    """
    modules: Any = stack
    if not modules.config.is_decoder:
        raise ValueError("this T5 stack is an encoder: its configuration lacks is_decoder=True")
    first = modules.block[0].layer[0].SelfAttention
    return Decoder(
        embedding=modules.embed_tokens.weight.detach(),
        layers=tuple(_t5_layer(block.layer, precision) for block in modules.block),
        heads=first.n_heads,
        inner=first.inner_dim,
        pre_norm=True,
        gated=modules.config.is_gated_act,
        activation=_activation(modules.config.dense_act_fn),
        attention_scale=1.0,
        head=linear(head.weight, precision=precision),
        head_rows=head.weight.detach(),
        head_bias=None if head.bias is None else head.bias.detach(),
        head_scale=head_scale,
        start=start,
        distance_bias=_distance_bias(first),
        last_norm=_norm(modules.final_layer_norm),
    )


def _t5_layer(parts: Any, precision: Precision) -> Layer:
    itself, cross, dense = parts[0].SelfAttention, parts[1].EncDecAttention, parts[2].DenseReluDense
    up = [dense.wi_0, dense.wi_1] if hasattr(dense, "wi_0") else [dense.wi]
    return Layer(
        self_in=_joined([itself.q, itself.k, itself.v], precision),
        self_out=_joined([itself.o], precision),
        cross_in=_joined([cross.q], precision),
        memory=_joined([cross.k, cross.v], precision),
        cross_out=_joined([cross.o], precision),
        up=_joined(up, precision),
        down=_joined([dense.wo], precision),
        norms=(_norm(parts[0].layer_norm), _norm(parts[1].layer_norm), _norm(parts[2].layer_norm)),
    )


def bart_decoder(
    stack: Any, head: Any, *, start: int, bias: Tensor | None = None, precision: Precision = "fp32"
) -> Decoder:
    """Read a `BartDecoder` and its `nn.Linear` head; see `t5_decoder` for the arguments."""
    config = stack.config
    scale = getattr(stack.embed_tokens, "embed_scale", 1.0)
    table = stack.embed_tokens.weight.detach()
    heads = config.decoder_attention_heads
    return Decoder(
        embedding=table * scale if scale != 1 else table,
        layers=tuple(_bart_layer(layer, precision) for layer in stack.layers),
        heads=heads,
        inner=config.d_model,
        pre_norm=False,
        gated=False,
        activation=_activation(config.activation_function),
        attention_scale=(config.d_model // heads) ** -0.5,
        head=linear(head.weight, precision=precision),
        head_rows=head.weight.detach(),
        head_bias=bias,
        head_scale=1.0,
        start=start,
        positions=stack.embed_positions.weight[stack.embed_positions.offset :].detach(),
        first_norm=_norm(stack.layernorm_embedding),
    )


def _bart_layer(layer: Any, precision: Precision) -> Layer:
    itself, cross = layer.self_attn, layer.encoder_attn
    return Layer(
        self_in=_joined([itself.q_proj, itself.k_proj, itself.v_proj], precision),
        self_out=_joined([itself.out_proj], precision),
        cross_in=_joined([cross.q_proj], precision),
        memory=_joined([cross.k_proj, cross.v_proj], precision),
        cross_out=_joined([cross.out_proj], precision),
        up=_joined([layer.fc1], precision),
        down=_joined([layer.fc2], precision),
        norms=(
            _norm(layer.self_attn_layer_norm),
            _norm(layer.encoder_attn_layer_norm),
            _norm(layer.final_layer_norm),
        ),
    )


def _joined(parts: list[Any], precision: Precision) -> Multiply:
    """Several linear maps of the same input as one matrix product, outputs concatenated."""
    weight = parts[0].weight if len(parts) == 1 else torch.cat([part.weight for part in parts])
    bias = None if parts[0].bias is None else torch.cat([part.bias for part in parts])
    return linear(weight, bias, precision=precision)


def _norm(module: Any) -> Norm:
    bias = getattr(module, "bias", None)
    eps = module.variance_epsilon if hasattr(module, "variance_epsilon") else module.eps
    return Norm(module.weight.detach(), None if bias is None else bias.detach(), float(eps))


def _distance_bias(attention: Any) -> Tensor:
    """T5's bias by distance [H, distances]; from its maximal distance on, all distances share one value."""
    table: Tensor = attention.relative_attention_bias.weight.detach()
    distance = torch.arange(attention.relative_attention_max_distance + 1, device=table.device)
    bucket = attention._relative_position_bucket(
        -distance,
        bidirectional=False,
        num_buckets=attention.relative_attention_num_buckets,
        max_distance=attention.relative_attention_max_distance,
    )
    return table[bucket].T.contiguous()


def _activation(name: str) -> Callable[[Tensor], Tensor]:
    """The activation by its transformers name, as a single torch kernel where there is one."""
    if name in ("gelu_new", "gelu_pytorch_tanh"):
        return lambda x: F.gelu(x, approximate="tanh")
    known: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}
    if name in known:
        return known[name]
    from transformers.activations import ACT2FN

    found: Callable[[Tensor], Tensor] = ACT2FN[name]
    return found
