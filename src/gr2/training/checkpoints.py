"""The state of a training run ↔ a folder, written atomically, so that a run can be killed at any moment.

`metrics.jsonl` is next to the checkpoint; on resumption its lines after the checkpoint are dropped, because
those steps are run again.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypedDict

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from gr2.store import atomic_folder, read_json, readable, verify, write_json, write_text

CHECKPOINT = "checkpoint-"
METRICS = "metrics.jsonl"


class Trainable(Protocol):
    """A module that the loop can train, with named weights of which some are pretrained."""

    @property
    def device(self) -> torch.device:
        """The device of its parameters."""

    def weights(self) -> dict[str, Tensor]:
        """The weights by name; a shared weight appears once."""

    def load(self, stored: Mapping[str, Tensor]) -> None:
        """Load what `weights` returned."""

    def pretrained(self) -> set[nn.Parameter]:
        """The pretrained parameters, which have their own learning rate."""

    def freeze(self, *, encoder: bool, embeddings: bool) -> None:
        """Freeze or unfreeze the encoder and the embeddings of docid tokens."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """All parameters."""

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """All parameters, by name."""

    def modules(self) -> Iterator[nn.Module]:
        """All modules."""

    def train(self) -> Any:
        """Switch to training mode."""

    def eval(self) -> Any:
        """Switch to evaluation mode."""


@dataclass
class State:
    """The state of a run besides the weights and the optimiser's moments."""

    step: int = 0
    """Optimiser steps done."""
    mean: dict[str, Tensor] = field(default_factory=dict)
    """The trained weights by name, averaged over the last steps; empty until averaging begins."""
    averaged: int = 0
    """Steps that this mean is of."""
    best: dict[str, Tensor] = field(default_factory=dict)
    """The best weights by validation; empty before the first validation."""
    best_value: float | None = None
    """The validation result of the best weights."""
    bad_validations: int = 0
    """Validations since the best one."""


class _Content(TypedDict):
    """What state.json holds."""

    step: int
    averaged: int
    best_value: float | None
    bad_validations: int
    config: dict[str, Any]


def newest_checkpoint(folder: Path) -> Path | None:
    """The last complete checkpoint, or None; an older one is removed only after a newer one is complete."""
    return max(folder.glob(f"{CHECKPOINT}*"), default=None)


def save(
    folder: Path,
    network: Trainable,
    optimiser: torch.optim.Optimizer,
    state: State,
    settings: Mapping[str, Any],
) -> None:
    """Write a checkpoint and remove the previous one."""
    moments = {
        f"{index}.{name}": value.contiguous() if isinstance(value, Tensor) else torch.tensor(value)
        for index, row in optimiser.state_dict()["state"].items()
        for name, value in row.items()
    }
    content = {
        "step": state.step,
        "averaged": state.averaged,
        "best_value": state.best_value,
        "bad_validations": state.bad_validations,
    }
    with atomic_folder(folder / f"{CHECKPOINT}{state.step:08}") as temporary:
        save_file(network.weights(), temporary / "network.safetensors")
        save_file(moments, temporary / "optimiser.safetensors")
        save_file(state.mean, temporary / "mean.safetensors")
        save_file(state.best, temporary / "best.safetensors")
        write_json(temporary / "state.json", content | {"config": dict(settings)})
    tidy(folder)


def restore(
    folder: Path, network: Trainable, optimiser: torch.optim.Optimizer, settings: Mapping[str, Any]
) -> State:
    """Load the last checkpoint; without one, return the state of a new run."""
    checkpoint = newest_checkpoint(folder)
    if checkpoint is None:
        return State()
    verify(checkpoint, "state.json", "network.safetensors", "optimiser.safetensors")
    content = read_json(checkpoint / "state.json", _Content)
    stored = content["config"]
    if stored != settings:
        changed = ", ".join(_differences(stored, settings))
        raise ValueError(f"{checkpoint}: was written with another {changed}; it cannot be resumed")
    mean, best = (
        _weights(checkpoint / f"{name}.safetensors", str(network.device)) for name in ("mean", "best")
    )
    with readable(path := checkpoint / "network.safetensors"):
        network.load(load_file(path))
    with readable(path := checkpoint / "optimiser.safetensors"):
        _load_moments(optimiser, load_file(path))
    return State(
        content["step"],
        mean,
        content["averaged"],
        best,
        content["best_value"],
        content["bad_validations"],
    )


def _weights(path: Path, device: str) -> dict[str, Tensor]:
    with readable(path):
        found: dict[str, Tensor] = load_file(path, device)
    return found


def _load_moments(optimiser: torch.optim.Optimizer, stored: Mapping[str, Tensor]) -> None:
    moments: dict[int, dict[str, Tensor]] = {}
    for name, value in stored.items():
        index, _, moment = name.partition(".")
        moments.setdefault(int(index), {})[moment] = value
    known = optimiser.state_dict()
    optimiser.load_state_dict({"state": moments, "param_groups": known["param_groups"]})


def _differences(stored: Mapping[str, Any], settings: Mapping[str, Any]) -> list[str]:
    """The names of the settings that differ, as dotted paths if nested."""
    found = []
    for name in sorted({*stored, *settings}):
        one, two = stored.get(name), settings.get(name)
        if isinstance(one, Mapping) and isinstance(two, Mapping):
            found += [f"{name}.{inner}" for inner in _differences(one, two)]
        elif (name in stored, one) != (name in settings, two):
            found.append(name)
    return found


def tidy(folder: Path) -> None:
    """Remove leftovers of a killed run, and every checkpoint but the last."""
    newest = newest_checkpoint(folder)
    for path in (*folder.glob(f"{CHECKPOINT}*"), *folder.glob(f".{CHECKPOINT}*")):
        if path != newest:
            shutil.rmtree(path)
    for path in folder.glob(f".{METRICS}.*"):
        path.unlink()


def log(folder: Path, step: int, values: Mapping[str, float]) -> None:
    """Append a line to metrics.jsonl."""
    with (folder / METRICS).open("a", encoding="utf-8") as stream:
        stream.write(json.dumps({"step": step, **values}) + "\n")


def forget_after(folder: Path, step: int) -> None:
    """Drop the lines of metrics.jsonl after a step."""
    path = folder / METRICS
    if path.exists():
        lines = path.read_text(encoding="utf-8").splitlines()
        kept = [line for line in lines if line.endswith("}") and json.loads(line)["step"] <= step]
        write_text(path, "".join(f"{line}\n" for line in kept))
