"""A query and the documents found for it → what each word of the query contributed to their scores."""

import re
from collections import Counter
from collections.abc import Sequence

from gr2.model.look_ahead import LookAhead

WORD = re.compile(r"(?u)\b\w\w+\b")
"""A word of a query, as BM25 splits texts."""
MOST = 64
"""Distinct words of a query that are looked at; each one is scored apart."""


def matched_words(look_ahead: LookAhead, query: str, places: Sequence[int]) -> list[dict[str, float]]:
    """For the document at each place: word of the query → its part of the view `words`, highest first.

    Words that a document does not have are left out; a word and its inflections count as one in BM25, but
    each is listed as it was written.
    """
    found: list[dict[str, float]] = [{} for _ in places]
    bm25, weight = look_ahead.bm25, look_ahead.config.words
    if bm25 is None or not weight:
        return found
    counts = Counter(WORD.findall(query.lower()))
    for word in list(counts)[:MOST]:
        scores = bm25.scores([word])[0]
        for parts, place in zip(found, places, strict=True):
            if scores[place] > 0:
                parts[word] = weight * counts[word] * float(scores[place])
    return [dict(sorted(parts.items(), key=lambda part: -part[1])) for parts in found]
