"""The state of a training run ↔ a folder: whole or not at all, so that a run can be killed at any moment.

Beside the checkpoint is `metrics.jsonl`; lines behind the checkpoint are forgotten, since their steps are
done again. This file knows no loss and no data.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from gr2.store import atomic_folder, verify, write_json, write_text

CHECKPOINT = "checkpoint-"
METRICS = "metrics.jsonl"


class Trainable(Protocol):
    """What the loop moves: a module that knows its weights by name and which of them are pretrained."""

    def weights(self) -> dict[str, Tensor]:
        """By name; what is shared is there once."""

    def load(self, stored: Mapping[str, Tensor]) -> None:
        """Take weights that `weights` gave."""

    def pretrained(self) -> set[nn.Parameter]:
        """The parameters that move slowly."""

    def hold(self, *, encoder: bool, tables: bool) -> None:
        """Set which parameters move: not those of the encoder or of the tokens' rows if these are held."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """All of them."""

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """All of them, by name."""

    def train(self) -> Any:
        """Into the mode for training."""

    def eval(self) -> Any:
        """Into the mode for use."""


@dataclass
class State:
    """What a run remembers besides the weights and the optimiser's moments."""

    step: int = 0
    """Optimiser steps done."""
    mean: dict[str, Tensor] = field(default_factory=dict)
    """The trained weights by name, averaged over the last steps; empty until averaging begins."""
    best: dict[str, Tensor] = field(default_factory=dict)
    """The weights that were judged best; empty until one was judged."""
    best_value: float | None = None
    """How they were judged."""
    stale: int = 0
    """Judgements since then."""


def newest_checkpoint(folder: Path) -> Path | None:
    """The last whole checkpoint; the one before it goes only when a new one is in its place."""
    return max(folder.glob(f"{CHECKPOINT}*"), default=None)


def save(
    folder: Path,
    network: Trainable,
    optimiser: torch.optim.Optimizer,
    state: State,
    settings: Mapping[str, Any],
) -> None:
    """Write a checkpoint and remove the one before it."""
    moments = {
        f"{index}.{name}": value.contiguous() if isinstance(value, Tensor) else torch.tensor(value)
        for index, row in optimiser.state_dict()["state"].items()
        for name, value in row.items()
    }
    content = {"step": state.step, "best_value": state.best_value, "stale": state.stale}
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
    """Bring everything to the last checkpoint; the state of a new run if there is none."""
    checkpoint = newest_checkpoint(folder)
    if checkpoint is None:
        return State()
    verify(checkpoint)
    content = json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))
    stored = content.pop("config")
    if stored != settings:
        names = sorted({*stored, *settings})
        changed = [n for n in names if (n in stored, stored.get(n)) != (n in settings, settings.get(n))]
        raise ValueError(f"{checkpoint}: was written with another {', '.join(changed)}; it cannot be resumed")
    network.load(load_file(checkpoint / "network.safetensors"))
    moments: dict[int, dict[str, Tensor]] = {}
    for name, value in load_file(checkpoint / "optimiser.safetensors").items():
        index, _, moment = name.partition(".")
        moments.setdefault(int(index), {})[moment] = value
    known = optimiser.state_dict()
    optimiser.load_state_dict({"state": moments, "param_groups": known["param_groups"]})
    mean, best = (load_file(checkpoint / f"{name}.safetensors") for name in ("mean", "best"))
    return State(mean=mean, best=best, **content)


def tidy(folder: Path) -> None:
    """Remove what a kill left behind, and every checkpoint but the last."""
    newest = newest_checkpoint(folder)
    for path in (*folder.glob(f"{CHECKPOINT}*"), *folder.glob(f".{CHECKPOINT}*")):
        if path != newest:
            shutil.rmtree(path)
    for path in folder.glob(f".{METRICS}.*"):
        path.unlink()


def log(folder: Path, step: int, values: Mapping[str, float]) -> None:
    """Add a line to the metrics."""
    with (folder / METRICS).open("a", encoding="utf-8") as stream:
        stream.write(json.dumps({"step": step, **values}) + "\n")


def forget_after(folder: Path, step: int) -> None:
    """Cut the metrics behind a step."""
    path = folder / METRICS
    if path.exists():
        lines = path.read_text(encoding="utf-8").splitlines()
        kept = [line for line in lines if line.endswith("}") and json.loads(line)["step"] <= step]
        write_text(path, "".join(f"{line}\n" for line in kept))
