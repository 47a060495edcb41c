"""What a service is told and what it allows. This file knows no HTTP."""

from dataclasses import dataclass

QUERY_CHARACTERS = 2_000
"""Characters of a query; a model reads far fewer."""
QUERIES = 64
"""Queries of a request."""
RESULTS = 100
"""k at most; beams grow with it."""
DOCNOS = 1_000
"""Docnos of a filter."""
BODY_BYTES = 1 << 20
"""Bytes of a request."""


class Impossible(ValueError):
    """A request that is well formed but cannot be answered by this service."""


@dataclass(frozen=True, kw_only=True)
class ServiceConfig:
    """How much a service takes on."""

    queue: int = 256
    """Queries that may wait; with more, a request is turned away at once."""
    batch: int = 16
    """Queries the model answers at a time."""
    gather_ms: float = 3.0
    """How long a query waits for others to be answered with."""
    timeout: float = 10.0
    """Seconds after which a request is given up; one that would wait half of them is turned away."""
    api_key: str = ""
    """What a client has to send; empty: nothing."""
    bm25: bool = True
    """Whether BM25's ranking can be shown beside the model's."""
    bm25_documents: int = 200_000
    """Documents up to which there is a BM25 index; it is made at the start and held in memory."""

    def __post_init__(self) -> None:
        """Refuse what would make no sense."""
        least = {"queue": 1, "batch": 1, "gather_ms": 0}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise ValueError(f"expected {name} of at least {bound}, found {getattr(self, name)}")
        if not 0 < self.timeout <= 3600:
            raise ValueError(f"expected a timeout above 0 and up to 3600 seconds, found {self.timeout:g}")
