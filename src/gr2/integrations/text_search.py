"""A model and its documents → results with texts, from any thread."""

from pathlib import Path
from threading import Lock

from gr2.data.collection import Document
from gr2.data.documents import NAME, DocumentStore
from gr2.model.gr2 import GR2
from gr2.model.hub import located
from gr2.model.searcher import Result


class TextSearch:
    """Calling it with a query gives the k best results, best first, each with its document."""

    def __init__(self, name: str | Path) -> None:
        """Load a model that contains its documents: a folder, or a name on the Hugging Face hub."""
        folder = located(name)
        self._searcher, self._documents = GR2.from_pretrained(folder).searcher(), DocumentStore(folder / NAME)
        self._lock = Lock()  # toolkits call retrievers from several threads

    def __call__(self, query: str, k: int) -> list[tuple[Result, Document]]:
        """Search, and look up the documents of the results."""
        with self._lock:
            results = self._searcher.search(query, k)
        found = self._documents.get([result.docno for result in results])
        return [(result, found[result.docno]) for result in results]
