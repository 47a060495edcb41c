"""Imports of optional packages: without the package, the error names the extra of gr2 that installs it."""

from collections.abc import Iterator
from contextlib import contextmanager


class MissingExtra(ImportError, ValueError):
    """An optional package is not installed: an import error, and to a user an input error of one sentence."""


@contextmanager
def extra(name: str, purpose: str) -> Iterator[None]:
    """Import optional packages in this block.

    >>> with extra("docids", "codes from vectors"):
    ...     import no_such_package
    Traceback (most recent call last):
    gr2.extras.MissingExtra: codes from vectors: pip install 'gr2[docids]' (No module named 'no_such_package')

    Args:
        name: The extra, as pyproject.toml names it.
        purpose: What needs the packages.
    """
    try:
        yield
    except ImportError as error:
        raise MissingExtra(f"{purpose}: pip install 'gr2[{name}]' ({error})") from error
