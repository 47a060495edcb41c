"""A time budget: how it is written, how documents and steps are fitted into it, and what was left undone.

Nothing is planned from a short timing. Work begins as it was wanted, and its own progress tells whether it
fits: encoding is given up for a cheaper way only after a good part of its time, and the number of training
steps is planned anew after every step. So a machine that is busy for a while costs little, and one that is
slow throughout does less, but keeps to the time.
"""

import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path

from gr2.model.config import VectorConfig
from gr2.model.encoder import Watch, unwatched
from gr2.store import read_json, write_json

MEASURING = 0.25
"""Share of a budget reserved for evaluation and the report."""
ENCODING = 0.4
"""Maximum share of a budget for encoding documents."""
TOO_EARLY, TOO_LATE = 0.2, 0.5
"""Encoding is not given up before this share of its time, nor after this share of its work."""
MIN_STEPS = 5
"""Training steps that are taken even if there is no time."""
CHEAPER = tuple(VectorConfig.leading(tokens) for tokens in (48, 32, 16))
"""Ways to encode documents if there is no time for the wanted one, best first."""
SAVED_EVERY = 5.0
"""Seconds between notes of what was spent, for a job that is interrupted."""
Clock = Callable[[], float]
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


def written(time: float) -> str:
    """A time as it is typed, rounded up: in whole minutes from a minute on.

    >>> written(42.2), written(60), written(5400), written(121)
    ('43s', '1m', '1h30m', '3m')
    """
    if time < 60:
        return f"{max(1, ceil(time))}s"
    hours, minutes = divmod(ceil(time / 60), 60)
    return f"{hours}h" * bool(hours) + f"{minutes}m" * bool(minutes)


class TooSlow(Exception):
    """Encoding documents as wanted would take longer than its share of a budget."""

    def __init__(self, seconds: float) -> None:
        """Tell how long it would take."""
        super().__init__(f"{seconds:.0f} seconds")
        self.seconds = seconds


@dataclass(frozen=True)
class Encoded:
    """How documents were encoded within a budget."""

    how: VectorConfig
    needed: float | None = None
    """Seconds that the wanted way would need, if it was given up."""


@dataclass
class _Kept:
    """What is kept for a job that is interrupted."""

    spent: float = 0.0
    encoded: Encoded | None = None
    steps: int | None = None
    """How many are planned."""


class Budget:
    """The time of a whole job: what was spent, also before an interruption, and what is left."""

    def __init__(self, seconds: float, path: Path, clock: Clock = time.monotonic) -> None:
        """Start the clock, or continue with what the file says."""
        self.kept = read_json(path, _Kept) if path.is_file() else _Kept()
        self.seconds, self.path, self.clock = seconds, path, clock
        self.saved = clock()
        self.began = self.saved - self.kept.spent

    def spent(self) -> float:
        """Seconds since the job was begun, without those in which it did not run."""
        return self.clock() - self.began

    def left(self) -> float:
        """Seconds left for encoding and training."""
        return self.seconds * (1 - MEASURING) - self.spent()

    def save(self) -> None:
        """Note what was spent, and what was decided."""
        self.saved = self.clock()
        self.kept.spent = self.spent()
        write_json(self.path, asdict(self.kept))


def ways(wanted: VectorConfig) -> list[VectorConfig]:
    """The wanted way to encode documents, and those that are cheaper, best first."""
    return [wanted, *(one for one in CHEAPER if wanted.pieces or one.max_tokens < wanted.max_tokens)]


def within(limit: float, clock: Clock) -> Watch:
    """What raises `TooSlow` once it is clear that encoding takes longer than `limit` seconds.

    The pace is that of the second half of the time since the first batch: loading the encoder is no part of
    it, and a slow beginning is soon forgotten.
    """
    begun = clock()
    past = deque[tuple[float, float]]()  # seconds and share done, from half of the time so far on
    first = 0.0

    def watch(done: float) -> None:
        nonlocal first
        spent = clock() - begun
        first = first if past else spent
        past.append((spent, done))
        while len(past) > 1 and past[1][0] <= (first + spent) / 2:
            past.popleft()
        before, share = past[0]
        if spent - first < TOO_EARLY * limit or done >= TOO_LATE or done <= share:
            return
        needed = spent + (1 - done) * (spent - before) / (done - share)
        if needed > limit:
            raise TooSlow(needed)

    return watch


def encode_within(
    budget: Budget, wanted: VectorConfig, encode: Callable[[VectorConfig, Watch], object]
) -> Encoded:
    """Encode documents as wanted if the budget has the time, else in a cheaper way; done once per job."""
    if budget.kept.encoded is None:
        budget.kept.encoded = _encoded(budget, wanted, encode)
        budget.save()
    return budget.kept.encoded


def _encoded(
    budget: Budget, wanted: VectorConfig, encode: Callable[[VectorConfig, Watch], object]
) -> Encoded:
    needed = None
    *better, last = ways(wanted)
    end = budget.spent() + ENCODING * budget.seconds
    for way in better:
        try:
            encode(way, within(end - budget.spent(), budget.clock))
            return Encoded(way, needed)
        except TooSlow as error:
            needed = needed or error.seconds
    encode(last, unwatched)
    return Encoded(last, needed)


class StepPlan:
    """How many training steps fit into what is left of a budget, asked anew after every step."""

    def __init__(
        self, budget: Budget, useful: int, *, later: int = 0, others: int = 0, preparing: float = 0.0
    ) -> None:
        """Begin with all useful steps.

        Args:
            budget: the time of the whole job.
            useful: more steps than these are never taken.
            later: steps of a stage that follows.
            others: further trainings with as many steps.
            preparing: seconds before the first step of each of them.
        """
        self.budget, self.useful, self.later = budget, useful, later
        self.others, self.preparing = others, preparing
        self.steps = budget.kept.steps or useful
        self.pace: float | None = None
        """Seconds of a step, the mean since the second one."""
        self._calls, self._since = 0, (0, 0.0)

    def __call__(self, done: int) -> int:
        """The number of steps in all, as it is planned after so many; the first call is before any."""
        now, self._calls = self.budget.clock(), self._calls + 1
        if self._calls == 2:  # the first step also warms up
            self._since = done, now
        if self._calls > 2:
            first, since = self._since
            self.pace = max(now - since, 1e-9) / (done - first)
            left = self.budget.left() - self.others * (self.preparing + self.pace * done)
            more = int(left / (1 + self.others) / self.pace) - self.later
            self.steps = min(self.useful, max(MIN_STEPS, done, done + more))
        if done >= self.steps or now - self.budget.saved >= SAVED_EVERY:
            self.budget.kept.steps = self.steps
            self.budget.save()
        return self.steps

    def missing(self) -> float:
        """Seconds that the useful steps which were not taken would need."""
        return (self.useful - self.steps) * (self.pace or 0.0) * (1 + self.others)


def left_undone(budget: Budget, plan: StepPlan, wanted: VectorConfig) -> str:
    """What there was no time for, and the budget that would have been enough, in a sentence."""
    undone, extra, encoded = [], 0.0, budget.kept.encoded
    if encoded is not None and encoded.how != wanted:
        undone.append(f"what documents say after their first {encoded.how.max_tokens} tokens")
        extra += encoded.needed or 0.0
    if plan.steps < plan.useful:
        undone.append(f"{plan.useful - plan.steps:,} of {plan.useful:,} training steps")
        extra += plan.missing()
    if not undone:
        return f"budget: everything fitted; {written(budget.spent())} were used of {written(budget.seconds)}"
    enough, used = written((budget.spent() + extra) / (1 - MEASURING)), budget.spent()
    over = f"; {written(used)} were used of {written(budget.seconds)}, because even the least took longer"
    return (
        f"left undone for lack of time: {' and '.join(undone)}; --budget {enough} is probably enough"
        + over * (used > budget.seconds)
    )
