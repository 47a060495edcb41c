"""Documented objects → training queries with four grades, made from structure alone.

An object's query is the first sentence of its docstring without its own name, if four words or more are left.

- grade 4: the object itself
- grade 3: what its text names: dotted names, ``name()`` and quoted names found in its class, module or all
- grade 2: the other members of its class; of a class, its members
- grade 1: other objects of its module

At most eight objects per grade, chosen by a hash of both names: the choice depends neither on order nor on
how many objects there are elsewhere. This file knows nothing of Python source.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import NamedTuple

CAP = 8
"""How many objects a query has at most on each of the lower grades."""
LEAST_WORDS = 4
"""A shorter first sentence does not tell one object from another."""

_SENTENCE = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\betc)(?<!\bvs)[.!?:](?=\s|$)")
_CALL = re.compile(r"^[\w.]+\([^\n]*?\)\s*-+>\s*[\w ]+?(?:[.,:]\s+|\s+-+\s+)")
_WORD = re.compile(r"(?<![\w.])[`'\"]*([A-Za-z_]\w*(?:\.\w+)*)(?:\([^)]*\))?[`'\"]*(?!\w)")
_NAMES = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|[A-Za-z_]\w*(?=\(\))|(?<=[`'])[A-Za-z_]\w*(?=[`'])")


class Entry(NamedTuple):
    """What the rule reads of a documented object."""

    docno: str
    text: str
    module: str
    owner: str


def training(entries: Iterable[Entry]) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
    """Queries and graded judgements of all objects whose first sentence can serve as a query."""
    rows = {entry.docno: entry for entry in entries}
    modules: dict[str, list[str]] = {}
    owners: dict[str, list[str]] = {}
    for entry in rows.values():
        modules.setdefault(entry.module, []).append(entry.docno)
        if entry.owner:
            owners.setdefault(entry.owner, []).append(entry.docno)
    queries: dict[str, str] = {}
    qrels: dict[str, dict[str, int]] = {}
    for entry in rows.values():
        query = first_sentence(entry.text, entry.docno)
        if len(query.split()) < LEAST_WORDS:
            continue
        qid = f"train:{entry.docno}"
        queries[qid] = query
        judged = {entry.docno: 4}
        pools = (
            (3, _mentions(entry, rows)),
            (2, owners.get(entry.owner or entry.docno, ())),
            (1, modules[entry.module]),
        )
        for grade, pool in pools:
            for docno in _choice(entry.docno, set(pool) - judged.keys()):
                judged[docno] = grade
        qrels[qid] = judged
    return queries, qrels


def first_sentence(text: str, docno: str) -> str:
    r"""The first sentence of a docstring, on one line, without the object's own name.

    >>> first_sentence("Merge sorted inputs, see merge() or\nheapq.merge. It is lazy.", "heapq.merge")
    'Merge sorted inputs, see or'
    """
    paragraph = _CALL.sub("", text.strip()).partition("\n\n")[0]
    sentence = _SENTENCE.split(" ".join(paragraph.split()), maxsplit=1)[0]
    parts = docno.split(".")
    own = {".".join(parts[start:]) for start in range(len(parts))}
    return " ".join(_WORD.sub(lambda word: " " if word[1] in own else word[0], sentence).split())


def _mentions(entry: Entry, rows: Mapping[str, Entry]) -> Iterator[str]:
    """The objects that a text names, each resolved from the inside out: class, module, anywhere."""
    for name in set(_NAMES.findall(entry.text)):
        for scope in (entry.owner or entry.docno, entry.module, ""):
            docno = f"{scope}.{name}" if scope else name
            if docno in rows:
                yield docno
                break


def _choice(docno: str, pool: Iterable[str]) -> list[str]:
    def order(other: str) -> tuple[bytes, str]:
        return blake2b(f"{docno}\0{other}".encode(), digest_size=8).digest(), other

    return sorted(pool, key=order)[:CAP]
