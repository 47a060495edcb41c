"""Documented objects → sentences as graded queries, derived from structure alone.

An object's query is the first sentence of its docstring without its own name, if four or more words are left.

- grade 4: the object itself
- grade 3: objects that its text mentions: a word that is written as code (dotted, called, quoted, with an
  underscore or a capital inside) and names an object of its class, of its module or of the whole collection
- grade 2: the other members of its class; for a class, its members
- grade 1: other objects of its module

At most eight objects per lower grade: those whose names come next after its own in the order of their hashes,
so the choice depends neither on the order of reading nor on other modules.
"""

import re
from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from typing import NamedTuple

CAP = 8
"""Maximum number of objects of each of the lower grades per query."""
LEAST_WORDS = 4
"""Shorter first sentences do not distinguish one object from another."""

_SENTENCE = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\betc)(?<!\bvs)[.!?:](?=\s|$)")
_CALL = re.compile(r"^[\w.]+\([^\n]*?\)\s*-+>\s*[\w ]+?(?:[.,:]\s+|\s+-+\s+)")
_WORD = re.compile(r"(?<![\w.])[`'\"]*([A-Za-z_]\w*(?:\.\w+)*)(?:\([^)]*\))?[`'\"]*(?!\w)")
_NAMES = re.compile(
    r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+"  # json.loads
    r"|[A-Za-z_]\w*(?=\(\))"  # loads()
    r"|(?<=[`'])[A-Za-z_]\w*(?=[`'])"  # `loads`
    r"|\b[A-Za-z]+_\w+|\b[A-Z]+[a-z]+[A-Z]\w*"  # raw_decode, JSONDecoder
)


class Entry(NamedTuple):
    """The fields of a documented object that queries and grades are derived from."""

    docno: str
    text: str
    module: str
    owner: str


def sentences(entries: Iterable[Entry]) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
    """Queries and graded judgements for all objects whose first sentence can serve as a query."""
    rows = {entry.docno: entry for entry in entries}
    modules: dict[str, list[str]] = {}
    owners: dict[str, list[str]] = {}
    for entry in rows.values():
        modules.setdefault(entry.module, []).append(entry.docno)
        if entry.owner:
            owners.setdefault(entry.owner, []).append(entry.docno)
    rings = {key: _ring(names) for pools in (modules, owners) for key, names in pools.items()}
    queries: dict[str, str] = {}
    qrels: dict[str, dict[str, int]] = {}
    for entry in rows.values():
        query = first_sentence(entry.text, entry.docno)
        if len(query.split()) < LEAST_WORDS:
            continue
        judged = {entry.docno: 4}
        for grade, ring in (
            (3, _ring(_mentions(entry, rows))),
            (2, rings.get(entry.owner or entry.docno, []) if entry.docno != entry.module else []),
            (1, rings[entry.module]),
        ):
            for docno in _choice(entry.docno, ring, judged.keys()):
                judged[docno] = grade
        queries[f"sentence:{entry.docno}"] = query
        qrels[f"sentence:{entry.docno}"] = judged
    return queries, qrels


def first_sentence(text: str, docno: str) -> str:
    r"""The first sentence of a docstring, on one line, without the object's own name.

    >>> first_sentence("Merge sorted inputs, see merge() or\nheapq.merge. It is lazy.", "heapq.merge")
    'Merge sorted inputs, see or'
    """
    paragraph = _CALL.sub("", text.strip()).partition("\n\n")[0].partition(">>>")[0]
    sentence = _SENTENCE.split(" ".join(paragraph.split()), maxsplit=1)[0]
    parts = docno.split(".")
    own = {".".join(parts[start:]) for start in range(len(parts))}
    return " ".join(_WORD.sub(lambda word: " " if word[1] in own else word[0], sentence).split())


def _mentions(entry: Entry, rows: Mapping[str, Entry]) -> Iterator[str]:
    """The objects that a text mentions; a name is looked up in the class, then the module, then anywhere."""
    for name in set(_NAMES.findall(entry.text)):
        for scope in (entry.owner or entry.docno, entry.module, ""):
            docno = f"{scope}.{name}" if scope else name
            if docno in rows:
                yield docno
                break


def _ring(names: Iterable[str]) -> list[tuple[bytes, str]]:
    """Names sorted by their hashes."""
    return sorted((_hash(name), name) for name in set(names))


def _choice(docno: str, ring: Sequence[tuple[bytes, str]], taken: Container[str]) -> list[str]:
    """The next names after a docno on a ring, without those taken."""
    start = bisect_left(ring, (_hash(docno), docno))
    after = (ring[(start + step) % len(ring)][1] for step in range(len(ring)))
    return list(islice((name for name in after if name not in taken), CAP))


def _hash(name: str) -> bytes:
    return blake2b(name.encode(), digest_size=8).digest()
