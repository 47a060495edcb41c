"""Where a training run stands and how fast it goes, and the bar that shows it."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

Step = TypeVar("Step")
BAR = "{desc}{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} steps, {elapsed} gone{postfix}"


@dataclass
class Progress:
    """Where a run stands, for whoever shows it."""

    step: int
    steps: int
    parts: Mapping[str, float]
    """Of the loss at this step: means over its batches, on all ranks."""
    examples_per_second: float
    """Query-docid pairs and texts of all ranks, by the time spent in steps since the last report."""
    seconds_left: float
    """To the last step at the pace since the start or resumption, judgements and checkpoints included."""
    judged: float | None = None
    """What the judge said at this step, if it was asked."""


class Clock:
    """What a process has done since its start, since its last report and since its last checkpoint."""

    def __init__(self, step: int) -> None:
        """Start at a step."""
        self.first, self.began, self.saved = step, time.monotonic(), time.monotonic()
        self.examples, self.seconds = 0, 0.0

    def count(self, examples: int, seconds: float) -> None:
        """Add what a step did."""
        self.examples, self.seconds = self.examples + examples, self.seconds + seconds

    def minutes(self) -> float:
        """Since the last checkpoint."""
        return (time.monotonic() - self.saved) / 60

    def speed(self) -> float:
        """Examples per second of this rank since it was last asked."""
        speed = self.examples / self.seconds
        self.examples, self.seconds = 0, 0.0
        return speed

    def left(self, step: int, steps: int) -> float:
        """Seconds to the last step."""
        return (time.monotonic() - self.began) / (step - self.first) * (steps - step)


def shown(run: Iterator[Step], name: str, steps: int, *, show: bool) -> Iterator[Step]:
    """What a run yields, passed on, with a bar of its progress where one is wanted."""
    from tqdm import tqdm

    with tqdm(total=steps, desc=f"{name} ", bar_format=BAR, disable=not show) as bar:
        for now in run:
            if isinstance(now, Progress):
                parts = " ".join(f"{part} {value:.3f}" for part, value in now.parts.items())
                left = timedelta(seconds=round(now.seconds_left))
                speed = f"{now.examples_per_second:.0f} examples/s"
                bar.set_postfix_str(f"{left} left, {parts}, {speed}", refresh=False)
                bar.update(now.step - bar.n)
            yield now
