"""The settings of a service, and the limits on a request.

Imports nothing heavy: the command line is made from it.
"""

from dataclasses import dataclass

QUERY_CHARACTERS = 2_000
"""Maximum characters of a query; models read far fewer."""
QUERIES = 64
"""Maximum queries of a request."""
RESULTS = 100
"""Maximum k; the number of beams grows with it."""
DOCNOS = 1_000
"""Maximum docnos of a filter."""
BODY_BYTES = 1 << 20
"""Maximum bytes of a request body."""


class UnsupportedRequest(ValueError):
    """A request that is well formed but that this service cannot answer."""


@dataclass(frozen=True, kw_only=True)
class ServiceConfig:
    """The settings of a service."""

    queue: int = 256
    """Queries that may wait; further requests get HTTP 503 with Retry-After."""
    batch: int = 16
    """Maximum queries that the model answers together."""
    gather_ms: float = 3.0
    """Milliseconds that a query waits for others to fill its batch."""
    timeout: float = 10.0
    """Seconds until a request fails; one that would queue for more than half of them is rejected at once."""
    device: str = "auto"
    """Where the model runs: cpu, cuda, mps, or auto for the best one available."""
    bm25: bool = True
    """Offer a BM25 ranking for comparison, if the model folder contains the documents."""
    allowed_hosts: tuple[str, ...] = ()
    """Names by which clients may call the service (header Host), `*` for any. By default localhost and the
    loopback addresses if only this machine can connect, else any."""
    bm25_documents: int = 200_000
    """Maximum documents for BM25; its index is built at startup and kept in memory."""

    def __post_init__(self) -> None:
        """Check the values."""
        least = {"queue": 1, "batch": 1, "gather_ms": 0}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise ValueError(f"expected {name} of at least {bound}, found {getattr(self, name)}")
        if not 0 < self.timeout <= 3600:
            raise ValueError(f"expected a timeout above 0 and up to 3600 seconds, found {self.timeout:g}")
