"""Communication between the processes of a training run, by torch.distributed; not used by a single process.

`torchrun` starts the processes; each is a rank. The loss of a run is the mean over its ranks, so gradients
are averaged.

Shapes: R ranks, D rows of this rank, M maximum rows per rank, H width.
"""

import atexit
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed
from torch.nn import functional as F

Value = TypeVar("Value")


@dataclass(frozen=True)
class Ranks:
    """The rank of this process and the number of ranks."""

    rank: int = 0
    count: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files and messages."""
        return self.rank == 0

    @property
    def several(self) -> bool:
        """Whether there is more than one process."""
        return self.count > 1

    def wait(self) -> None:
        """Wait until every process has called this."""
        if self.several:
            distributed.barrier()

    def gather(self, value: Value) -> list[Value]:
        """The values of all ranks, on every rank."""
        if not self.several:
            return [value]
        values: list[Any] = [None] * self.count
        distributed.all_gather_object(values, value)
        return values

    def from_first(self, value: Value) -> Value:
        """The first rank's value, on every rank."""
        if not self.several:
            return value
        values = [value]
        distributed.broadcast_object_list(values, 0)
        return values[0]


def join_ranks(device: torch.device | None = None) -> Ranks:
    """The rank of this process; a process group is created only if torchrun started the process."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        return Ranks()
    if not distributed.is_initialized():
        cuda = device is not None and device.type == "cuda"
        if cuda:
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        distributed.init_process_group("nccl" if cuda else "gloo")
        if not cuda:
            # gloo's threads must end before the interpreter does, or they sometimes abort the process. NCCL
            # is left alone: after an error on one rank, destroying its group would wait for the others.
            atexit.register(distributed.destroy_process_group)
    return Ranks(distributed.get_rank(), count)


def agree(ranks: Ranks, step: int, parameters: Iterable[Tensor]) -> None:
    """Check that all ranks start at the same step, and copy the first rank's weights to all."""
    steps = ranks.gather(step)
    if len(set(steps)) > 1:
        raise ValueError(f"the ranks found checkpoints of different steps, {steps}: they must share a folder")
    for parameter in parameters:
        distributed.broadcast(parameter.detach(), 0)


def mean_gradients(parameters: Iterable[Tensor]) -> None:
    """Replace every gradient by its mean over the ranks, in one message.

    A parameter that has no gradient on any rank keeps none: with zeros, weight decay would change it.
    """
    known = [parameter for parameter in parameters if parameter.requires_grad]
    gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in known]
    present = gradients[0].new_tensor([float(p.grad is not None) for p in known])
    message = torch.cat([*(gradient.flatten() for gradient in gradients), present])
    distributed.all_reduce(message)
    *means, present = torch.split(message, [*(gradient.numel() for gradient in gradients), len(known)])
    for parameter, mean, count in zip(known, means, present.tolist(), strict=True):
        parameter.grad = mean.view_as(parameter) / distributed.get_world_size() if count else None


def gather_rows(rows: Tensor, total: int) -> Tensor:
    """The rows of all ranks, each rank's padded with zeros to M: [D, H] → [total = R·M, H], with gradient.

    Every rank must call it, and its loss must depend on the result: the backward pass communicates too.
    """
    missing = total // distributed.get_world_size() - len(rows)
    gathered: Tensor = _Gather.apply(F.pad(rows, (0, 0, 0, missing)))  # type: ignore[no-untyped-call]
    return gathered


class _Gather(torch.autograd.Function):
    """All ranks' rows; the gradient of a row is the sum over the losses of all ranks.

    It is not the mean, because `mean_gradients` divides by the number of ranks.
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
