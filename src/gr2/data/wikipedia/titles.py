"""Titles → page ids: which articles exist, and where redirects lead.

A full English dump has about 18 million titles of articles and redirects. A Python dictionary of them would
take gigabytes; here each title is a 64-bit hash and two 32-bit numbers in sorted arrays. (With a probability
of 1e-5 two of 18 million titles share a hash; the only effect is one wrong link target.)
"""

import html
import re
import unicodedata
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from gr2.store import atomic_file

NOWHERE = 0
"""The id of a title that neither is an article nor redirects to one. Page ids start at 1."""
_ODD = re.compile(r"[^A-Za-z0-9 ,.'()\-]|  |^ | $")
_MARKS = re.compile("[\u200e\u200f\u202a-\u202e]")

Keys = NDArray[np.uint64]
Numbers = NDArray[np.uint32]


def normal(target: str, *, first_letter: bool = True) -> str:
    """A link's target, normalised to the title of a page; empty if it names no page.

    >>> normal("  :apple_pie#History "), normal("Caf%C3%A9 &amp; bar"), normal("#History")
    ('Apple pie', 'Café & bar', '')
    """
    title = target
    if _ODD.search(title):
        title = html.unescape(title) if "&" in title else title
        title = unquote(title, errors="strict") if _percent(title) else title
        title = _MARKS.sub("", title.partition("#")[0]).replace("_", " ")
        title = " ".join(unicodedata.normalize("NFC", title).split()).removeprefix(":").lstrip()
    first = title[:1].upper() if first_letter else title[:1]
    return first + title[1:] if len(first) == 1 else title  # ß stays ß


def _percent(title: str) -> bool:
    if "%" not in title:
        return False
    try:
        unquote(title, errors="strict")
    except UnicodeDecodeError:
        return False
    return True


def key_of(title: str) -> int:
    """The 64-bit hash that stands for a title."""
    return int.from_bytes(blake2b(title.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


class Listing:
    """What the first pass keeps of the pages of one dump file, in the order of reading."""

    def __init__(self) -> None:
        """Start empty."""
        self.pages = 0
        """All pages read, also those that are neither article nor redirect."""
        self.articles = 0
        self.keys, self.places, self.ids, self.targets = array("Q"), array("I"), array("I"), array("Q")

    def article(self, title: str, id: int) -> None:
        """Add the current page as an article."""
        self.articles += 1
        self._add(title, id, 0)

    def redirect(self, title: str, target: str) -> None:
        """Add the current page as a redirect to another title."""
        self._add(title, NOWHERE, key_of(target))

    def _add(self, title: str, id: int, target: int) -> None:
        self.keys.append(key_of(title))
        self.places.append(self.pages)
        self.ids.append(id)
        self.targets.append(target)

    @staticmethod
    def articles_in(path: Path) -> int:
        """The number of articles of a saved listing."""
        with np.load(path, allow_pickle=False) as arrays:
            return int(arrays["counts"][1])

    def save(self, path: Path) -> None:
        """Write the listing as plain arrays."""
        arrays = {
            "counts": np.array([self.pages, self.articles]),
            "keys": np.frombuffer(self.keys, np.uint64),
            "places": np.frombuffer(self.places, np.uint32),
            "ids": np.frombuffer(self.ids, np.uint32),
            "targets": np.frombuffer(self.targets, np.uint64),
        }
        with atomic_file(path) as temporary, temporary.open("wb") as stream:
            np.savez(stream, allow_pickle=False, **arrays)


@dataclass(frozen=True)
class Titles:
    """Every title that is an article or redirects to one, sorted by hash."""

    keys: Keys
    ids: Numbers
    """Page id of the article that the title is or redirects to."""
    places: Numbers
    """Position of the title's own page, counted over all files."""
    own: NDArray[np.bool_]
    """Whether the title is an article (not a redirect) and the first with its id."""
    files: tuple[int, ...]
    """Pages of each dump file."""
    redirects: int
    """Number of redirect pages, without those that repeat an earlier title."""
    lost: int
    """Those of them that lead to no article or in a circle."""

    @classmethod
    def load(cls, paths: Sequence[Path]) -> "Titles":
        """Merge the listings of all dump files; of two pages with the same title the first counts."""
        files: list[int] = []
        parts: dict[str, list[NDArray[np.generic]]] = {"keys": [], "places": [], "ids": [], "targets": []}
        for path in paths:
            with np.load(path, allow_pickle=False) as arrays:
                before = np.uint32(sum(files))
                for name, found in parts.items():
                    found.append(arrays[name] + before if name == "places" else arrays[name])
                files.append(int(arrays["counts"][0]))
        joined = {name: np.concatenate(parts.pop(name)) for name in list(parts)}
        keys: Keys = joined.pop("keys").astype(np.uint64, copy=False)
        order = np.argsort(keys, kind="stable")  # stable: of equal titles the first that was read stays first
        keys = keys[order]
        first = np.ones(len(keys), bool)
        first[1:] = keys[1:] != keys[:-1]
        order, keys = order[first], keys[first]
        places: Numbers = joined.pop("places")[order].astype(np.uint32, copy=False)
        ids: Numbers = joined.pop("ids")[order].astype(np.uint32, copy=False)
        targets: Keys = joined.pop("targets")[order].astype(np.uint64, copy=False)
        del order, first
        own = _first_of_each(ids, places)
        leads = ids == NOWHERE
        ids = _follow(keys, ids, targets, leads)
        redirects, lost = int(leads.sum()), int((ids == NOWHERE).sum())
        kept = ids != NOWHERE
        return cls(keys[kept], ids[kept], places[kept], own[kept], tuple(files), redirects, lost)

    def __len__(self) -> int:
        """The number of articles."""
        return int(self.own.sum())

    def find(self, titles: Sequence[str]) -> list[int]:
        """The page id of the article that each title is or redirects to; `NOWHERE` if there is none."""
        if not titles or not len(self.keys):
            return [NOWHERE] * len(titles)
        rows, known = self._rows(titles)
        found: list[int] = np.where(known, self.ids[rows], NOWHERE).tolist()
        return found

    def is_document(self, title: str, place: int) -> bool:
        """Whether the page at this position is an article and the first with its title and id."""
        if not len(self.keys):
            return False
        rows, known = self._rows([title])
        row = int(rows[0])
        return bool(known[0]) and bool(self.own[row]) and int(self.places[row]) == place

    def sample(self, size: int, seed: int) -> frozenset[int]:
        """The ids of some articles, drawn by the seed and their titles alone."""
        ids = self.ids[self.own]
        if size >= len(ids):
            return frozenset(ids.tolist())
        mixed = _mix(self.keys[self.own] ^ np.uint64(key_of(f"sample {seed}")))
        return frozenset(ids[np.argpartition(mixed, size)[:size]].tolist() if size else ())

    def _rows(self, titles: Iterable[str]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        wanted = np.array([key_of(title) for title in titles], np.uint64)
        rows = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return rows, self.keys[rows] == wanted


def _first_of_each(ids: Numbers, places: Numbers) -> NDArray[np.bool_]:
    """Mark the first title of each id; a page moved between two dumps has several."""
    order = np.lexsort((places, ids))
    first = np.ones(len(ids), bool)
    first[1:] = ids[order][1:] != ids[order][:-1]
    own = np.zeros(len(ids), bool)
    own[order] = first
    own[ids == NOWHERE] = False
    return own


def _follow(keys: Keys, ids: Numbers, targets: Keys, leads: NDArray[np.bool_]) -> Numbers:
    """Follow every redirect to its end; circles and dead ends give `NOWHERE`.

    Each round doubles the number of steps followed, so a chain of n redirects takes log2(n) rounds.
    """
    if not len(keys):
        return ids
    step = np.arange(len(keys), dtype=np.uint32)
    rows = np.minimum(np.searchsorted(keys, targets[leads]), len(keys) - 1).astype(np.uint32)
    exists = keys[rows] == targets[leads]
    step[leads] = np.where(exists, rows, step[leads])  # a redirect to a missing page points to itself
    for _ in range(len(keys).bit_length() + 1):
        further = step[step]
        if np.array_equal(further, step):
            break
        step = further
    return ids[step]


def _mix(keys: Keys) -> Keys:
    """SplitMix64's finaliser: similar numbers become very different ones."""
    mixed = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
