"""Docids and their collection → a health report: clashes, lengths, prefixes, balance, self-retrieval.

The model retrieves by generating docids, and training cannot repair bad ones: numbered docids after clashes,
long prefixes shared by several docids, a first token that half of them have, words that would not find the
document. The report needs only the tokens and texts of docids, so it works for every scheme.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gr2.bm25 import BM25
from gr2.data.collection import Collection
from gr2.docids.codes import KEPT_WORDS
from gr2.docids.docids import Docids
from gr2.docids.trie import Trie
from gr2.evaluate.tables import render
from gr2.schemes.round_trip import ORDERS, orders_table
from gr2.schemes.self_retrieval import CUT, SETTINGS, reciprocal_ranks
from gr2.text import words

KINDS = {
    "rank 1": "documents that got their first proposal",
    "rank 2": "got their second proposal, because the first was taken",
    "rank 3 or later": "got a later proposal",
    "resampled": "found all proposals taken and got one from a new list",
    "numbered": "found nothing free: the first proposal with a number behind it",
}
BYTE = 256
PLACES = 8  # positions whose balance is printed; JSON and plots have all
SIDE = [  # the figures that `side_by_side` compares
    *("documents", "unique proposals", "first proposal", *list(KINDS)[1:]),
    *("mean length", "tokens to uniqueness", "bits of the first token", "bytes", "bytes of words"),
    *(f"MRR@{CUT}", "Hits@1", "searched for", "neighbour prefix share", "neighbour Jaccard"),
]


@dataclass(frozen=True)
class Spread:
    """The distribution of some integers."""

    least: int
    mean: float
    median: float
    most: int
    counts: Mapping[int, int]
    """Value → how often it occurs."""


@dataclass(frozen=True)
class Depth:
    """The trie at one depth, that is, all prefixes of `depth` tokens."""

    depth: int
    nodes: int
    """Distinct prefixes; completed docids are not counted."""
    branching: float
    """Mean children of these nodes: what a decoder chooses from, including the end of a docid."""
    alone: int
    """Docids that a prefix of this length identifies, or that have ended before."""
    unique: float
    """Their share of all docids."""
    bits: float
    """What the last token of the prefix adds, in bits: the entropy of prefixes of this length minus that of
    prefixes shorter by one. Over all depths this sums to log2 of the number of docids."""


@dataclass(frozen=True)
class Place:
    """The distribution of tokens at one position of the docids; the first is 0."""

    place: int
    docids: int
    """Docids long enough to have a token here."""
    distinct: int
    entropy: float
    """Entropy of the token, in bits."""
    maximum: float
    """The entropy if all possible tokens (all codes, or all tokens seen here) were equally frequent."""


@dataclass(frozen=True)
class SelfRetrieval:
    """How well BM25 finds documents with the words of their docids as queries."""

    documents: int
    """Documents searched for: all, or a sample."""
    mrr: float
    hits: float
    """Share found at rank 1."""


@dataclass(frozen=True)
class Neighbours:
    """What docids share with the next docid when sorted by tokens."""

    prefix: float
    """Mean length of the prefix that two neighbours share, in tokens."""
    share: float
    """The same, divided by the length of the longer one."""
    jaccard: float | None
    """Mean Jaccard similarity of their stemmed words; None if docids are codes."""


@dataclass(frozen=True, kw_only=True)
class Health:
    """The health report of one set of docids."""

    about: Mapping[str, Any]
    documents: int
    clashes: Mapping[str, int]
    """How many documents got which kind of proposal; documents removed since are still counted."""
    unique: int | None
    """Documents whose first proposal no other document had when docids were made; None if unknown."""
    lengths: Spread
    """In tokens, without the end token."""
    bytes: float
    """Mean size of a docid: a byte for each code, two where there are more than 256; of a text, in UTF-8."""
    word_bytes: float | None
    """Mean size of the words that are kept beside a docid of codes-words; None for other schemes."""
    to_unique: Spread
    """Tokens after which a docid is unique; a docid that is a prefix of another also needs its end token."""
    depths: tuple[Depth, ...]
    places: tuple[Place, ...]
    retrieval: SelfRetrieval | None
    """None if docids are codes, which are not words."""
    neighbours: Neighbours | None
    """None if there is only one document."""

    @property
    def scheme(self) -> str:
        """Name of the scheme."""
        return str(self.about.get("scheme", "unnamed"))

    @property
    def first_proposal(self) -> float | None:
        """Share of documents that got their first proposal; None if clashes were not recorded."""
        total = sum(self.clashes.values())
        return self.clashes["rank 1"] / total if total else None

    def as_dict(self) -> dict[str, Any]:
        """Everything, in JSON's types."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return {"scheme": self.scheme, "first_proposal": self.first_proposal, **plain}

    def as_text(self) -> str:
        """The report as text, with a short explanation of each figure."""
        plain = {name: value for name, value in self.about.items() if not isinstance(value, (Mapping, list))}
        facts = [f"{name} {value}" for name, value in plain.items() if name != "scheme"]
        head = ", ".join([f"{self.scheme}: {self.documents:,} docids", *facts])
        table = render(["figure", "value", "what it says"], self.rows())
        return "\n\n".join([head, table, *_tables(self)])

    def rows(self) -> list[tuple[str, str, str]]:
        """Each figure: its name, its formatted value, and a short explanation."""
        return [(name, *figure) for name, figure in _figures(self).items()]


def health(
    docids: Docids, collection: Collection, *, sample: int | None = None, progress: bool = False
) -> Health:
    """Compute the health report of a collection's docids.

    Args:
        docids: the docids of all documents of the collection.
        collection: the documents that text docids should find.
        sample: maximum number of documents to search for; the choice depends only on the docnos.
        progress: show a progress bar.
    """
    if not len(docids):
        raise ValueError("there are no docids to report on")
    if sample is not None and sample < 1:
        raise ValueError(f"expected a sample of at least 1 document, found {sample}")
    if strangers := sorted(set(docids.docnos) ^ collection.docnos.keys()):
        raise ValueError(f"not the docids of {collection.name}: only one of both has {strangers[0]!r}")
    flat, offsets = docids.flat()
    depths = _depths(Trie.build(flat + 1, offsets, end=0))  # +1: codes begin with 0
    alone = np.diff([row.alone for row in depths], prepend=0)
    is_text = "codes" not in docids.about
    return Health(
        about=dict(docids.about),
        documents=len(docids),
        clashes=dict.fromkeys(KINDS, 0) | dict(docids.clashes),
        unique=docids.unique,
        lengths=_spread(map(len, docids.tokens)),
        bytes=_size(docids),
        word_bytes=_size_of_words(docids, collection),
        to_unique=_spread(np.repeat(np.arange(len(depths)), alone).tolist()),
        depths=depths,
        places=_places(docids.tokens, docids.about.get("choices")),
        retrieval=_searched(docids, collection, sample, progress) if is_text else None,
        neighbours=_neighbours(docids, is_text) if len(docids) > 1 else None,
    )


def side_by_side(healths: Mapping[str, Health]) -> str:
    """The main figures of several schemes as a Markdown table, one column per scheme."""
    columns = [_figures(each) for each in healths.values()]
    rows = [[name, *(column[name][0] for column in columns)] for name in SIDE]
    return render(["figure", *healths], rows, "markdown")


def _depths(trie: Trie) -> tuple[Depth, ...]:
    """One row per depth; nodes are numbered breadth-first, so those of a depth are consecutive."""
    rows: list[Depth] = []
    start, stop, ended, known = 0, 1, 0, 0.0
    while True:
        leaves = int(np.diff(np.searchsorted(trie.leaf, [start, stop]))[0])
        if not (nodes := stop - start - leaves):
            return tuple(rows)
        children = int(trie.first[stop]) - int(trie.first[start])
        alone = ended + int((trie.below[start:stop] == 1).sum())
        # Docids that have ended are told from all others; the rest is in groups of the same prefix.
        sizes = np.concatenate([trie.below[start:stop], np.ones(ended)])
        entropy = float((sizes * np.log2(len(trie) / sizes)).sum() / len(trie))
        rows.append(Depth(len(rows), nodes, children / nodes, alone, alone / len(trie), entropy - known))
        known = entropy
        start, stop, ended = stop, stop + children, ended + leaves


def _places(rows: Sequence[Sequence[int]], choices: int | None) -> tuple[Place, ...]:
    places = []
    for place in range(max(map(len, rows))):
        counts = np.array(list(Counter(row[place] for row in rows if len(row) > place).values()))
        shares = counts / counts.sum()
        entropy = float((shares * np.log2(1 / shares)).sum())
        maximum = float(np.log2(min(choices or len(counts), counts.sum())))
        places.append(Place(place, int(counts.sum()), len(counts), entropy, maximum))
    return tuple(places)


def _size(docids: Docids) -> float:
    if docids.codes is None:
        return sum(len(text.encode()) for text in docids.texts) / len(docids)
    each = 1 if int(docids.about.get("choices", docids.codes)) <= BYTE else 2
    return each * sum(map(len, docids.tokens)) / len(docids)


def _size_of_words(docids: Docids, collection: Collection) -> float | None:
    if KEPT_WORDS not in docids.about:
        return None
    from gr2.model.word_weights import WordWeights

    kept = WordWeights.of(BM25.index(collection.documents), int(docids.about[KEPT_WORDS]))
    return kept.nbytes / len(docids)


def _searched(docids: Docids, collection: Collection, sample: int | None, progress: bool) -> SelfRetrieval:
    texts = dict(zip(docids.docnos, docids.texts, strict=True))
    if sample is not None and sample < len(texts):
        docnos = sorted(texts)
        chosen = np.random.default_rng(0).choice(len(docnos), sample, replace=False)
        texts = {docnos[position]: texts[docnos[position]] for position in chosen.tolist()}
    index = BM25.index(collection.documents, SETTINGS, progress=progress)
    found = list(reciprocal_ranks(texts, index, progress=progress).values())
    return SelfRetrieval(len(found), sum(found) / len(found), found.count(1.0) / len(found))


def _neighbours(docids: Docids, is_text: bool) -> Neighbours:
    order = sorted(range(len(docids)), key=docids.tokens.__getitem__)
    rows = [docids.tokens[position] for position in order]
    pairs = list(zip(rows, rows[1:], strict=False))
    shared = [_shared(one, two) for one, two in pairs]
    shares = [same / max(len(one), len(two)) for same, (one, two) in zip(shared, pairs, strict=True)]
    jaccard = None
    if is_text:
        bags = [set(words(docids.texts[position])) for position in order]
        alike = [len(a & b) / max(1, len(a | b)) for a, b in zip(bags, bags[1:], strict=False)]
        jaccard = sum(alike) / len(alike)
    return Neighbours(sum(shared) / len(pairs), sum(shares) / len(pairs), jaccard)


def _shared(one: Sequence[int], two: Sequence[int]) -> int:
    """The length of the prefix that two docids share."""
    pairs = enumerate(zip(one, two, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(two)))


def _spread(values: Iterable[int]) -> Spread:
    counts = dict(sorted(Counter(values).items()))
    numbers = np.repeat(list(counts), list(counts.values()))
    return Spread(min(counts), float(numbers.mean()), float(np.median(numbers)), max(counts), counts)


def _figures(health: Health) -> dict[str, tuple[str, str]]:
    """Name → the formatted figure and a short explanation."""
    length, unique, found, near = health.lengths, health.to_unique, health.retrieval, health.neighbours
    made = f"got rank 1, of {sum(health.clashes.values()):,} when docids were given out"
    alone = None if health.unique is None else health.unique / max(1, sum(health.clashes.values()))
    mrr, hits, many = (found.mrr, found.hits, found.documents) if found else (None, None, None)
    prefix, share, jaccard = (near.prefix, near.share, near.jaccard) if near else (None, None, None)
    return {
        "documents": (f"{health.documents:,}", "each has a docid of its own"),
        "unique proposals": (_cell(alone, ".1%"), "first proposals that no other document has"),
        "first proposal": (_cell(health.first_proposal, ".1%"), made),
        **{kind: (f"{health.clashes[kind]:,}", what) for kind, what in KINDS.items()},
        "shortest": (f"{length.least:,}", "tokens of the shortest docid, without the end token"),
        "mean length": (f"{length.mean:.2f}", "tokens that a decoder writes"),
        "median length": (f"{length.median:g}", "half of the docids have no more tokens"),
        "longest": (f"{length.most:,}", "tokens of the longest docid"),
        "tokens to uniqueness": (f"{unique.mean:.2f}", "mean tokens that tell a docid from all others"),
        "bits of the first token": (f"{health.depths[1].bits:.2f}", "what it tells of the document"),
        "median to uniqueness": (f"{unique.median:g}", "half of the docids need no more to be unique"),
        "bytes": (f"{health.bytes:.1f}", "mean size of a docid: codes as bytes, texts in UTF-8"),
        "bytes of words": (_cell(health.word_bytes, ".1f"), "mean size of the words kept beside it"),
        f"MRR@{CUT}": (
            _cell(mrr),
            f"of the document, with its docid as the query; BM25 k1={SETTINGS.k1:g} b={SETTINGS.b:g}",
        ),
        "Hits@1": (_cell(hits), "share of documents that BM25 finds first"),
        "searched for": (_cell(many, ","), "documents behind these two figures: all, or a seeded sample"),
        "neighbour prefix": (_cell(prefix, ".2f"), "mean tokens shared with the next docid in order"),
        "neighbour prefix share": (_cell(share), "the same, divided by the length of the longer docid"),
        "neighbour Jaccard": (_cell(jaccard), "mean share of stemmed words that the two have in common"),
    }


def _cell(value: float | None, shape: str = ".4f") -> str:
    return "–" if value is None else format(value, shape)


def _tables(health: Health) -> list[str]:
    """The figures that have several rows: orders of proposals, lengths, depths, places."""
    counts, deepest = health.lengths.counts, health.to_unique.most  # deeper tokens are all forced
    lengths = [[f"{n:,}", f"{count:,}", f"{count / health.documents:.1%}"] for n, count in counts.items()]
    depths = [
        [f"{d.depth:,}", f"{d.nodes:,}", f"{d.branching:.2f}", f"{d.unique:.1%}", f"{d.bits:.2f}"]
        for d in health.depths[: deepest + 1]
    ]
    places = [
        [str(row.place), f"{row.docids:,}", f"{row.distinct:,}", f"{row.entropy:.2f}", f"{row.maximum:.2f}"]
        for row in health.places[:PLACES]
    ]
    orders = health.about.get(ORDERS)
    return ([orders_table(orders)] if orders else []) + [
        "Lengths: number of docids by length\n" + render(["tokens", "docids", "share"], lengths),
        "Depths: prefixes of that many tokens, their mean number of children, docids unique by then, and the "
        "bits that the last token adds\n" + render(["depth", "nodes", "branching", "unique", "bits"], depths),
        f"Places: entropy of the token at the first {PLACES} positions in bits, and its maximum\n"
        + render(["place", "docids", "distinct", "entropy", "maximum"], places),
    ]
