"""The documents of a model folder: titles and snippets of results, the BM25 ranking, and filters by field.

Without documents in the folder, results consist of docids and scores.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gr2.bm25 import BM25
from gr2.data.collection import Document
from gr2.data.documents import NAME, DocumentStore, Field, Snippet, snippet
from gr2.serve.config import ServiceConfig, UnsupportedRequest


@dataclass(frozen=True)
class ResultText:
    """The parts of a document that a result shows."""

    title: str = ""
    url: str = ""
    snippet: Snippet | None = None


class DocumentLookup:
    """The documents of a model folder, if it contains them."""

    def __init__(self, folder: Path, config: ServiceConfig) -> None:
        """Open the documents; build the BM25 index if it is enabled and there are not too many of them."""
        path = folder / NAME
        self.store = DocumentStore(path) if path.exists() else None
        self.bm25: BM25 | None = None
        self.bm25_note = ""
        """Why there is no BM25 index; empty if there is one."""
        if self.store is None:
            self.bm25_note = f"the model folder has no {NAME}"
        elif not config.bm25:
            self.bm25_note = "it is switched off"
        elif not 0 < len(self.store) <= config.bm25_documents:
            limits = f"1 to {config.bm25_documents:,}"
            self.bm25_note = f"it supports {limits} documents, the model folder has {len(self.store):,}"
        else:
            self.bm25 = BM25.index(self.store)

    def close(self) -> None:
        """Close the documents."""
        if self.store is not None:
            self.store.close()

    def document(self, docno: str) -> Document | None:
        """One document; None if it is unknown."""
        return self.store.get([docno]).get(docno) if self.store is not None else None

    def matching(self, field: Field, text: str) -> list[str]:
        """The docnos of the documents whose field contains the text."""
        if self.store is None:
            raise UnsupportedRequest(f"filter: {field} needs documents, but the model folder has no {NAME}")
        return self.store.matching(field, text)

    def texts(self, query: str, docnos: Iterable[str]) -> dict[str, ResultText]:
        """Title, URL and snippet of each known document."""
        if self.store is None:
            return {}
        return {
            docno: ResultText(document.title, document.url, snippet(document.text, query))
            for docno, document in self.store.get(docnos).items()
        }

    def rank(self, query: str, k: int, allowed: Sequence[str] | None) -> list[tuple[str, float]]:
        """The k best allowed documents by BM25; an empty list without an index."""
        if self.bm25 is None:
            return []
        depth = k if allowed is None else len(self.bm25.docnos)
        ranking = self.bm25.search({"q": query}, depth).rankings["q"]
        if allowed is not None:
            names = set(allowed)
            ranking = tuple(pair for pair in ranking if pair[0] in names)
        return list(ranking[:k])
