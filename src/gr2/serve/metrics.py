"""Counts and durations → the text that Prometheus reads. This file knows neither HTTP nor what is counted."""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
Labels = tuple[str, ...]


class Counter:
    """Numbers that only rise, one for each combination of labels.

    >>> turned_away = Counter("turned_away_total", "Requests without an answer.", ("reason",))
    >>> turned_away.add("full")
    >>> print(turned_away.text())
    # HELP turned_away_total Requests without an answer.
    # TYPE turned_away_total counter
    turned_away_total{reason="full"} 1
    """

    def __init__(self, name: str, about: str, labels: Sequence[str] = ()) -> None:
        """Name it as Prometheus wants: with its unit, `_total` at the end."""
        self.name, self.about, self.labels = name, about, tuple(labels)
        self._values: dict[Labels, int] = {}

    def add(self, *labels: str) -> None:
        """Count one more."""
        self._values[labels] = self._values.get(labels, 0) + 1

    def text(self) -> str:
        """As Prometheus reads it."""
        rows = [f"{self.name}{_braced(self.labels, row)} {n}" for row, n in sorted(self._values.items())]
        return _block(self.name, self.about, "counter", rows)


class Histogram:
    """How many values lie below each bound."""

    def __init__(self, name: str, about: str, bounds: Sequence[float]) -> None:
        """The bounds ascend; the last one, infinity, is added."""
        self.name, self.about, self._bounds = name, about, tuple(bounds)
        self._counts, self._sum = [0] * (len(self._bounds) + 1), 0.0

    def note(self, value: float) -> None:
        """Take in a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def text(self) -> str:
        """As Prometheus reads it: each bucket counts everything below its bound."""
        bounds = [*(f"{bound:g}" for bound in self._bounds), "+Inf"]
        totals = list(accumulate(self._counts))
        rows = [f'{self.name}_bucket{{le="{b}"}} {n}' for b, n in zip(bounds, totals, strict=True)]
        rows += [f"{self.name}_sum {self._sum:.6f}", f"{self.name}_count {totals[-1]}"]
        return _block(self.name, self.about, "histogram", rows)


class Metrics:
    """What the service counts."""

    def __init__(self) -> None:
        """All at zero."""
        self.requests = Counter("gr2_requests_total", "Requests by route and status.", ("route", "code"))
        self.turned_away = Counter("gr2_turned_away_total", "Searches answered by 503.", ("reason",))
        self.seconds = Histogram("gr2_search_seconds", "Duration of answered searches.", SECONDS)
        self.batch_size = Histogram("gr2_batch_queries", "Queries the model answered at a time.", SIZES)
        self.batch_seconds = Histogram("gr2_batch_seconds", "Duration of the model's batches.", SECONDS)
        self.gauges: dict[str, tuple[str, Callable[[], float]]] = {}

    def noted(self, size: int, seconds: float) -> None:
        """Take in a batch of the model."""
        self.batch_size.note(size)
        self.batch_seconds.note(seconds)

    def text(self) -> str:
        """Everything, as Prometheus reads it."""
        counted = [self.requests.text(), self.turned_away.text()]
        measured = [each.text() for each in (self.seconds, self.batch_size, self.batch_seconds)]
        return "\n".join([*counted, *measured, *_gauges(self.gauges)]) + "\n"


def _gauges(gauges: Mapping[str, tuple[str, Callable[[], float]]]) -> list[str]:
    return [_block(name, about, "gauge", [f"{name} {read():g}"]) for name, (about, read) in gauges.items()]


def _block(name: str, about: str, kind: str, rows: Sequence[str]) -> str:
    return "\n".join([f"# HELP {name} {about}", f"# TYPE {name} {kind}", *rows])


def _braced(names: Labels, values: Labels) -> str:
    if not names:
        return ""
    clean = (value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for value in values)
    inside = ",".join(f'{name}="{value}"' for name, value in zip(names, clean, strict=True))
    return f"{{{inside}}}"
