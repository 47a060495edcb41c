"""The innermost operations of a decoding step: compiled loops for the CPU, torch for any other device.

`rms_norm`, `pair_dots` and `attend` choose by the device and precision of their input. The loops avoid
copies that torch would make: of the ancestors' keys and values, and of single rows of the output layer. They
save a tenth of a step with 8-bit weights. `tests/decode/test_kernels.py` compares both forms.

Shapes: N new cells, T tokens so far, H heads, E width of a head, D width, C pairs.
"""

import math

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
PAIRS = 8192
"""Pairs of rows that `pair_dots_torch` copies at a time."""


def compiled(x: Tensor) -> bool:
    """Whether the compiled loops can work on this tensor; otherwise torch does."""
    return x.device.type == "cpu" and x.dtype == torch.float32


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """``x / rms(x) · weight`` over the last dimension of [N, D]."""
    return (rms_norm_compiled if compiled(x) else rms_norm_torch)(x, weight, eps)


def rms_norm_torch(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`rms_norm` on any device; half precision is squared in single precision, as transformers does."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


def rms_norm_compiled(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`rms_norm` on the CPU."""
    out = torch.empty_like(x)
    _rms_norm(x.numpy(), weight.numpy(), np.float32(eps), out.numpy())
    return out


def pair_dots(left: Tensor, at: Tensor, right: Tensor, to: Tensor) -> Tensor:
    """The dot product of row ``at[c]`` of `left` and row ``to[c]`` of `right` for each pair → [C]."""
    return (pair_dots_compiled if compiled(left) else pair_dots_torch)(left, at, right, to)


def pair_dots_torch(left: Tensor, at: Tensor, right: Tensor, to: Tensor) -> Tensor:
    """`pair_dots` on any device, a block of pairs at a time."""
    starts = range(0, max(1, len(at)), PAIRS)
    return torch.cat([(left[at[i : i + PAIRS]] * right[to[i : i + PAIRS]]).sum(1) for i in starts])


def pair_dots_compiled(left: Tensor, at: Tensor, right: Tensor, to: Tensor) -> Tensor:
    """`pair_dots` on the CPU."""
    out = left.new_empty(len(at))
    _pair_dots(left.detach().numpy(), at.numpy(), right.detach().numpy(), to.numpy(), out.numpy())
    return out


def attend(
    query: Tensor, keys: Tensor, values: Tensor, past: Tensor, length: Tensor, bias: Tensor, scale: float
) -> Tensor:
    """Attention of each cell to its ancestors and itself.

    Args:
        query: [N, H·E].
        keys: [cells, H·E] of all cells.
        values: [cells, H·E] of all cells.
        past: [N, T] the ancestors of each cell, the cell itself last; entries from `length` on are ignored.
        length: [N] the number of ancestors, the cell itself included.
        bias: [at least T, H] added to the attention scores by distance.
        scale: multiplies the dot products.

    Returns:
        The weighted sum of values [N, H·E].
    """
    chosen = attend_compiled if compiled(query) else attend_torch
    return chosen(query, keys, values, past, length, bias, scale)


def attend_torch(
    query: Tensor, keys: Tensor, values: Tensor, past: Tensor, length: Tensor, bias: Tensor, scale: float
) -> Tensor:
    """`attend` on any device: keys and values of the ancestors are gathered, then attended to."""
    cells, most = past.shape
    heads = bias.shape[1]
    distance = length[:, None] - 1 - torch.arange(most, device=past.device)  # [N, T]
    hidden = distance < 0  # behind the cell
    flat = past.masked_fill(hidden, 0).reshape(-1)
    added = bias[distance.masked_fill(hidden, 0)].masked_fill(hidden[:, :, None], -torch.inf)  # [N, T, H]
    mixed = F.scaled_dot_product_attention(
        query.view(cells, 1, heads, -1).transpose(1, 2),  # [N, H, 1, E]
        keys.index_select(0, flat).view(cells, most, heads, -1).transpose(1, 2),
        values.index_select(0, flat).view(cells, most, heads, -1).transpose(1, 2),
        attn_mask=added.transpose(1, 2).unsqueeze(2),
        scale=scale,
    )
    return mixed.reshape(cells, -1)


def attend_compiled(
    query: Tensor, keys: Tensor, values: Tensor, past: Tensor, length: Tensor, bias: Tensor, scale: float
) -> Tensor:
    """`attend` on the CPU: keys and values are read where they are."""
    out = query.new_empty(query.shape)
    _attend(
        query.numpy(),
        keys.numpy(),
        values.numpy(),
        past.numpy(),
        length.numpy(),
        bias.numpy(),
        np.float32(scale),
        out.numpy(),
    )
    return out


@njit(cache=True, nogil=True, fastmath=True)  # type: ignore[untyped-decorator, unused-ignore]
def _rms_norm(x: Floats, weight: Floats, eps: np.float32, out: Floats) -> None:
    width = x.shape[1]
    for n in range(len(x)):
        total = np.float32(0)
        for d in range(width):
            total += x[n, d] * x[n, d]
        factor = np.float32(1 / math.sqrt(total / width + eps))
        for d in range(width):
            out[n, d] = x[n, d] * factor * weight[d]


@njit(cache=True, nogil=True, fastmath=True)  # type: ignore[untyped-decorator, unused-ignore]
def _pair_dots(left: Floats, at: Ints, right: Floats, to: Ints, out: Floats) -> None:
    for c in range(len(at)):
        one, other, total = left[at[c]], right[to[c]], np.float32(0)
        for d in range(left.shape[1]):
            total += one[d] * other[d]
        out[c] = total


@njit(cache=True, nogil=True, fastmath=True)  # type: ignore[untyped-decorator, unused-ignore]
def _attend(
    query: Floats,
    keys: Floats,
    values: Floats,
    past: Ints,
    length: Ints,
    bias: Floats,
    scale: np.float32,
    out: Floats,
) -> None:
    heads = bias.shape[1]
    width = query.shape[1] // heads
    score = np.empty(past.shape[1], np.float32)
    for n in range(len(query)):
        for h in range(heads):
            start = h * width
            most = np.float32(-np.finfo(np.float32).max)
            for t in range(length[n]):
                key, dot = keys[past[n, t]], np.float32(0)
                for e in range(width):
                    dot += query[n, start + e] * key[start + e]
                score[t] = dot * scale + bias[length[n] - 1 - t, h]
                most = max(most, score[t])
            total = np.float32(0)
            for t in range(length[n]):
                score[t] = math.exp(score[t] - most)
                total += score[t]
            for e in range(width):
                out[n, start + e] = 0
            for t in range(length[n]):
                share, value = score[t] / total, values[past[n, t]]
                for e in range(width):
                    out[n, start + e] += share * value[start + e]
