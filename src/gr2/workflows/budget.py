"""A time budget: how it is written, and what a training step takes on this machine."""

import re
import time
from collections.abc import Callable

import torch

from gr2.model.device import has_fused_adamw, to_device
from gr2.training.batches import Batches
from gr2.training.config import TrainingConfig
from gr2.training.fit import Prepared
from gr2.training.gradients import Gradients
from gr2.training.loop import encoded

_TIME = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")


def seconds(text: str) -> float:
    """A time such as 90s, 30m or 1h30m, in seconds.

    >>> seconds("1h30m")
    5400.0
    """
    found = _TIME.fullmatch(text.strip())
    if not text.strip() or found is None:
        raise ValueError(f"expected a time such as 90s, 30m or 1h30m, found {text!r}")
    hours, minutes, rest = (int(part or 0) for part in found.groups())
    if not (total := 3600 * hours + 60 * minutes + rest):
        raise ValueError(f"expected a time of at least a second, found {text!r}")
    return float(total)


def step_seconds(
    prepared: Prepared,
    config: TrainingConfig,
    steps: int = 4,
    clock: Callable[[], float] = time.monotonic,
) -> float:
    """The mean time of a few steps at learning rate 0, which change no weights, after one for warm-up."""
    network = prepared.model.network
    batches = Batches(prepared.examples, config.batches, seed=config.seed)
    gradients = Gradients(network, prepared.objective, encoded, config.optimiser, (config.seed,))
    network.freeze(encoder=False)
    moving = [weight for weight in network.parameters() if weight.requires_grad]
    optimiser = torch.optim.AdamW(moving, lr=0.0, weight_decay=0.0, fused=has_fused_adamw(network.device))
    begun = clock()
    for step in range(steps + 1):
        if step == 1:
            begun = clock()
        batch = to_device(batches[step], network.device)
        gradients(batch, step)
        torch.nn.utils.clip_grad_norm_(moving, config.optimiser.clip)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    return (clock() - begun) / steps
