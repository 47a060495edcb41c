"""The header Host of a request → whether the service may answer it.

Another site can point its own name at 127.0.0.1 (DNS rebinding); the browser then lets its page read what a
service on this machine answers. Such a request carries the other site's name.
"""

from collections.abc import Sequence

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""What a service that only this machine can reach is called."""
ANY = "*"


def answering_to(allowed: Sequence[str], address: str, *, loopback: bool) -> frozenset[str]:
    """The names that a service answers to; empty means every name.

    >>> sorted(answering_to((), "127.0.0.2", loopback=True))
    ['127.0.0.1', '127.0.0.2', '::1', 'localhost']
    >>> answering_to((), "0.0.0.0", loopback=False), answering_to(["Shop.org"], "0.0.0.0", loopback=False)
    (frozenset(), frozenset({'shop.org'}))
    """
    if ANY in allowed or (not allowed and not loopback):
        return frozenset()
    return frozenset(name.lower() for name in allowed or (*LOOPBACK, address))


def name_of(header: bytes) -> str:
    """The name in a header Host, without the port.

    >>> name_of(b"Localhost:8000"), name_of(b"[::1]:8000"), name_of(b"")
    ('localhost', '::1', '')
    """
    text = header.decode("latin-1").strip().lower()
    return text[1:].partition("]")[0] if text.startswith("[") else text.partition(":")[0]
