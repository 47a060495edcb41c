"""What the service counts for Prometheus; each service has its own registry."""

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

CONTENT_TYPE = CONTENT_TYPE_LATEST
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """The metrics of one service."""

    def __init__(self) -> None:
        """Start at zero."""
        self._registry = registry = CollectorRegistry()
        self.requests = Counter(
            "gr2_requests_total", "Requests by route and status code.", ("route", "code"), registry=registry
        )
        self.turned_away = Counter(
            "gr2_turned_away_total", "Searches that got HTTP 503.", ("reason",), registry=registry
        )
        self.search_seconds = Histogram(
            "gr2_search_seconds", "Duration of successful searches.", buckets=SECONDS, registry=registry
        )
        self.batch_queries = Histogram(
            "gr2_batch_queries", "Queries per batch of the model.", buckets=SIZES, registry=registry
        )
        self.batch_seconds = Histogram(
            "gr2_batch_seconds", "Duration of a batch of the model.", buckets=SECONDS, registry=registry
        )
        self.queue_queries = Gauge("gr2_queue_queries", "Queries in the queue.", registry=registry)

    def record_batch(self, size: int, seconds: float) -> None:
        """Record a batch of the model."""
        self.batch_queries.observe(size)
        self.batch_seconds.observe(seconds)

    def text(self) -> bytes:
        """All metrics in the text format of `CONTENT_TYPE`."""
        return generate_latest(self._registry)
