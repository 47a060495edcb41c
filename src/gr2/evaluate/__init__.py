"""Runs and judgements → measures, significance, leaks, controls, and tables.

`from gr2.evaluate import evaluate, compare` gives the two functions that most callers need; they are loaded
when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gr2.evaluate.measures import evaluate as evaluate
    from gr2.evaluate.significance import compare as compare

_HOME = {"compare": "gr2.evaluate.significance", "evaluate": "gr2.evaluate.measures"}
__all__ = sorted(_HOME)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    """Load a name from the file it lives in."""
    if name not in _HOME:
        raise AttributeError(f"module 'gr2.evaluate' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
