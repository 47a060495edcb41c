"""Batches and an objective → trained weights: one training loop that can be interrupted and resumed.

A step is a pure function of the weights, the optimiser's state and the step's number (`Batches` keeps no
state), and these are what a checkpoint contains: a run that is killed at any moment and resumed ends with the
same bytes as an uninterrupted one. Under torchrun, each rank reads its own batches, gradients are averaged,
and rank 0 writes the files.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from math import inf, isfinite
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from gr2.model.device import has_fused_adamw, to_device
from gr2.model.network import Network, recompute_activations
from gr2.store import writer_lock
from gr2.training.batches import Batch
from gr2.training.checkpoints import (
    State,
    Trainable,
    forget_after,
    log,
    newest_checkpoint,
    restore,
    save,
    tidy,
)
from gr2.training.config import OptimiserConfig, ScheduleConfig
from gr2.training.distributed import Ranks, agree, join_ranks, mean_gradients
from gr2.training.gradients import Gradients, InParts, NotFinite, Objective, Read
from gr2.training.progress import Clock, Progress, Report, ignore


class TrainingError(RuntimeError):
    """Training failed; the message says at which step, why, and where the last checkpoint is."""


class Steps(Protocol):
    """The batches of a run, by step; each knows its number of examples."""

    rank: int
    ranks: int

    def __getitem__(self, step: int) -> Any:
        """The batch of a step."""


@dataclass(frozen=True, kw_only=True)
class LoopConfig:
    """The settings of one run of the loop."""

    steps: int
    """Optimiser steps."""
    optimiser: OptimiserConfig = OptimiserConfig()
    freeze_encoder: bool = False
    """Freeze the encoder; its states can then be cached."""
    freeze_embeddings: bool = False
    """Freeze the embeddings and output rows of docid tokens, so that training is not tied to these docids."""
    validate_every: int = 0
    """Steps between validations; the last step is always validated. 0 turns validation off."""
    patience: int = ScheduleConfig.patience
    """Validations without improvement after which the run stops; 0 never stops early."""
    checkpoint_minutes: float = ScheduleConfig.checkpoint_minutes
    """Minutes between checkpoints."""
    log_every: int = ScheduleConfig.log_every
    """Steps between lines of metrics.jsonl."""
    seed: int = 0
    """Seed of batches and new parameters."""


def train(
    network: Trainable,
    objective: Objective | InParts,
    batches: Steps,
    config: LoopConfig,
    folder: Path,
    *,
    resume: bool = False,
    read: Read | None = None,
    validate: Callable[[], float] | None = None,
    about: Mapping[str, Any] | None = None,
    plan: Callable[[int], int] | None = None,
    progress: Report = ignore,
) -> int:
    """Train in place; returns the number of steps that the weights have seen.

    Args:
        network: the network to train; its weights are changed.
        objective: the loss.
        batches: the batch of each step, for this process's rank.
        config: the settings of the run.
        folder: the folder of checkpoints and metrics.
        resume: continue from the folder's checkpoint, if there is one.
        read: how to get encoder states; None computes them, `EncoderCache` looks them up.
        validate: returns the quality of the network (higher is better), for instance by decoding dev queries.
            It is called in eval mode, on rank 0 only, and with the averaged weights once averaging has begun,
            so that it evaluates the weights that would be kept.
        about: further JSON values that must be equal for a run to be resumed, such as what the batches and
            the objective were made from.
        plan: called with the number of steps done; returns how many there will be in all, which replaces that
            of the settings from then on. Without it the number is fixed.
        progress: called after every logged step.
    """
    ranks = join_ranks(network.device)
    _check(config, objective, batches, ranks, validated=validate is not None)
    if not resume and newest_checkpoint(folder):
        raise ValueError(
            f"{folder}: has the checkpoint of another run; continue it with --resume (in Python: "
            "resume=True), remove it to start over, or choose another folder"
        )
    torch.use_deterministic_algorithms(True, warn_only=True)
    # Deterministic mode also fills new memory, a debugging aid that costs time.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    optimiser = torch.optim.AdamW(
        _groups(network, config),
        weight_decay=config.optimiser.weight_decay,
        fused=has_fused_adamw(network.device),
    )
    settings = {**asdict(config), "ranks": ranks.count, **(about or {})}
    del settings["checkpoint_minutes"]  # does not affect the weights
    with writer_lock(folder) if ranks.is_first else nullcontext():
        state = _begin(network, optimiser, folder, settings, ranks)
        seed = (config.seed, ranks.rank)
        gradients = Gradients(network, objective, read or encoded, config.optimiser, seed)
        run = _Run(network, gradients, batches, config, optimiser, ranks)
        clock = Clock(state.step)
        config = run.config = _planned(config, plan, state, ranks)
        while not _over(state, config):
            begun = time.monotonic()
            try:
                parts, examples = run.gradients(state.step)
            except NotFinite as error:  # the weights themselves may be at fault: they are not saved
                raise TrainingError(f"training failed at step {state.step + 1}: {error}") from error
            except BaseException as error:  # the weights are those before the step, so they can be saved
                if ranks.is_first and state.step > clock.first:
                    save(folder, network, optimiser, state, settings)
                if not isinstance(error, Exception):
                    raise
                raise TrainingError(f"training failed at step {state.step + 1}: {error}") from error
            run.move(state.step)
            state.step += 1
            config = run.config = _planned(config, plan, state, ranks)
            _average(network, state, config)
            clock.count(examples, time.monotonic() - begun)
            value = _validation(network, state, validate, ranks) if validate and _due(state, config) else None
            if state.step % config.log_every == 0 or value is not None or _over(state, config):
                progress(_report(folder, state, config, parts, value, clock, ranks))
            if ranks.is_first and (clock.minutes() > config.checkpoint_minutes or _over(state, config)):
                save(folder, network, optimiser, state, settings)
                clock.saved = time.monotonic()
    _put(network, state.best or state.mean)
    return state.step


@dataclass
class _Run:
    """The objects that every step needs."""

    network: Trainable
    of: Gradients
    batches: Steps
    config: LoopConfig
    optimiser: torch.optim.Optimizer
    ranks: Ranks

    def gradients(self, step: int) -> tuple[dict[str, Tensor], int]:
        """Compute the gradient of a step's batch; returns the loss terms and the number of examples."""
        self.optimiser.zero_grad(set_to_none=True)
        batch = to_device(self.batches[step], self.network.device)
        parts = self.of(batch, step)
        if self.ranks.several:
            mean_gradients(self.network.parameters())
        norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.config.optimiser.clip)
        if not isfinite(float(norm)):
            raise NotFinite(f"the norm of the gradient is {float(norm)}, not a finite number")
        return parts, batch.examples

    def move(self, step: int) -> None:
        """Take an optimiser step."""
        how = self.config.optimiser
        for group in self.optimiser.param_groups:
            rate = schedule(step, self.config.steps, how.warmup, how.decay_from)
            group["lr"] = group["full_rate"] * rate
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)


def schedule(step: int, steps: int, warmup: float, decay_from: float = OptimiserConfig.decay_from) -> float:
    """Factor on the learning rate at a step: linear warm-up, constant to `decay_from`, then linear to 0.

    >>> [schedule(step, 10, 0.2) for step in (0, 1, 5, 9)]
    [0.5, 1.0, 1.0, 0.2]
    >>> [schedule(step, 10, 0.2, 0.2) for step in (0, 1, 2, 6, 9)]
    [0.5, 1.0, 1.0, 0.5, 0.125]
    """
    warm = max(1, round(warmup * steps))
    if step < warm:
        return (step + 1) / warm
    return min(1.0, (steps - step) / max(1.0, steps - decay_from * steps))


def encoded(network: Network, batch: Batch) -> tuple[Tensor, Tensor]:
    """Compute the encoder states of queries and texts, without gradient if the encoder is frozen."""
    moves = any(parameter.requires_grad for parameter in network.encoder.parameters())
    sources = ((batch.queries, batch.query_mask), (batch.texts, batch.text_mask))
    with nullcontext() if moves else torch.no_grad():
        states, texts = (
            network.encode(ids, mask) if len(ids) else torch.zeros(0, 0, 1, device=ids.device)
            for ids, mask in sources
        )
    return states, texts


def _begin(
    network: Trainable,
    optimiser: torch.optim.Optimizer,
    folder: Path,
    settings: Mapping[str, Any],
    ranks: Ranks,
) -> State:
    """Restore the last checkpoint on every rank, and remove anything newer from the folder."""
    state = restore(folder, network, optimiser, settings)
    if ranks.several:
        agree(ranks, state.step, network.parameters())
    if ranks.is_first:
        folder.mkdir(parents=True, exist_ok=True)
        tidy(folder)
        forget_after(folder, state.step)
    network.train()
    return state


def _check(
    config: LoopConfig, objective: Objective | InParts, batches: Steps, ranks: Ranks, *, validated: bool
) -> None:
    if config.optimiser.accumulate > 1 and not isinstance(objective, InParts):
        raise ValueError(
            f"accumulate is {config.optimiser.accumulate}, but this loss cannot be computed in parts: set 1"
        )
    if config.validate_every and not validated:
        raise ValueError(f"validate_every is {config.validate_every}, but there is nothing to validate with")
    if (batches.rank, batches.ranks) != (ranks.rank, ranks.count):
        raise ValueError(
            f"the batches are for rank {batches.rank} of {batches.ranks}, "
            f"but this is rank {ranks.rank} of {ranks.count}"
        )


def _planned(config: LoopConfig, plan: Callable[[int], int] | None, state: State, ranks: Ranks) -> LoopConfig:
    """The settings with as many steps as are planned by now: the same number on all ranks."""
    if plan is None:
        return config
    return replace(config, steps=ranks.from_first(plan(state.step)))


def _over(state: State, config: LoopConfig) -> bool:
    return state.step >= config.steps or 0 < config.patience <= state.bad_validations


def _due(state: State, config: LoopConfig) -> bool:
    every = config.validate_every
    return every > 0 and (state.step % every == 0 or state.step == config.steps)


def _trained(network: Trainable) -> dict[str, Tensor]:
    return {name: value.detach() for name, value in network.named_parameters() if value.requires_grad}


def _put(network: Trainable, weights: Mapping[str, Tensor]) -> None:
    trained = _trained(network)
    for name, value in weights.items():
        trained[name].copy_(value)


def _average(network: Trainable, state: State, config: LoopConfig) -> None:
    """Add the weights after a step to the running mean, if averaging has begun."""
    share = config.optimiser.average
    before = config.steps - max(1, round(share * config.steps))  # steps that are not averaged
    if not share or state.step <= before:
        state.mean, state.averaged = {}, 0  # averaging had begun if a plan has since become longer
        return
    state.averaged += 1
    for name, value in _trained(network).items():
        if state.averaged == 1:
            state.mean[name] = value.to(torch.float32, copy=True)
        else:
            state.mean[name].lerp_(value.float(), 1 / state.averaged)


def _validation(network: Trainable, state: State, validate: Callable[[], float], ranks: Ranks) -> float:
    """Validate the weights that would be kept, and remember them if they are the best so far."""
    own = {name: value.clone() for name, value in _trained(network).items() if name in state.mean}
    _put(network, state.mean)
    network.eval()
    value = ranks.from_first(float(validate()) if ranks.is_first else 0.0)  # the same value on all ranks
    state.bad_validations += 1
    if value > (-inf if state.best_value is None else state.best_value):
        state.best = {name: kept.clone() for name, kept in _trained(network).items()}
        state.best_value, state.bad_validations = value, 0
    _put(network, own)
    network.train()
    return value


def _report(
    folder: Path,
    state: State,
    config: LoopConfig,
    parts: Mapping[str, Tensor],
    validation: float | None,
    clock: Clock,
    ranks: Ranks,
) -> Progress:
    """Log a step, with the means over all ranks."""
    rows = ranks.gather({name: float(value) for name, value in parts.items()})
    found = {name: [row[name] for row in rows if name in row] for row in rows for name in row}
    means = {name: sum(values) / len(values) for name, values in found.items()}
    speed = sum(ranks.gather(clock.speed()))
    if ranks.is_first:
        log(folder, state.step, means if validation is None else means | {"validation": validation})
    left = 0.0 if _over(state, config) else clock.left(state.step, config.steps)
    return Progress(state.step, config.steps, means, speed, left, validation)


def _groups(network: Trainable, config: LoopConfig) -> list[dict[str, Any]]:
    """Two groups of parameters: new ones, and pretrained ones with their own learning rate."""
    network.freeze(encoder=config.freeze_encoder, embeddings=config.freeze_embeddings)
    recompute_activations(network.modules(), enabled=config.optimiser.gradient_checkpointing)
    pretrained = network.pretrained()
    moving = [parameter for parameter in network.parameters() if parameter.requires_grad]
    old = [parameter for parameter in moving if parameter in pretrained]
    new = [parameter for parameter in moving if parameter not in pretrained]
    rate = config.optimiser.learning_rate
    rates = [(new, rate), (old, rate * config.optimiser.pretrained_rate)]
    return [{"params": params, "lr": rate, "full_rate": rate} for params, rate in rates if params]
