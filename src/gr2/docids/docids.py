"""Docno ↔ docid ↔ tokens: the identifiers that a model learns to generate, one per document.

A docid is a text, or codes written as `3-17-4` (see `codes`). Docids are unique: `clashes` makes them from
the proposals of a scheme.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np
import orjson
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from gr2.store import atomic_folder, read_json, readable, steady, typed, verify, write_json

Tokens = tuple[int, ...]
MAX_TOKEN = 2**31 - 1
"""Tokens are kept in arrays of 32-bit integers."""
Tokenise = Callable[[list[str]], list[list[int]]]
Proposals = Mapping[str, Sequence[tuple[str, float]]]
"""docno → docid texts with their scores, best first."""


@dataclass(frozen=True)
class Docids:
    """Every document's docid, in the order of docnos.

    >>> pets = Docids(("d1", "d2"), ("cats", "kittens"), ((3, 7), (4,)), {"rank 1": 2}, {})
    >>> pets.index["d2"], pets.docno["cats"]
    (1, 'd1')
    """

    docnos: tuple[str, ...]
    texts: tuple[str, ...]
    tokens: tuple[Tokens, ...]
    """What the decoder generates, without the end token."""
    clashes: Mapping[str, int]
    """How many documents got their first proposal, their second, a later one, a resampled one, or one with a
    number appended."""
    about: Mapping[str, Any]
    """Scheme, backbone and collection fingerprint; they must match where the docids are used."""
    unique: int | None = None
    """The number of documents whose first proposal was unique before clash resolution."""
    code_vectors: NDArray[np.float32] | None = field(default=None, compare=False)
    """[codes, width] initial embeddings of the codes, where a scheme has them (codebooks)."""

    @cached_property
    def index(self) -> dict[str, int]:
        """Docno → position, which is also the docid's index in the trie."""
        return {docno: position for position, docno in enumerate(self.docnos)}

    @property
    def codes(self) -> int | None:
        """The number of different codes; None if the tokens are those of a tokenizer."""
        found = self.about.get("codes")
        return None if found is None else int(found)

    @cached_property
    def docno(self) -> dict[str, str]:
        """Docid → docno."""
        return dict(zip(self.texts, self.docnos, strict=True))

    def __len__(self) -> int:
        """The number of documents."""
        return len(self.docnos)

    @cached_property
    def digest(self) -> str:
        """A hash of docnos and tokens: the same digest means the same trie."""
        rows = zip(self.docnos, self.tokens, strict=True)
        return blake2b(orjson.dumps([list(row) for row in rows]), digest_size=12).hexdigest()

    def flat(self) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """All tokens in one array and where each docid starts, as `Trie.build` takes them."""
        lengths = np.fromiter(map(len, self.tokens), np.int64, len(self.tokens))
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        flat = np.fromiter((token for row in self.tokens for token in row), np.int32, int(offsets[-1]))
        return flat, offsets

    def remove(self, docnos: Iterable[str], *, fingerprint: str) -> "Docids":
        """The docids without these documents; `fingerprint` is that of the collection without them.

        The counts of the clash rule are kept: they tell how the docids were made.
        """
        gone = set(docnos)
        if unknown := sorted(gone - set(self.index)):
            raise ValueError(f"there is no docid of document {unknown[0]!r}")
        rows = zip(self.docnos, self.texts, self.tokens, strict=True)
        return self.with_rows([row for row in rows if row[0] not in gone], self.clashes, fingerprint)

    def with_rows(
        self, rows: Iterable[tuple[str, str, Tokens]], clashes: Mapping[str, int], fingerprint: str
    ) -> "Docids":
        """The same kind of docids for other rows (docno, text, tokens)."""
        kept = sorted(rows)
        docnos, texts = tuple(row[0] for row in kept), tuple(row[1] for row in kept)
        tokens = tuple(row[2] for row in kept)
        about = {**self.about, "fingerprint": fingerprint}
        return replace(self, docnos=docnos, texts=texts, tokens=tokens, clashes=clashes, about=about)

    def save(self, folder: Path) -> None:
        """Write a folder with a manifest."""
        with atomic_folder(folder) as temporary:
            known = {"about": dict(self.about), "clashes": dict(self.clashes), "unique": self.unique}
            write_json(temporary / "docids.json", known)
            if self.code_vectors is not None:
                save_file({"code_vectors": self.code_vectors}, temporary / "codes.safetensors")
            with (temporary / "docids.jsonl").open("wb") as stream:
                for docno, text, tokens in zip(self.docnos, self.texts, self.tokens, strict=True):
                    stream.write(orjson.dumps({"docno": docno, "docid": text, "tokens": tokens}) + b"\n")

    @classmethod
    def load(cls, folder: str | Path) -> "Docids":
        """Read what `save` wrote and verify its checksums."""
        return steady(Path(folder), cls._read)

    @classmethod
    def _read(cls, folder: Path) -> "Docids":
        verify(folder, "docids.json", "docids.jsonl")
        path = folder / "docids.json"
        content, rows = read_json(path, _Known), list(_rows(folder / "docids.jsonl"))
        if content["about"].get("codes") is not None:
            typed(content["about"]["codes"], int, path, "about.codes")
        return cls(
            tuple(row[0] for row in rows),
            tuple(row[1] for row in rows),
            tuple(row[2] for row in rows),
            content["clashes"],
            content["about"],
            content.get("unique"),
            _code_vectors(folder / "codes.safetensors"),
        )


def _code_vectors(path: Path) -> NDArray[np.float32] | None:
    if not path.exists():
        return None
    with readable(path):
        found: NDArray[np.float32] = load_file(path)["code_vectors"]
    return found


class _Known(TypedDict):
    """What docids.json holds."""

    about: dict[str, Any]
    clashes: dict[str, int]
    unique: NotRequired[int | None]


def _rows(path: Path) -> Iterator[tuple[str, str, Tokens]]:
    """Docno, docid and tokens of each document."""
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            row = orjson.loads(line)
            docno, text, tokens = row["docno"], row["docid"], tuple(row["tokens"])
        except (ValueError, LookupError, TypeError):
            docno, text, tokens = None, None, ()
        whole = all(type(token) is int and 0 <= token <= MAX_TOKEN for token in tokens)
        if type(docno) is not str or type(text) is not str or not whole:
            raise ValueError(
                f"{path}:{number}: expected the texts docno and docid, and tokens as whole numbers"
            )
        yield docno, text, tokens
