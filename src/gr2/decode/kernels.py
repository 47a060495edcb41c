"""The parts of a step that torch does in many small operations, as one loop each on a CPU.

Attention to ancestors needs no gathered copy of keys and values, a root mean square no five passes, and the
logits of a few children no copy of their rows of the output layer. Each exists twice, compiled for the CPU
and in torch for any device; a test holds them against each other. What they save is a tenth of a step with
8-bit weights. This file knows no model, no trie and no search.

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


def compiled(x: Tensor) -> bool:
    """Whether the compiled kernels can work on this tensor."""
    return x.device.type == "cpu" and x.dtype == torch.float32


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """``x / rms(x) · weight`` over the last dimension of [N, D]."""
    if not compiled(x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight
    out = torch.empty_like(x)
    _rms_norm(x.numpy(), weight.numpy(), np.float32(eps), out.numpy())
    return out


def pair_dots(left: Tensor, at: Tensor, right: Tensor, to: Tensor) -> Tensor:
    """The dot product of row ``at[c]`` of `left` and row ``to[c]`` of `right` for each pair → [C]."""
    if not compiled(left):
        parts = [
            (left[at[i : i + 8192]] * right[to[i : i + 8192]]).sum(1) for i in range(0, max(1, len(at)), 8192)
        ]
        return torch.cat(parts)
    out = left.new_empty(len(at))
    _pair_dots(left.detach().numpy(), at.numpy(), right.detach().numpy(), to.numpy(), out.numpy())
    return out


def attend(
    query: Tensor, keys: Tensor, values: Tensor, past: Tensor, length: Tensor, bias: Tensor, scale: float
) -> Tensor:
    """Each cell attends to its ancestors and itself.

    Args:
        query: [N, H·E].
        keys: [cells, H·E] of all cells; `values` alike.
        values: [cells, H·E].
        past: [N, T] the ancestors of each cell, itself last; anything behind `length`.
        length: [N] how many they are.
        bias: [at least T, H] added by distance to the past.
        scale: what dot products are multiplied by.

    Returns:
        The mixed values [N, H·E].
    """
    if not compiled(query):
        return _attend_anywhere(query, keys, values, past, length, bias, scale)
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


def _attend_anywhere(
    query: Tensor, keys: Tensor, values: Tensor, past: Tensor, length: Tensor, bias: Tensor, scale: float
) -> Tensor:
    cells, most = past.shape
    heads = bias.shape[1]
    distance = length[:, None] - 1 - torch.arange(most, device=past.device)  # [N, T]
    hidden = distance < 0  # not yet there
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
