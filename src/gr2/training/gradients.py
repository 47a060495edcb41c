"""A batch and an objective → gradients in the network, computed whole or in parts that need less memory.

In parts the gradient is that of the whole batch, to rounding, also for terms that compare representations
across the batch (L_MGCC; L_Rel and L_Div of fusion): a pass without gradient collects the representations,
the terms across the batch are differentiated with respect to them, and a second pass, with the same dropout,
carries these derivatives into the weights (as GradCache does; Gao et al., RepL4NLP 2021).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from gr2.model.device import autocast, bf16_pays, seeded
from gr2.training.config import OptimiserConfig

Objective = Callable[..., dict[str, Tensor]]
"""A network, a batch and the result of `Read` → the terms of the loss, and `total`."""
Read = Callable[[Any, Any], Sequence[Tensor]]
"""A network and a batch → the encoder states of its queries and texts, for the objective."""


class NotFinite(ValueError):
    """A loss or gradient is not a finite number."""


@dataclass(frozen=True)
class Each:
    """What can be computed for each part of a batch alone."""

    terms: Mapping[str, Tensor]
    """The loss of each example, by the name of the term: [examples]."""
    representations: tuple[Tensor, ...] = ()
    """What the terms across the batch compare: [rows, width] each; empty if there are no such terms."""


@runtime_checkable
class InParts(Protocol):
    """An objective whose batches (with `parts` and `sizes`) can be computed in parts."""

    @property
    def compares(self) -> bool:
        """Whether there are terms across the batch."""

    @property
    def each(self) -> Callable[..., Each]:
        """A network, a batch or a part of one, and its states → what is computed for it alone."""

    def across(self, batch: Any, representations: Sequence[Tensor]) -> dict[str, Tensor]:
        """The terms that compare representations of the whole batch."""

    def total(self, terms: Mapping[str, Tensor]) -> Tensor:
        """The loss: a weighted sum of the means of the terms; a missing one counts as 0."""


def whole(objective: InParts, network: Any, batch: Any, *states: Tensor) -> dict[str, Tensor]:
    """The mean of each term of a batch, and `total`."""
    each = objective.each(network, batch, *states)
    terms = dict(each.terms)
    if each.representations:
        terms |= objective.across(batch, each.representations)
    return {name: values.mean() for name, values in terms.items()} | {"total": objective.total(terms)}


@dataclass(frozen=True)
class Gradients:
    """Adds the gradient of a batch to the network's parameters."""

    network: Any
    objective: Objective | InParts
    read: Read
    config: OptimiserConfig
    seed: tuple[int, ...]
    """Of dropout, with the step."""

    def __call__(self, batch: Any, step: int) -> dict[str, Tensor]:
        """Compute and add the gradient of a step's batch; returns the terms of the loss."""
        if self.config.accumulate == 1:
            assert callable(self.objective)
            parts = self._run(self.objective, batch, step, 0)
            _backward(parts["total"])
            return {name: value.detach() for name, value in parts.items()}
        assert isinstance(self.objective, InParts)
        return self._in_parts(self.objective, batch, step)

    def _in_parts(self, objective: InParts, batch: Any, step: int) -> dict[str, Tensor]:
        parts = batch.parts(self.config.accumulate)
        across, derivatives = self._across(objective, batch, parts, step)
        found: dict[str, list[Tensor]] = {}
        for place, part in enumerate(parts):
            each: Each = self._run(objective.each, part, step, place)
            shares = {name: values * (len(values) / batch.sizes[name]) for name, values in each.terms.items()}
            carried = zip(each.representations, derivatives[place], strict=True)
            _backward(
                objective.total(shares), sum(((one * by).sum() for one, by in carried), torch.zeros(()))
            )
            for name, values in each.terms.items():
                found.setdefault(name, []).append(values.detach())
        terms = {name: torch.cat(rows) for name, rows in found.items()} | across
        return {name: values.mean() for name, values in terms.items()} | {"total": objective.total(terms)}

    def _across(
        self, objective: InParts, batch: Any, parts: Sequence[Any], step: int
    ) -> tuple[dict[str, Tensor], list[tuple[Tensor, ...]]]:
        """The terms across the batch, and the loss's derivatives by the representations of each part."""
        if not objective.compares:
            return {}, [()] * len(parts)
        with torch.no_grad():
            rows = [
                self._run(objective.each, part, step, place).representations
                for place, part in enumerate(parts)
            ]
        together = [torch.cat(kind).detach().requires_grad_() for kind in zip(*rows, strict=True)]
        with self._autocast():
            terms = objective.across(batch, together)
        _backward(objective.total(terms))
        split = [
            torch.zeros_like(one) if one.grad is None else one.grad
            for one in together  # one without a gradient has no row that is compared
        ]
        pieces = [torch.split(by, [len(row[kind]) for row in rows]) for kind, by in enumerate(split)]
        return {name: values.detach() for name, values in terms.items()}, list(zip(*pieces, strict=True))

    def _run(self, function: Callable[..., Any], batch: Any, step: int, place: int) -> Any:
        """Apply the objective, or a part of it; the same step and place have the same dropout."""
        with seeded(self.network.device, *self.seed, step, place), self._autocast():
            return function(self.network, batch, *self.read(self.network, batch))

    def _autocast(self) -> Any:
        chosen, device = self.config.bf16, self.network.device
        return autocast(device, enabled=bf16_pays(device) if chosen is None else chosen)


def _backward(loss: Tensor, more: Tensor | None = None) -> None:
    """Add the gradient of a loss, plus that of what carries derivatives and is no loss itself."""
    if not isfinite(value := float(loss.detach())):
        raise NotFinite(f"the loss is {value}, not a finite number")
    both = loss if more is None else loss + more.to(loss.device)
    if both.requires_grad:
        both.backward()  # type: ignore[no-untyped-call]
