"""Docno ↔ docid ↔ tokens: the identifiers a model learns to write, unique by construction.

A scheme proposes docids for each document, best first (`Proposals`); `settle` gives every document one of
them by the one clash rule of all schemes. The rule looks at tokens, not at text: two texts that a tokenizer
reads alike would be one path of the trie. The result depends on the proposals alone, never on the order or
sharding of documents. A docid is a text, or codes written as `3-17-4` (`gr2.docids.codes` reads them). This
file knows no model and no scheme.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from gr2.store import atomic_folder, verify, write_json

Tokens = tuple[int, ...]
Tokenise = Callable[[list[str]], list[list[int]]]
Proposals = Mapping[str, Sequence[tuple[str, float]]]
"""docno → docid texts with their scores, best first."""
Again = Callable[[Sequence[str], int], Proposals]
"""Other proposals for documents that found all theirs taken, on the first try, the second, ..."""


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
    """How many documents got their first proposal, their second, a later one, one of another list
    (`resampled`), or a numbered suffix."""
    about: Mapping[str, Any]
    """Scheme, tokenizer, collection fingerprint: what has to match for these docids to be used. `codes` says
    that tokens are codes and how many there are; without it they are the backbone's."""
    unique: int | None = None
    """Documents whose first proposal was nobody else's: before the clash rule, whoever chose first."""
    code_vectors: NDArray[np.float32] | None = field(default=None, compare=False)
    """[codes, width] what a decoder's rows may start from, where a scheme has such vectors (codebooks)."""

    @cached_property
    def index(self) -> dict[str, int]:
        """Docno → position, which is also the docid's index in the trie."""
        return {docno: position for position, docno in enumerate(self.docnos)}

    @cached_property
    def docno(self) -> dict[str, str]:
        """Docid → docno."""
        return dict(zip(self.texts, self.docnos, strict=True))

    def __len__(self) -> int:
        """The number of documents."""
        return len(self.docnos)

    @cached_property
    def digest(self) -> str:
        """A short name for exactly these docids: whoever has the same digest has the same trie."""
        rows = zip(self.docnos, self.tokens, strict=True)
        return blake2b(orjson.dumps([list(row) for row in rows]), digest_size=12).hexdigest()

    def flat(self) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """All tokens behind each other and where each docid starts, as `Trie.build` takes them."""
        lengths = np.fromiter(map(len, self.tokens), np.int64, len(self.tokens))
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        flat = np.fromiter((token for row in self.tokens for token in row), np.int32, int(offsets[-1]))
        return flat, offsets

    def add(
        self,
        proposals: Proposals,
        tokenise: Tokenise,
        *,
        fingerprint: str,
        again: Again | None = None,
        tries: int = 0,
    ) -> "Docids":
        """With documents that came: those that are here keep their docids, new ones take what is free.

        Args:
            proposals: of the new documents.
            tokenise: as these docids were made with.
            fingerprint: of the collection with the new documents.
            again: as `settle` takes it.
            tries: as `settle` takes them.
        """
        known = sorted(set(proposals) & set(self.index))
        if known:
            raise ValueError(f"document {known[0]!r} has a docid already")
        new = settle(proposals, tokenise, self.about, again=again, tries=tries, taken=self.tokens)
        rows = [
            *zip(self.docnos, self.texts, self.tokens, strict=True),
            *zip(new.docnos, new.texts, new.tokens, strict=True),
        ]
        clashes = dict(sorted((Counter(self.clashes) + Counter(new.clashes)).items()))
        unique = None if self.unique is None or new.unique is None else self.unique + new.unique
        return replace(self._of(rows, clashes, fingerprint), unique=unique)

    def remove(self, docnos: Iterable[str], *, fingerprint: str) -> "Docids":
        """Without documents that went; `fingerprint` is of the collection without them.

        The counts of the clash rule stay as they are: they tell how the docids were made.
        """
        gone = set(docnos)
        if unknown := sorted(gone - set(self.index)):
            raise ValueError(f"there is no docid of document {unknown[0]!r}")
        rows = zip(self.docnos, self.texts, self.tokens, strict=True)
        return self._of([row for row in rows if row[0] not in gone], self.clashes, fingerprint)

    def _of(
        self, rows: Iterable[tuple[str, str, Tokens]], clashes: Mapping[str, int], fingerprint: str
    ) -> "Docids":
        kept = sorted(rows)
        docnos, texts = tuple(row[0] for row in kept), tuple(row[1] for row in kept)
        tokens = tuple(row[2] for row in kept)
        about = {**self.about, "fingerprint": fingerprint}
        return replace(self, docnos=docnos, texts=texts, tokens=tokens, clashes=clashes, about=about)

    def save(self, folder: Path) -> None:
        """Write them as a folder with a manifest."""
        with atomic_folder(folder) as temporary:
            known = {"about": dict(self.about), "clashes": dict(self.clashes), "unique": self.unique}
            write_json(temporary / "docids.json", known)
            if self.code_vectors is not None:
                save_file({"code_vectors": self.code_vectors}, temporary / "codes.safetensors")
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
            content.get("unique"),
            load_file(path)["code_vectors"] if (path := folder / "codes.safetensors").exists() else None,
        )


def settle(
    proposals: Proposals,
    tokenise: Tokenise,
    about: Mapping[str, Any] | None = None,
    *,
    again: Again | None = None,
    tries: int = 0,
    taken: Iterable[Tokens] = (),
) -> Docids:
    """Give every document the first of its proposals that is free.

    Documents choose in the order of their best score, then of their docno. Those that find all their
    proposals taken get others, if there are, and choose again when all have chosen; in the end such a
    document gets its first proposal with the smallest free number behind it.

    Args:
        proposals: of every document at least one.
        tokenise: texts → tokens.
        about: kept with the docids.
        again: makes other proposals.
        tries: how often it is asked.
        taken: tokens that are nobody's to choose.
    """
    known: dict[str, Tokens] = {}
    used, clashes = set(taken), Counter[str]()
    chosen: dict[str, tuple[str, Tokens]] = {}
    waiting = proposals
    for attempt in range(1 + (tries if again else 0)):
        if attempt and again:
            left = sorted(set(proposals) - set(chosen))
            others = again(left, attempt)
            waiting = {docno: others[docno] for docno in left}
        _learn(known, waiting, tokenise)
        for docno in _in_order(waiting):
            offers = enumerate(waiting[docno], 1)
            free = ((rank, text) for rank, (text, _) in offers if known[text] not in used)
            if found := next(free, None):
                rank, text = found
                used.add(known[text])
                chosen[docno] = text, known[text]
                clashes["resampled" if attempt else _rank(rank)] += 1
        if len(chosen) == len(proposals):
            break
    numbers: Counter[str] = Counter()
    for docno in [docno for docno in _in_order(proposals) if docno not in chosen]:
        chosen[docno] = _numbered(proposals[docno][0][0], numbers, used, tokenise)
        used.add(chosen[docno][1])
        clashes["numbered"] += 1
    docnos = tuple(sorted(chosen))
    return Docids(
        docnos,
        tuple(chosen[docno][0] for docno in docnos),
        tuple(chosen[docno][1] for docno in docnos),
        dict(sorted(clashes.items())),
        dict(about or {}),
        _unique(proposals, known),
    )


def _unique(proposals: Proposals, known: Mapping[str, Tokens]) -> int:
    first = Counter(known[row[0][0]] for row in proposals.values())
    return sum(many == 1 for many in first.values())


def _rank(rank: int) -> str:
    return f"rank {rank}" if rank <= 2 else "rank 3 or later"


def _in_order(proposals: Proposals) -> list[str]:
    """Documents as they choose: by their best score, then by their docno."""
    for docno, row in proposals.items():
        if not row:
            raise ValueError(f"document {docno!r} has no proposal for its docid")
    return sorted(proposals, key=lambda docno: (-proposals[docno][0][1], docno))


def _learn(known: dict[str, Tokens], proposals: Proposals, tokenise: Tokenise) -> None:
    """Tokenise all texts that are new, at once."""
    texts = sorted({text for rows in proposals.values() for text, _ in rows} - set(known))
    known.update(zip(texts, map(tuple, tokenise(texts)), strict=True))


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
