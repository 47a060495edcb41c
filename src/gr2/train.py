"""Examples and an objective → trained weights: one loop, interrupted and resumed at will.

A step is a pure function of the weights, the optimiser's state and the step's number (`Batches` needs no
memory), so a checkpoint of these is all there is: a run that is killed at any moment and resumed ends with
the same bytes as one that was not. Started by torchrun, each rank reads its own batches, gradients are
averaged, and rank 0 writes. Knows no docid scheme and no collection.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from typing import Any, Protocol

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, gather_object
from torch import Tensor

from gr2.batches import Batch
from gr2.checkpoints import State, Trainable, forget_after, log, newest_checkpoint, restore, save, tidy
from gr2.network import Network
from gr2.progress import Clock, Progress
from gr2.ranks import accelerator, agree, mean_gradients

Objective = Callable[..., dict[str, Tensor]]
"""A network, a batch and what `Read` gave → the parts of the loss, and `total`."""
Read = Callable[[Any, Any], Sequence[Tensor]]
"""What an objective wants to know of a batch besides: the encoder's states of its queries and its texts."""


class Steps(Protocol):
    """The batches of a run, by step; each knows its number of examples."""

    rank: int
    ranks: int

    def __getitem__(self, step: int) -> Any:
        """The batch of a step."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How the weights move. The defaults are for a small model on a CPU; the paper's are in comments."""

    steps: int = 2000
    """Optimiser steps. paper: 50,000."""
    learning_rate: float = 1e-3
    """Of fresh parameters. paper: 5e-5 for all."""
    pretrained_rate: float = 0.1
    """What the learning rate of pretrained parameters is multiplied by."""
    freeze_encoder: bool = False
    """Whether the encoder stands still; its states may then be cached."""
    freeze_tables: bool = False
    """Whether the rows of docid tokens stand still, so that what is learned holds for any docids."""
    weight_decay: float = 0.01
    """AdamW's. paper: the same."""
    warmup: float = 0.1
    """Share of the steps in which the rate rises. paper: the same."""
    clip: float = 1.0
    """Norm at which gradients are cut."""
    accumulate: int = 1
    """Batches of a step, read one after the other, whose gradients are averaged; each contrasts in itself."""
    average: float = 0.0
    """Share of the steps, at the end, whose weights are averaged: the result is their mean. 0 never."""
    judge_every: int = 0
    """Steps between two judgements of the weights, which are also judged at the last step; 0 never."""
    patience: int = 0
    """Judgements without a gain after which the run stops; 0 never, but the best weights are the result."""
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


def train(
    network: Trainable,
    objective: Objective,
    batches: Steps,
    config: TrainConfig,
    folder: Path,
    *,
    resume: bool = False,
    read: Read | None = None,
    judge: Callable[[], float] | None = None,
    about: Mapping[str, Any] | None = None,
) -> Iterator[Progress]:
    """Train in place, yielding after every logged step; exhaust the iterator to finish.

    Args:
        network: its weights are changed.
        objective: the loss.
        batches: what to read at each step; made for this process's rank.
        config: how the weights move.
        folder: for checkpoints and metrics.
        resume: go on from the folder's checkpoint, if it has one.
        read: another way to get encoder states, such as `FrozenStates`.
        judge: says how good the network is at this moment (more is better), for instance by decoding dev
            queries. It finds the network in eval mode and, once averaging has begun, with the averaged
            weights: what it judges is what would be kept. Rank 0 alone is asked.
        about: what else has to be the same for a run to be resumed, JSON-like: whatever the batches and the
            objective come from.
    """
    machine, read = accelerator(), read or encoded
    _check(config, batches, machine, judged=judge is not None)
    if not resume and newest_checkpoint(folder):
        raise ValueError(f"{folder}: has the checkpoint of another run; resume it or choose another folder")
    torch.use_deterministic_algorithms(True, warn_only=True)
    # A debugging aid that comes with it and writes all new memory twice.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    optimiser = torch.optim.AdamW(_groups(network, config), weight_decay=config.weight_decay, fused=True)
    settings = {**asdict(config), "ranks": machine.num_processes, **(about or {})}
    del settings["checkpoint_minutes"]  # how often one is written changes no weight
    state = _begin(network, optimiser, folder, settings, machine)
    clock = Clock(state.step)
    while not _over(state, config):
        begun = time.monotonic()
        parts, examples = _gradients(network, objective, batches, state.step, config, read, machine)
        _move(network, optimiser, state.step, config, machine)
        state.step += 1
        _average(network, state, config)
        clock.count(examples, time.monotonic() - begun)
        value = _judgement(network, state, judge, machine) if judge and _due(state, config) else None
        if state.step % config.log_every == 0 or value is not None or _over(state, config):
            yield _report(folder, state, config, parts, value, clock, machine)
        if machine.is_main_process and (clock.minutes() > config.checkpoint_minutes or _over(state, config)):
            save(folder, network, optimiser, state, settings)
            clock.saved = time.monotonic()
    _put(network, state.best or state.mean)


def _begin(
    network: Trainable,
    optimiser: torch.optim.Optimizer,
    folder: Path,
    settings: Mapping[str, Any],
    machine: Accelerator,
) -> State:
    """Everything as the last checkpoint has it, on every rank, and nothing in the folder that is newer."""
    state = restore(folder, network, optimiser, settings)
    if machine.num_processes > 1:
        agree(state.step, network.parameters())
    if machine.is_main_process:
        folder.mkdir(parents=True, exist_ok=True)
        tidy(folder)
        forget_after(folder, state.step)
    network.train()
    return state


def _check(config: TrainConfig, batches: Steps, machine: Accelerator, *, judged: bool) -> None:
    if config.accumulate < 1 or not 0 <= config.average <= 1:
        raise ValueError(
            f"expected accumulate of at least 1 and average from 0 to 1, "
            f"found {config.accumulate} and {config.average}"
        )
    if config.judge_every and not judged:
        raise ValueError(f"judge_every is {config.judge_every}, but there is no judge")
    if (batches.rank, batches.ranks) != (machine.process_index, machine.num_processes):
        raise ValueError(
            f"the batches are those of rank {batches.rank} of {batches.ranks}, "
            f"but this is rank {machine.process_index} of {machine.num_processes}"
        )


def _over(state: State, config: TrainConfig) -> bool:
    return state.step >= config.steps or 0 < config.patience <= state.stale


def _due(state: State, config: TrainConfig) -> bool:
    return config.judge_every > 0 and (state.step % config.judge_every == 0 or state.step == config.steps)


def _gradients(
    network: Trainable,
    objective: Objective,
    batches: Steps,
    step: int,
    config: TrainConfig,
    read: Read,
    machine: Accelerator,
) -> tuple[list[dict[str, Tensor]], int]:
    """Leave the mean gradient of a step's batches in the network; the parts of each loss, and examples."""
    rows, examples = [], 0
    for number in range(step * config.accumulate, (step + 1) * config.accumulate):
        batch = batches[number]
        parts = _loss(network, objective, batch, config, read)
        machine.backward(parts["total"] / config.accumulate)
        rows.append({name: value.detach() for name, value in parts.items()})
        examples += batch.examples
    if machine.num_processes > 1:
        mean_gradients(network.parameters())
    return rows, examples


def encoded(network: Network, batch: Batch) -> tuple[Tensor, Tensor]:
    """The encoder's states of queries and texts, computed; without gradient if the encoder is frozen."""
    moves = any(parameter.requires_grad for parameter in network.encoder.parameters())
    sources = ((batch.queries, batch.query_mask), (batch.texts, batch.text_mask))
    with nullcontext() if moves else torch.no_grad():
        states, texts = (
            network.encode(ids, mask) if len(ids) else torch.zeros(0, 0, 1) for ids, mask in sources
        )
    return states, texts


def _loss(
    network: Trainable, objective: Objective, batch: Any, config: TrainConfig, read: Read
) -> dict[str, Tensor]:
    # Not Accelerate's autocast: that one is the same for all runs of a process.
    with torch.autocast("cpu", torch.bfloat16, enabled=config.bf16):
        return objective(network, batch, *read(network, batch))


def _move(
    network: Trainable, optimiser: torch.optim.Optimizer, step: int, config: TrainConfig, machine: Accelerator
) -> None:
    machine.clip_grad_norm_(network.parameters(), config.clip)
    for group in optimiser.param_groups:
        group["lr"] = group["full_rate"] * _schedule(step, config)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)


def _trained(network: Trainable) -> dict[str, Tensor]:
    return {name: value.detach() for name, value in network.named_parameters() if value.requires_grad}


def _put(network: Trainable, weights: Mapping[str, Tensor]) -> None:
    trained = _trained(network)
    for name, value in weights.items():
        trained[name].copy_(value)


def _average(network: Trainable, state: State, config: TrainConfig) -> None:
    """Let the weights after a step into the mean, if the step is one of the last."""
    before = config.steps - max(1, round(config.average * config.steps))  # steps that do not count
    count = state.step - before
    if not config.average or count < 1:
        return
    for name, value in _trained(network).items():
        if count == 1:
            state.mean[name] = value.to(torch.float32, copy=True)
        else:
            state.mean[name].lerp_(value.float(), 1 / count)


def _judgement(network: Trainable, state: State, judge: Callable[[], float], machine: Accelerator) -> float:
    """Judge the weights that would be the result, and keep them if they are the best so far."""
    own = {name: value.clone() for name, value in _trained(network).items() if name in state.mean}
    _put(network, state.mean)
    network.eval()
    value = [float(judge()) if machine.is_main_process else 0.0]
    broadcast_object_list(value)  # ranks that decided for themselves could part
    state.stale += 1
    if value[0] > (-inf if state.best_value is None else state.best_value):
        state.best = {name: kept.clone() for name, kept in _trained(network).items()}
        state.best_value, state.stale = value[0], 0
    _put(network, own)
    network.train()
    return value[0]


def _report(
    folder: Path,
    state: State,
    config: TrainConfig,
    parts: Sequence[Mapping[str, Tensor]],
    judged: float | None,
    clock: Clock,
    machine: Accelerator,
) -> Progress:
    """Log a step; what is said of it is said of all ranks."""
    rows = gather_object([{name: float(value) for name, value in row.items()} for row in parts])
    found = {name: [row[name] for row in rows if name in row] for row in rows for name in row}
    means = {name: sum(values) / len(values) for name, values in found.items()}
    speed = sum(gather_object([clock.speed()]))
    if machine.is_main_process:
        log(folder, state.step, means if judged is None else means | {"judged": judged})
    left = 0.0 if _over(state, config) else clock.left(state.step, config.steps)
    return Progress(state.step, config.steps, means, speed, left, judged)


def _groups(network: Trainable, config: TrainConfig) -> list[dict[str, Any]]:
    """Pretrained parameters move slowly; fresh ones do not."""
    network.hold(encoder=config.freeze_encoder, tables=config.freeze_tables)
    pretrained = network.pretrained()
    moving = [parameter for parameter in network.parameters() if parameter.requires_grad]
    slow = [parameter for parameter in moving if parameter in pretrained]
    fast = [parameter for parameter in moving if parameter not in pretrained]
    rates = [(fast, config.learning_rate), (slow, config.learning_rate * config.pretrained_rate)]
    return [{"params": params, "lr": rate, "full_rate": rate} for params, rate in rates if params]


def _schedule(step: int, config: TrainConfig) -> float:
    """Linear warm-up, flat to half of the run, then linear to zero."""
    warm = max(1, round(config.warmup * config.steps))
    if step < warm:
        return (step + 1) / warm
    half = config.steps / 2
    return min(1.0, (config.steps - step) / max(1.0, config.steps - half))
