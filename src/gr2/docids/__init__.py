"""Docno ↔ docid ↔ tokens: the identifiers a model learns to write, unique by construction.

A scheme proposes docids for each document, best first (`Proposals`); `settle` gives every document one of
them by the one clash rule of all schemes. The rule looks at tokens, not at text: two texts that a tokenizer
reads alike would be one path of the trie. The result depends on the proposals alone, never on the order or
sharding of documents. This file knows no model and no scheme.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from gr2.store import atomic_folder, verify, write_json

Tokens = tuple[int, ...]
Tokenise = Callable[[list[str]], list[list[int]]]
Proposals = Mapping[str, Sequence[tuple[str, float]]]
"""docno → docid texts with their scores, best first."""


@dataclass(frozen=True)
class Docids:
    """Every document's docid, in the order of docnos.

    >>> pets = settle({"d1": [("cats", 0.0)], "d2": [("cats", 0.0), ("kittens", -1.0)]}, letters)
    >>> pets.texts
    ('cats', 'kittens')
    >>> pets.clashes
    {'rank 1': 1, 'rank 2': 1}
    """

    docnos: tuple[str, ...]
    texts: tuple[str, ...]
    tokens: tuple[Tokens, ...]
    """What the decoder writes, without the end token."""
    clashes: Mapping[str, int]
    """How many documents got their first proposal, their second, a later one, or a numbered suffix."""
    about: Mapping[str, Any]
    """Scheme, tokenizer, collection fingerprint: what has to match for these docids to be used."""

    @cached_property
    def index(self) -> dict[str, int]:
        """Docno → position, which is also the docid's index in the trie."""
        return {docno: position for position, docno in enumerate(self.docnos)}

    def __len__(self) -> int:
        """The number of documents."""
        return len(self.docnos)

    def flat(self) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """All tokens behind each other and where each docid starts, as `Trie.build` takes them."""
        lengths = np.fromiter(map(len, self.tokens), np.int64, len(self.tokens))
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        flat = np.fromiter((token for row in self.tokens for token in row), np.int32, int(offsets[-1]))
        return flat, offsets

    def save(self, folder: Path) -> None:
        """Write them as a folder with a manifest."""
        with atomic_folder(folder) as temporary:
            write_json(temporary / "docids.json", {"about": dict(self.about), "clashes": dict(self.clashes)})
            with (temporary / "docids.jsonl").open("wb") as stream:
                for docno, text, tokens in zip(self.docnos, self.texts, self.tokens, strict=True):
                    stream.write(orjson.dumps({"docno": docno, "docid": text, "tokens": tokens}) + b"\n")

    @classmethod
    def load(cls, folder: Path) -> "Docids":
        """Read what `save` wrote; a changed byte is refused."""
        verify(folder)
        content = orjson.loads((folder / "docids.json").read_bytes())
        rows = [orjson.loads(line) for line in (folder / "docids.jsonl").read_bytes().splitlines()]
        return cls(
            tuple(row["docno"] for row in rows),
            tuple(row["docid"] for row in rows),
            tuple(tuple(row["tokens"]) for row in rows),
            content["clashes"],
            content["about"],
        )


def settle(proposals: Proposals, tokenise: Tokenise, about: Mapping[str, Any] | None = None) -> Docids:
    """Give every document the first of its proposals that is free.

    Documents choose in the order of their best score, then of their docno. One that finds all its proposals
    taken gets its first one with the smallest free number behind it.
    """
    order = sorted(proposals, key=lambda docno: (-_best(docno, proposals), docno))
    texts = sorted({text for rows in proposals.values() for text, _ in rows})
    known = dict(zip(texts, map(tuple, tokenise(texts)), strict=True))
    taken: set[Tokens] = set()
    numbers: Counter[str] = Counter()
    chosen: dict[str, tuple[str, Tokens]] = {}
    clashes: Counter[str] = Counter()
    for docno in order:
        free = (
            (rank, text) for rank, (text, _) in enumerate(proposals[docno], 1) if known[text] not in taken
        )
        rank, text = next(free, (0, proposals[docno][0][0]))
        tokens = known[text]
        if not rank:
            text, tokens = _numbered(text, numbers, taken, tokenise)
        taken.add(tokens)
        chosen[docno] = text, tokens
        clashes[f"rank {rank}" if 1 <= rank <= 2 else "rank 3 or later" if rank else "numbered"] += 1
    docnos = tuple(sorted(chosen))
    return Docids(
        docnos,
        tuple(chosen[docno][0] for docno in docnos),
        tuple(chosen[docno][1] for docno in docnos),
        dict(sorted(clashes.items())),
        dict(about or {}),
    )


def _numbered(text: str, numbers: Counter[str], taken: Set[Tokens], tokenise: Tokenise) -> tuple[str, Tokens]:
    """The text with the smallest number behind it that makes it a docid nobody has."""
    for _ in range(len(taken) + 1):
        numbers[text] += 1
        numbered = f"{text} {numbers[text] + 1}".lstrip()
        tokens = tuple(tokenise([numbered])[0])
        if tokens not in taken:
            return numbered, tokens
    raise ValueError(f"the tokenizer reads {text!r} with different numbers behind it as the same tokens")


def letters(texts: Iterable[str]) -> list[list[int]]:
    """The simplest tokenizer, for tests and examples: one token a character."""
    return [[ord(character) + 1 for character in text] for text in texts]


def _best(docno: str, proposals: Proposals) -> float:
    if not proposals[docno]:
        raise ValueError(f"document {docno!r} has no proposal for its docid")
    return proposals[docno][0][1]
