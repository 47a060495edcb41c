"""Weights ↔ a safetensors file of 32, 16 or 8 bits a number.

Eight bits: each row of a matrix is stored as integers from −127 to 127 and one scale; what is no matrix stays
at 16 bits. Read back, everything has 32 bits again.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

Storage = Literal["fp32", "fp16", "int8"]
SCALE = ".scale"


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    """The weights of a module by name; what is shared is there once, under its first name."""
    found = module.state_dict()
    first: dict[int, str] = {}
    for name, value in found.items():
        first.setdefault(value.data_ptr(), name)
    return {name: value.contiguous() for name, value in found.items() if name in first.values()}


def take_memory(module: nn.Module) -> None:
    """Move the parameters into torch's own memory.

    What a checkpoint brings may be mapped from its file and lie anywhere, and a matrix product is rounded by
    where its factors lie: a model would give other last bits before it is saved than after.
    """
    for parameter in module.parameters():
        parameter.data = parameter.data.clone()


def save_weights(weights: Mapping[str, Tensor], path: Path, storage: Storage = "fp32") -> None:
    """Write weights by name."""
    stored: dict[str, Tensor] = {}
    for name, value in weights.items():
        if not value.is_floating_point():
            stored[name] = value
        elif storage == "int8" and value.ndim == 2:
            scale = value.float().abs().amax(1, keepdim=True).clamp_min(1e-12) / 127  # [rows, 1]
            stored[name] = (value.float() / scale).round().to(torch.int8)
            stored[name + SCALE] = scale[:, 0].clone()
        else:
            stored[name] = value.to(torch.float32 if storage == "fp32" else torch.float16)
    save_file({name: value.contiguous().clone() for name, value in stored.items()}, path)


def load_weights(path: Path) -> dict[str, Tensor]:
    """Read what `save_weights` wrote, in 32 bits."""
    stored = load_file(path)
    found: dict[str, Tensor] = {}
    for name, value in stored.items():
        if name.endswith(SCALE) and name.removesuffix(SCALE) in stored:
            continue
        if name + SCALE in stored:
            found[name] = value.float() * stored[name + SCALE][:, None]
        else:
            found[name] = value.float() if value.is_floating_point() else value
    return found
