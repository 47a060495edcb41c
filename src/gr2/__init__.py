"""Generative retrieval with multi-graded relevance.

A model reads a query and writes the identifiers of the documents that answer it, best grade first. The public
names are below; each is loaded when it is first used, so `import gr2` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gr2.bm25 import BM25 as BM25
    from gr2.data.collection import Collection as Collection
    from gr2.data.collection import Document as Document
    from gr2.data.formats import open_collection as open_collection
    from gr2.data.runs import Run as Run
    from gr2.docids.docids import Docids as Docids
    from gr2.model.gr2 import GR2 as GR2
    from gr2.model.searcher import Searcher as Searcher
    from gr2.systems.generative import train as train

_HOME = {
    "BM25": "gr2.bm25",
    "Collection": "gr2.data.collection",
    "Docids": "gr2.docids.docids",
    "Document": "gr2.data.collection",
    "GR2": "gr2.model.gr2",
    "Run": "gr2.data.runs",
    "Searcher": "gr2.model.searcher",
    "open_collection": "gr2.data.formats",
    "train": "gr2.systems.generative",
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
