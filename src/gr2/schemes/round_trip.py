"""Round trip: is a document found by a proposal of its docid? One rule for all schemes that generate."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gr2.bm25 import BM25
from gr2.docids.docids import Proposals
from gr2.evaluate.tables import render
from gr2.schemes.self_retrieval import CUT, all_reciprocal_ranks

NOT_FOUND = 1 / (2 * CUT)
"""1 / rank of a document that is not found."""
USUAL = 1.0
"""The weight with which the order by likelihood alone is compared."""
SAMPLE = 10_000
"""Documents on which orders are compared, at most."""
ORDERS = "orders"
"""Where docids keep how their proposals compare in both orders, in `about`."""
Ranks = Mapping[str, Sequence[float]]
"""docno → 1 / rank of the document by each of its proposals, 0 if it is not found."""


def ranks_of(proposals: Proposals, index: BM25) -> Ranks:
    """Look for every document by each of its proposals."""
    return all_reciprocal_ranks(_texts(proposals), index)


def by_round_trip(proposals: Proposals, ranks: Ranks, weight: float) -> Proposals:
    """The proposals, best first, with weight · log(1 / rank) of the document added to each score."""
    scored = {
        docno: [
            (text, score + weight * math.log(rank or NOT_FOUND))
            for (text, score), rank in zip(row, ranks[docno], strict=True)
        ]
        for docno, row in proposals.items()
    }
    return {docno: sorted(row, key=lambda each: -each[1]) for docno, row in scored.items()}


@dataclass(frozen=True)
class Order:
    """The first proposals that documents have in one order of their proposals."""

    round_trip: float
    """Weight of the round trip; 0 is the order by likelihood alone, the paper's."""
    documents: int
    """Documents behind the figures: all, or a sample."""
    unique: float
    """Share of documents whose first proposal no other one has."""
    mrr: float
    """Mean of 1 / rank of a document by its first proposal."""


def sampled(proposals: Proposals, most: int = SAMPLE) -> Proposals:
    """The proposals of at most so many documents, drawn evenly in the order of docnos."""
    docnos = sorted(proposals)
    drawn = np.linspace(0, len(docnos) - 1, min(most, len(docnos))).astype(int).tolist()
    return {docnos[place]: proposals[docnos[place]] for place in drawn}


def compare_orders(proposals: Proposals, ranks: Ranks, weight: float) -> list[Order]:
    """The proposals of the ranked documents by likelihood alone, and with a weight of the round trip.

    A weight of 0 is compared with the usual one.
    """
    some = {docno: proposals[docno] for docno in ranks}
    known = {
        (docno, text): rank
        for docno, row in some.items()
        for (text, _), rank in zip(row, ranks[docno], strict=True)
    }
    found = []
    for each in (0.0, weight or USUAL):
        first = {docno: row[0][0] for docno, row in by_round_trip(some, ranks, each).items()}
        having = Counter(first.values())
        unique = sum(having[text] == 1 for text in first.values())
        mrr = sum(known[pair] for pair in first.items())
        found.append(Order(each, len(some), unique / len(some), mrr / len(some)))
    return found


def orders_table(orders: Sequence[Mapping[str, Any]]) -> str:
    """How proposals compare in both orders, as docids keep it."""
    rows = [
        [f"{row['round_trip']:g}", f"{row['documents']:,}", f"{row['unique']:.1%}", f"{row['mrr']:.4f}"]
        for row in orders
    ]
    return (
        "Orders of proposals: by likelihood alone (0), and with a weight of log(1 / rank) of the document, "
        "found by BM25; first proposals that no other document has, and their MRR\n"
        + render(["round trip", "documents", "unique", f"MRR@{CUT}"], rows)
    )


def found_first(proposals: Proposals, index: BM25, most: int) -> dict[str, list[str]]:
    """Of each document at most so many proposals by which it is found at rank 1, the best first."""
    ranks = ranks_of(proposals, index)
    return {
        docno: [text for text, rank in zip(texts, ranks[docno], strict=True) if rank == 1][:most]
        for docno, texts in _texts(proposals).items()
    }


def _texts(proposals: Proposals) -> dict[str, list[str]]:
    return {docno: [text for text, _ in row] for docno, row in proposals.items()}
