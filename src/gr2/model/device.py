"""Devices: choose one by name, use mixed precision where it is faster, move a whole batch."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

Batch = TypeVar("Batch")


def device_of(name: str) -> torch.device:
    """A torch device by name; `auto` takes cuda, then mps, else cpu.

    >>> device_of("cpu")
    device(type='cpu')
    """
    if name != "auto":
        try:
            device = torch.device(name)
        except RuntimeError as error:
            raise ValueError(f"expected a device such as auto, cpu or cuda, found {name!r}") from error
        if device.type == "cuda" and not (device.index or 0) < torch.cuda.device_count():
            raise ValueError(
                f"there is no device {name!r}: torch finds {torch.cuda.device_count()} CUDA devices"
            )
        if device.type == "mps" and not torch.backends.mps.is_available():
            raise ValueError("there is no device 'mps' on this machine")
        return device
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps") if torch.backends.mps.is_available() else torch.device("cpu")


def bf16_pays(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 in hardware; emulation is many times slower."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu":
        return False
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def has_fused_adamw(device: torch.device) -> bool:
    """Whether torch has a fused AdamW for the device."""
    return device.type in ("cpu", "cuda")


def autocast(device: torch.device, *, enabled: bool) -> AbstractContextManager[Any]:
    """Mixed precision in bfloat16 on a device."""
    kind = device.type if device.type in ("cpu", "cuda", "mps") else "cpu"
    return torch.autocast(kind, torch.bfloat16, enabled=enabled)


@contextmanager
def seeded(device: torch.device, *seed: int) -> Iterator[None]:
    """Seed torch's random numbers within the block, and restore their state after it."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(int(np.random.SeedSequence(seed).generate_state(1)[0]))
        yield


def to_device(batch: Batch, device: torch.device) -> Batch:
    """Move a dataclass of tensors to a device; for the CPU it is returned unchanged.

    For CUDA the tensors go through pinned memory, so that copying overlaps with computation.
    """
    if device.type == "cpu" or not is_dataclass(batch) or isinstance(batch, type):
        return batch
    pinned = device.type == "cuda"
    moved = {
        field.name: (value.pin_memory() if pinned else value).to(device, non_blocking=pinned)
        for field in fields(batch)
        if isinstance(value := getattr(batch, field.name), Tensor)
    }
    return replace(batch, **moved)
