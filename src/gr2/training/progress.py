"""The progress and speed of a training run, and a bar that shows them."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

BAR = "{desc}{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} steps, {elapsed} elapsed{postfix}"


@dataclass(frozen=True)
class Progress:
    """The progress of a run; passed to the progress callback after every logged step."""

    step: int
    steps: int
    parts: Mapping[str, float]
    """Terms of the loss at this step: means over its batches on all ranks."""
    examples_per_second: float
    """Query-docid pairs and texts per second, on all ranks since the last report."""
    seconds_left: float
    """Estimated seconds to the last step, including validations and checkpoints."""
    validation: float | None = None
    """The result of the validation at this step, if there was one."""


Report = Callable[[Progress], None]
"""Called with the progress of a run."""


def ignore(progress: Progress) -> None:
    """Do nothing; the default progress callback."""


class Clock:
    """Times and counts since the start, the last report and the last checkpoint of a process."""

    def __init__(self, step: int) -> None:
        """Start the clock at a step."""
        self.first, self.began, self.saved = step, time.monotonic(), time.monotonic()
        self.examples, self.seconds = 0, 0.0

    def count(self, examples: int, seconds: float) -> None:
        """Add the work of a step."""
        self.examples, self.seconds = self.examples + examples, self.seconds + seconds

    def minutes(self) -> float:
        """Minutes since the last checkpoint."""
        return (time.monotonic() - self.saved) / 60

    def speed(self) -> float:
        """Examples per second of this rank since the last call."""
        speed = self.examples / self.seconds
        self.examples, self.seconds = 0, 0.0
        return speed

    def left(self, step: int, steps: int) -> float:
        """Estimated seconds to the last step."""
        return (time.monotonic() - self.began) / (step - self.first) * (steps - step)


@contextmanager
def progress_bar(name: str, steps: int, *, show: bool) -> Iterator[Report]:
    """A progress bar for a run, as a progress callback."""
    from tqdm import tqdm

    with tqdm(total=steps, desc=f"{name} ", bar_format=BAR, disable=not show) as bar:

        def update(now: Progress) -> None:
            parts = " ".join(f"{part} {value:.3f}" for part, value in now.parts.items())
            left = timedelta(seconds=round(now.seconds_left))
            speed = f"{now.examples_per_second:.0f} examples/s"
            bar.total = now.steps  # a plan may have changed it
            bar.set_postfix_str(f"{left} left, {parts}, {speed}", refresh=False)
            bar.update(now.step - bar.n)

        yield update


@contextmanager
def status_line(name: str, *, show: bool) -> Iterator[Callable[[str], None]]:
    """A line that tells which step a piece of work is at, and for how long it has run."""
    from tqdm import tqdm

    with tqdm(desc=name, bar_format="{desc} ({elapsed})", disable=not show, leave=False) as line:

        def update(step: str) -> None:
            line.set_description_str(f"{name}: {step}")

        yield update
