"""Examples and an objective → trained weights: one loop, interrupted and resumed at will.

A step is a pure function of the weights, the optimiser's state and the step's number (`Batches` needs no
memory), so a checkpoint of these three is all there is: a run that is killed at any moment and resumed ends
with the same bytes as one that was not. Checkpoints are written whole or not at all. Knows no docid scheme
and no collection.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from gr2.batches import Batch, Batches
from gr2.network import Network
from gr2.objective import Objective
from gr2.store import atomic_folder, verify, write_json

CHECKPOINT = "checkpoint-"
METRICS = "metrics.jsonl"


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How the weights move. The defaults are for a small model on a CPU; the paper's are in comments."""

    steps: int = 2000
    """Optimiser steps. paper: 50,000."""
    learning_rate: float = 1e-3
    """Of fresh parameters. paper: 5e-5 for all."""
    encoder_rate: float = 0.1
    """What the learning rate of pretrained parameters is multiplied by; 0 freezes the encoder."""
    weight_decay: float = 0.01
    """AdamW's. paper: the same."""
    warmup: float = 0.1
    """Share of the steps in which the rate rises. paper: the same."""
    clip: float = 1.0
    """Norm at which gradients are cut."""
    bf16: bool = False
    """Automatic mixed precision in bfloat16; see `bf16_pays`."""
    checkpoint_minutes: float = 5.0
    """How often a checkpoint is written."""
    log_every: int = 20
    """Steps between two lines of metrics.jsonl."""
    seed: int = 0
    """Of batches and fresh parameters."""


def bf16_pays() -> bool:
    """Whether this processor multiplies bfloat16 itself; one that only imitates it is many times slower."""
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


@dataclass
class Progress:
    """Where a run stands, for whoever shows it."""

    step: int
    steps: int
    parts: Mapping[str, float]
    examples_per_second: float


def train(
    network: Network,
    objective: Objective,
    batches: Batches,
    config: TrainConfig,
    folder: Path,
    *,
    resume: bool = False,
    encode: Callable[[Network, Tensor, Tensor], Tensor] | None = None,
) -> Iterator[Progress]:
    """Train in place, yielding after every logged step; exhaust the iterator to finish.

    Args:
        network: its weights are changed.
        objective: the loss.
        batches: what to read at each step.
        config: how the weights move.
        folder: for checkpoints and metrics.
        resume: go on from the folder's checkpoint, if it has one.
        encode: another way to get encoder states (such as a cache).
    """
    if not resume and newest_checkpoint(folder):
        raise ValueError(f"{folder}: has the checkpoint of another run; resume it or choose another folder")
    torch.use_deterministic_algorithms(True, warn_only=True)
    optimiser = torch.optim.AdamW(_groups(network, config), weight_decay=config.weight_decay)
    start = _restore(folder, network, optimiser, config) if resume else 0
    folder.mkdir(parents=True, exist_ok=True)
    network.train()
    saved = window = time.monotonic()
    examples = 0
    for step in range(start, config.steps):
        batch = batches[step]
        parts = _step(network, objective, batch, config, encode)
        parts["total"].backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(network.parameters(), config.clip)
        for group in optimiser.param_groups:
            group["lr"] = group["full_rate"] * _schedule(step, config)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        examples += len(batch.docids) + len(batch.text_docids)
        if (step + 1) % config.log_every == 0 or step + 1 == config.steps:
            now = time.monotonic()
            values = {name: float(value.detach()) for name, value in parts.items()}
            _log(folder, step + 1, values)
            yield Progress(step + 1, config.steps, values, examples / (now - window))
            examples, window = 0, time.monotonic()
        if time.monotonic() - saved > 60 * config.checkpoint_minutes or step + 1 == config.steps:
            _save(folder, network, optimiser, step + 1, config)
            saved = time.monotonic()


def _step(
    network: Network,
    objective: Objective,
    batch: Batch,
    config: TrainConfig,
    encode: Callable[[Network, Tensor, Tensor], Tensor] | None,
) -> dict[str, Tensor]:
    read = encode or Network.encode
    frozen = torch.no_grad() if config.encoder_rate == 0 and encode is None else nullcontext()
    with torch.autocast("cpu", torch.bfloat16, enabled=config.bf16):
        with frozen:
            states = (
                read(network, batch.queries, batch.query_mask) if len(batch.queries) else torch.zeros(0, 0, 1)
            )
            texts = read(network, batch.texts, batch.text_mask) if len(batch.texts) else torch.zeros(0, 0, 1)
        return objective(network, batch, states, texts)


def _groups(network: Network, config: TrainConfig) -> list[dict[str, Any]]:
    """Pretrained parameters move slowly or not at all, fresh ones at the full rate."""
    pretrained = set(network.encoder.parameters())
    if network.family != "encoder":
        pretrained |= set(network.decoder.parameters()) | set(network.head.parameters())
    if config.encoder_rate == 0:
        network.encoder.requires_grad_(False)
    slow = [p for p in network.parameters() if p in pretrained and p.requires_grad]
    fast = [p for p in network.parameters() if p not in pretrained]
    rates = [(fast, config.learning_rate), (slow, config.learning_rate * config.encoder_rate)]
    return [{"params": params, "lr": rate, "full_rate": rate} for params, rate in rates if params]


def _schedule(step: int, config: TrainConfig) -> float:
    """Linear warm-up, flat to half of the run, then linear to zero."""
    warm = max(1, round(config.warmup * config.steps))
    if step < warm:
        return (step + 1) / warm
    half = config.steps / 2
    return min(1.0, (config.steps - step) / max(1.0, config.steps - half))


def newest_checkpoint(folder: Path) -> Path | None:
    """The last whole checkpoint; the one before it goes only when a new one is in its place."""
    return max(folder.glob(f"{CHECKPOINT}*"), default=None)


def _save(
    folder: Path, network: Network, optimiser: torch.optim.Optimizer, step: int, config: TrainConfig
) -> None:
    state = optimiser.state_dict()["state"]
    moments = {
        f"{index}.{name}": value.contiguous() if isinstance(value, Tensor) else torch.tensor(value)
        for index, row in state.items()
        for name, value in row.items()
    }
    older = [*folder.glob(f"{CHECKPOINT}*"), *folder.glob(f".{CHECKPOINT}*")]  # the latter: left by a kill
    with atomic_folder(folder / f"{CHECKPOINT}{step:08}") as temporary:
        save_file(network.weights(), temporary / "network.safetensors")
        save_file(moments, temporary / "optimiser.safetensors")
        write_json(temporary / "state.json", {"step": step, "config": asdict(config)})
    for path in older:
        shutil.rmtree(path)


def _restore(
    folder: Path,
    network: Network,
    optimiser: torch.optim.Optimizer,
    config: TrainConfig,
) -> int:
    """Bring everything to the last checkpoint and say at which step it stands; 0 if there is none."""
    checkpoint = newest_checkpoint(folder)
    if checkpoint is None:
        (folder / METRICS).unlink(missing_ok=True)
        return 0
    verify(checkpoint)
    content = json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))
    if content["config"] != asdict(config):
        changed = [name for name, value in asdict(config).items() if content["config"].get(name) != value]
        raise ValueError(f"{checkpoint}: was written with another {', '.join(changed)}; it cannot be resumed")
    step: int = content["step"]
    network.load(load_file(checkpoint / "network.safetensors"))
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in load_file(checkpoint / "optimiser.safetensors").items():
        index, _, moment = name.partition(".")
        state.setdefault(int(index), {})[moment] = value
    known = optimiser.state_dict()
    optimiser.load_state_dict({"state": state, "param_groups": known["param_groups"]})
    _cut_metrics(folder / METRICS, step)
    return step


def _log(folder: Path, step: int, values: Mapping[str, float]) -> None:
    with (folder / METRICS).open("a", encoding="utf-8") as stream:
        stream.write(json.dumps({"step": step, **values}) + "\n")


def _cut_metrics(path: Path, step: int) -> None:
    """Forget what was logged after the checkpoint: those steps are done again."""
    if path.exists():
        lines = path.read_text(encoding="utf-8").splitlines()
        kept = [line for line in lines if line.endswith("}") and json.loads(line)["step"] <= step]
        path.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
