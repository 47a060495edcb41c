"""Round trip: is a document found by a proposal of its docid? One rule for all schemes that generate."""

import math

from gr2.bm25 import BM25
from gr2.docids.docids import Proposals
from gr2.schemes.self_retrieval import CUT, all_reciprocal_ranks

NOT_FOUND = 1 / (2 * CUT)
"""1 / rank of a document that is not found."""


def by_round_trip(proposals: Proposals, index: BM25, weight: float) -> Proposals:
    """The proposals, best first, with weight · log(1 / rank) of the document added to each score."""
    ranks = all_reciprocal_ranks(_texts(proposals), index)
    scored = {
        docno: [
            (text, score + weight * math.log(rank or NOT_FOUND))
            for (text, score), rank in zip(row, ranks[docno], strict=True)
        ]
        for docno, row in proposals.items()
    }
    return {docno: sorted(row, key=lambda each: -each[1]) for docno, row in scored.items()}


def found_first(proposals: Proposals, index: BM25, most: int) -> dict[str, list[str]]:
    """Of each document at most so many proposals by which it is found at rank 1, the best first."""
    texts = _texts(proposals)
    ranks = all_reciprocal_ranks(texts, index)
    return {
        docno: [text for text, rank in zip(row, ranks[docno], strict=True) if rank == 1][:most]
        for docno, row in texts.items()
    }


def _texts(proposals: Proposals) -> dict[str, list[str]]:
    return {docno: [text for text, _ in row] for docno, row in proposals.items()}
