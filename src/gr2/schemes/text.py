"""Docids taken from the document itself: title, URL, summary, most distinctive terms; or an arbitrary number.

Each scheme is one function: documents → proposals, best first. Nothing is trained. GenRRL (summaries) and
NOVO (term sets) choose with a trained model whose code was not released; these are untrained versions that
use word statistics.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from math import log
from urllib.parse import unquote, urlsplit

from gr2.data.collection import Document
from gr2.docids.docids import Proposals
from gr2.text import sentences

WORD = re.compile(r"\w[\w'-]*")


def titles(documents: Iterable[Document], *, words: int = 12) -> Proposals:
    """Each document's title (GENRE), or its leading words if it has none; at most `words` words."""
    return {document.docno: [(_title(document, words), 0.0)] for document in documents}


def urls(documents: Iterable[Document], *, words: int = 12) -> Proposals:
    """The URL as words, path before host (Ultron's reversed form); a document without a URL is an error.

    >>> urls([Document("1", url="https://en.example.org/wiki/Cat%20food")])["1"][0][0]
    'cat food wiki en example org'
    """
    proposals = {}
    for document in documents:
        if not document.url:
            raise ValueError(f"document {document.docno!r} has no URL to make a docid from")
        try:
            parts = urlsplit(document.url if "//" in document.url else f"//{document.url}")
        except ValueError as error:
            raise ValueError(f"document {document.docno!r} has the URL {document.url!r}: {error}") from error
        path = [WORD.findall(unquote(part)) for part in parts.path.split("/")]
        found = [word for part in reversed(path) for word in part] + WORD.findall(parts.netloc)
        proposals[document.docno] = [(" ".join(found[:words]).lower() or document.docno, 0.0)]
    return proposals


def summaries(documents: Iterable[Document], *, words: int = 12) -> Proposals:
    """The most informative sentences of each document (GenRRL's docids are summaries), best first.

    A sentence is scored by the mean tf·idf of its words; a document without sentences gets its title.
    """
    kept = list(documents)
    weights = _weights(kept)
    proposals = {}
    for document in kept:
        weight = weights(document)
        rows = [
            (sum(weight[word] for word in found) / len(found), sentence)
            for sentence in sentences(document.text)
            if (found := _words(sentence))
        ]
        best = sorted(rows, key=lambda row: (-row[0], row[1]))[:10]
        cut: dict[str, float] = {}
        for score, sentence in best:
            cut.setdefault(" ".join(sentence.split()[:words]), score)
        proposals[document.docno] = list(cut.items()) or [(_title(document, words), 0.0)]
    return proposals


def term_sets(documents: Iterable[Document], *, words: int = 12) -> Proposals:
    """The document's words with the highest tf·idf (NOVO's docids are sets of terms), highest first.

    Later proposals replace the last word by the next best one.
    """
    kept = list(documents)
    weights = _weights(kept)
    proposals = {}
    for document in kept:
        weight = weights(document)
        best = sorted(weight, key=lambda word: (-weight[word], word))[: words + 9]
        stem, rest = best[: words - 1], best[words - 1 :]
        rows = [" ".join([*stem, word]) for word in rest] or [" ".join(stem) or _title(document, words)]
        proposals[document.docno] = [(row, -float(rank)) for rank, row in enumerate(rows)]
    return proposals


def numbers(documents: Iterable[Document], *, words: int = 0) -> Proposals:
    """An arbitrary number for each document (DSI-Num), in digits: its rank when docnos are sorted by a hash.

    Docnos are often assigned by topic; numbering in that order would put topics into the prefixes.
    """
    docnos = sorted((document.docno for document in documents), key=_arbitrary)
    width = len(str(len(docnos) - 1))
    return {docno: [("-".join(f"{place:0{width}}"), 0.0)] for place, docno in enumerate(docnos)}


def _arbitrary(docno: str) -> tuple[bytes, str]:
    return blake2b(docno.encode(), digest_size=8).digest(), docno


def _title(document: Document, words: int) -> str:
    found = document.title.split() or document.text.split() or [document.docno]
    return " ".join(found[:words])


def _words(text: str) -> list[str]:
    return [word.lower() for word in WORD.findall(text)]


class _weights:  # noqa: N801
    """tf·idf of a document's words; document frequencies are counted once."""

    def __init__(self, documents: Iterable[Document]) -> None:
        self.frequency: Counter[str] = Counter()
        self.count = 0
        for document in documents:
            self.frequency.update(set(_words(document.contents)))
            self.count += 1

    def __call__(self, document: Document) -> Mapping[str, float]:
        inside = Counter(_words(document.contents))
        return {
            word: (1 + log(n)) * log((1 + self.count) / self.frequency[word]) for word, n in inside.items()
        }
