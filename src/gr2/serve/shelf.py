"""What stands beside a model's answers: titles, snippets, BM25's ranking, and what a filter allows.

All of it needs the model folder's documents; without them answers have docids and scores alone. This file
knows no HTTP and no network.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gr2.baselines.sparse import BM25
from gr2.data import Document
from gr2.documents import NAME, DocumentStore, Field, Snippet, snippet
from gr2.serve.config import Impossible, ServiceConfig


@dataclass(frozen=True)
class Dressed:
    """What a result shows of its document."""

    title: str = ""
    url: str = ""
    snippet: Snippet | None = None


class Shelf:
    """The documents of a model folder, where it has them."""

    def __init__(self, folder: Path, config: ServiceConfig) -> None:
        """Open the documents and index them for BM25, if that is wanted and they are not too many."""
        path = folder / NAME
        self.store = DocumentStore(path) if path.exists() else None
        self.bm25: BM25 | None = None
        if self.store is None:
            self.no_bm25 = f"the model folder has no {NAME}"
        elif not config.bm25:
            self.no_bm25 = "it is switched off"
        elif not 0 < len(self.store) <= config.bm25_documents:
            self.no_bm25 = f"it is made for 1 to {config.bm25_documents:,} documents, not {len(self.store):,}"
        else:
            self.no_bm25, self.bm25 = "", BM25.index(self.store)

    def close(self) -> None:
        """Close the documents."""
        if self.store is not None:
            self.store.close()

    def document(self, docno: str) -> Document | None:
        """One document; None if it is not here."""
        return self.store.get([docno]).get(docno) if self.store is not None else None

    def matching(self, field: Field, text: str) -> list[str]:
        """The docnos whose field contains the text."""
        if self.store is None:
            raise Impossible(f"filter: by {field} it needs documents, but the model folder has no {NAME}")
        return self.store.matching(field, text)

    def dress(self, query: str, docnos: Iterable[str]) -> dict[str, Dressed]:
        """Title, address and snippet of each document that is here."""
        if self.store is None:
            return {}
        return {
            docno: Dressed(document.title, document.url, snippet(document.text, query))
            for docno, document in self.store.get(docnos).items()
        }

    def rank(self, query: str, k: int, allowed: Sequence[str] | None) -> list[tuple[str, float]]:
        """BM25's ranking of the allowed documents; nothing without an index."""
        if self.bm25 is None:
            return []
        depth = k if allowed is None else len(self.bm25.docnos)
        ranking = self.bm25.search({"q": query}, depth).rankings["q"]
        kept = ranking if allowed is None else _only(ranking, set(allowed))
        return list(kept[:k])


def _only(ranking: tuple[tuple[str, float], ...], docnos: set[str]) -> tuple[tuple[str, float], ...]:
    return tuple(pair for pair in ranking if pair[0] in docnos)
