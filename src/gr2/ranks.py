"""What the processes of a training run tell each other; one process alone says nothing.

`torchrun` starts the processes, Accelerate finds them, and each is a rank. (`accelerate launch --cpu` starts
one process whatever it is asked for.) A run's loss is the mean over its ranks, so gradients are averaged.
This file knows no model and no data.

Shapes: R ranks, D rows of this rank, M the most rows of a rank, H width.
"""

from collections.abc import Iterable
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, distributed
from torch.nn import functional as F


def accelerator() -> Accelerator:
    """This process and the others; a process group is made only if torchrun started this one.

    It is told to use the CPU because the objective's tables and the search are there.
    """
    return Accelerator(cpu=True)


def agree(step: int, parameters: Iterable[Tensor]) -> None:
    """See that all ranks begin at the same step, and give them the first one's weights."""
    steps = gather_object([step])
    if len(set(steps)) > 1:
        raise ValueError(f"the ranks found checkpoints of different steps, {steps}: they need one folder")
    for parameter in parameters:
        distributed.broadcast(parameter.detach(), 0)


def mean_gradients(parameters: Iterable[Tensor]) -> None:
    """Replace every gradient by its mean over the ranks, in one message.

    A parameter that has no gradient on any rank keeps none: zeros would let weight decay move it.
    """
    known = [parameter for parameter in parameters if parameter.requires_grad]
    gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in known]
    present = torch.tensor([float(p.grad is not None) for p in known])
    message = torch.cat([*(gradient.flatten() for gradient in gradients), present])
    distributed.all_reduce(message)
    *means, present = torch.split(message, [*(gradient.numel() for gradient in gradients), len(known)])
    for parameter, mean, count in zip(known, means, present.tolist(), strict=True):
        parameter.grad = mean.view_as(parameter) / distributed.get_world_size() if count else None


def gather_rows(rows: Tensor, total: int) -> Tensor:
    """The rows of all ranks, each rank's filled up with zeros to M: [D, H] → [total = R·M, H], with gradient.

    Every rank must call it, and must let its loss depend on the result: the way back is a message too.
    """
    missing = total // distributed.get_world_size() - len(rows)
    gathered: Tensor = _Gather.apply(F.pad(rows, (0, 0, 0, missing)))  # type: ignore[no-untyped-call]
    return gathered


class _Gather(torch.autograd.Function):
    """All ranks' rows; a row's gradient is the sum of what all ranks' losses say about it.

    The sum and not the mean: `mean_gradients` divides by the number of ranks.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        parts = [torch.empty_like(rows) for _ in range(distributed.get_world_size())]
        distributed.all_gather(parts, rows.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].clone()
        distributed.all_reduce(total)
        return total.chunk(distributed.get_world_size())[distributed.get_rank()]
