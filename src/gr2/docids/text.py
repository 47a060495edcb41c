"""Docids that are read off the document: title, URL, summary, its most telling terms; or just a number.

Each scheme is one function: documents → proposals, best first. Nothing is trained. How a model made for
retrieval would choose (GenRRL's summaries, NOVO's term sets) is described without code by their authors;
these are the untrained forms, by word statistics.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from math import log
from urllib.parse import unquote, urlsplit

from gr2.augment import sentences
from gr2.data import Document
from gr2.docids import Proposals, Tokenise

WORD = re.compile(r"\w[\w'-]*")


def tokeniser(backbone: str, *, longest: int = 32) -> Tokenise:
    """The backbone's tokenizer as docids need it: no special tokens, at most so many tokens."""
    from gr2.backbone import tokenizer_of

    tokenizer = tokenizer_of(backbone)

    def tokenise(texts: list[str]) -> list[list[int]]:
        if not texts:
            return []
        rows = tokenizer(texts, add_special_tokens=False)["input_ids"]
        # A number behind a text keeps apart those who share it, so what is cut is the middle.
        return [row if len(row) <= longest else [*row[: longest - 4], *row[-4:]] for row in map(list, rows)]

    return tokenise


def titles(documents: Iterable[Document], *, words: int = 12) -> Proposals:
    """Every document's title (GENRE), else its leading words, cut at so many words."""
    return {document.docno: [(_title(document, words), 0.0)] for document in documents}


def urls(documents: Iterable[Document], *, words: int = 12) -> Proposals:
    """The URL as words, path before host (Ultron's reversed form); a document without one is an error.

    >>> urls([Document("1", url="https://en.example.org/wiki/Cat%20food")])["1"][0][0]
    'cat food wiki en example org'
    """
    proposals = {}
    for document in documents:
        if not document.url:
            raise ValueError(f"document {document.docno!r} has no URL, so it cannot be its docid")
        try:
            parts = urlsplit(document.url if "//" in document.url else f"//{document.url}")
        except ValueError as error:
            raise ValueError(f"document {document.docno!r} has the URL {document.url!r}: {error}") from error
        path = [WORD.findall(unquote(part)) for part in parts.path.split("/")]
        found = [word for part in reversed(path) for word in part] + WORD.findall(parts.netloc)
        proposals[document.docno] = [(" ".join(found[:words]).lower() or document.docno, 0.0)]
    return proposals


def summaries(documents: Iterable[Document], *, words: int = 12) -> Proposals:
    """The sentences that say most of the document (GenRRL's docids are summaries), the best one first.

    A sentence counts by the mean tf·idf of its words; a document without sentences has its title.
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
    """The document's most telling words by tf·idf (NOVO's docids are sets of terms), most telling first.

    The second proposal and later ones trade the last word for the next best.
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
    """An arbitrary number for each document (DSI-Num), in digits: its place by a hash of its docno.

    Docnos themselves often stand in an order of topics, which would make numbers a tree of them.
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
    """tf·idf of a document's words; the corpus is counted once."""

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
