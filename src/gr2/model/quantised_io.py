"""Weights ↔ a safetensors file with 32, 16 or 8 bits per number.

With 8 bits, each row of a matrix is stored as integers from −127 to 127 and one scale; other tensors have 16
bits. All weights are loaded as 32-bit floats.
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
    """The weights of a module by name; a shared weight appears once, under its first name."""
    distinct = {name for name, _ in (*module.named_parameters(), *module.named_buffers())}
    return {name: value.contiguous() for name, value in module.state_dict().items() if name in distinct}


def copy_to_torch(module: nn.Module) -> None:
    """Copy the parameters into torch's own memory.

    Parameters of a checkpoint may be memory-mapped from its file with any alignment, and alignment changes
    the rounding of matrix products: the last bits of a model's output would change with saving and loading.
    """
    for parameter in module.parameters():
        parameter.data = parameter.data.clone()


def save_weights(weights: Mapping[str, Tensor], path: Path, storage: Storage = "fp32") -> None:
    """Save weights by name."""
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
    """Load what `save_weights` wrote, as 32-bit floats."""
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
