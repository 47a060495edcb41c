"""The ways to learn from judgements that selection compares."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gr2.training.regression import RegressionConfig, Shared

GATES: tuple[tuple[float, float] | None, ...] = (None, (0.4, 0.8), (0.5, 0.9))
MEMORY = (0.0, 0.2, 0.5, 1.0)
DECAYS = (0.1, 1.0)
"""λ; all candidates are compared with the first, then the best of them with the others."""


@dataclass(frozen=True)
class Candidate:
    """A way to learn; `regression` None learns no offsets."""

    regression: RegressionConfig | None = None
    gate: tuple[float, float] | None = None
    memory: float = 0.0
    split: str = "train"
    """Where it learns from."""

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Candidate":
        """A candidate from its fields as JSON values."""
        regression, gate = stored["regression"], stored["gate"]
        return cls(
            None if regression is None else RegressionConfig(**regression),
            None if gate is None else (gate[0], gate[1]),
            stored["memory"],
            stored["split"],
        )

    @property
    def learns(self) -> bool:
        """Whether it learns anything."""
        return self.regression is not None or self.memory > 0

    def __str__(self) -> str:
        """As a row of the selection table."""
        if not self.learns:
            return "nothing"
        parts = [] if self.regression is None else [_offsets(self.regression)]
        parts += [f"memory {self.memory:g}"] if self.memory else []
        parts += [] if self.gate is None else [f"gate {self.gate[0]:g} to {self.gate[1]:g}"]
        parts += [] if self.split == "train" else [f"from {self.split}"]
        return ", ".join(parts)


def _offsets(config: RegressionConfig) -> str:
    what = " and ".join([*(["documents"] if config.own else []), *([config.shared] if config.shared else [])])
    return f"offsets of {what} ({config.negatives} negatives, λ {config.decay:g})"


def candidates(
    splits: Sequence[str] = ("train",), *, words: bool = True, codes: bool = False, variant: str = "gr2"
) -> list[Candidate]:
    """Learning nothing first, then every combination of split, offsets, memory and gate.

    Args:
        splits: where to learn from.
        words: whether there are terms along which offsets can be shared.
        codes: whether documents consist of codes; then offsets are those of codes, and there is no memory.
        variant: the loss of the regression.
    """
    kinds: Sequence[Shared] = ["codes"] if codes else ["", "terms"] if words else [""]
    ways: list[RegressionConfig | None] = [None]
    for shared in kinds:
        plain = RegressionConfig(variant=variant, own=not shared, shared=shared, decay=DECAYS[0])
        ways += [replace(plain, negatives="judged"), replace(plain, negatives="all")]
    every = (
        Candidate(way, gate, memory, split)
        for split in splits
        for way in ways
        for gate in GATES
        for memory in (MEMORY[:1] if codes else MEMORY)
    )
    return [Candidate(), *(one for one in every if one.learns)]
