"""Generative retrieval with multi-graded relevance.

A model reads a query and writes the identifiers of the documents that answer it, best grade first. The public
names are below; each is loaded when it is first used, so `import gr2` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gr2.baselines.sparse import BM25 as BM25
    from gr2.compare import compare as compare
    from gr2.data import Collection as Collection
    from gr2.data import Document as Document
    from gr2.docids import Docids as Docids
    from gr2.formats import open_collection as open_collection
    from gr2.measures import evaluate as evaluate
    from gr2.model import GR2 as GR2
    from gr2.runs import Run as Run
    from gr2.trie import Trie as Trie

_HOME = {
    "BM25": "gr2.baselines.sparse",
    "Collection": "gr2.data",
    "Docids": "gr2.docids",
    "Document": "gr2.data",
    "GR2": "gr2.model",
    "Run": "gr2.runs",
    "Trie": "gr2.trie",
    "compare": "gr2.compare",
    "evaluate": "gr2.measures",
    "open_collection": "gr2.formats",
}
__all__ = sorted(_HOME)  # noqa: PLE0605


def __dir__() -> list[str]:
    """The public names, for completion."""
    return __all__


def __getattr__(name: str) -> Any:
    """Load a public name from the file it lives in."""
    if name not in _HOME:
        raise AttributeError(f"module 'gr2' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
