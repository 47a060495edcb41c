"""Rankings of several systems → the queries to judge next: those on which the systems disagree most.

Where all systems show the same documents, a judgement can hardly change which of them is right; where their
top lists differ, it can. Disagreement is 1 − the mean rank-biased overlap of every two lists, to a fixed
depth. It needs no judgement and no score, so systems of any kind can be compared.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

Ranked = Sequence[str]
"""Docnos, best first."""
DEPTH = 10
"""Documents of each list that are compared: about what people look at."""
PERSISTENCE = 0.9
"""How probable it is that a reader goes on to the next document."""


@dataclass(frozen=True)
class NextQuery:
    """A query and how much the systems disagree about it."""

    qid: str
    disagreement: float
    """From 0, the same lists, to 1, no document in common."""
    judged: bool
    """Whether it has been judged before."""


def next_queries(
    rankings: Sequence[Mapping[str, Ranked]], qids: Sequence[str], judged: Collection[str] = ()
) -> list[NextQuery]:
    """The queries in the order in which to judge them: unjudged ones first, then by disagreement.

    Args:
        rankings: for each of at least two systems, qid → docnos; a query that is missing has none.
        qids: the queries; ties stay in this order, so put frequent ones first.
        judged: the qids of those that were judged before.

    >>> [one.qid for one in next_queries([{"1": "ab", "2": "ab"}, {"1": "ab", "2": "cd"}], ["1", "2"])]
    ['2', '1']
    """
    if len(rankings) < 2:
        raise ValueError(f"expected the rankings of at least two systems, found {len(rankings)}")
    found = [
        NextQuery(qid, disagreement([system.get(qid, ()) for system in rankings]), qid in judged)
        for qid in qids
    ]
    return sorted(found, key=lambda one: (one.judged, -one.disagreement))


def disagreement(lists: Sequence[Ranked]) -> float:
    """1 − the mean overlap of every two lists.

    >>> disagreement(["ab", "ab", "cd"])
    0.6666666666666667
    """
    return 1 - fmean(overlap(one, two) for one, two in combinations(lists, 2))


def overlap(one: Ranked, two: Ranked, depth: int = DEPTH) -> float:
    """Rank-biased overlap to a depth: the share of common documents among the first 1, 2, … of both lists.

    The shares are weighted by powers of `PERSISTENCE` and divided by the sum of these weights, so equal lists
    have 1. A share is that of the longer list, so what one system alone has found counts as disagreement.

    >>> overlap("ab", "ab"), overlap("ab", "cd"), overlap("", "")
    (1.0, 0.0, 1.0)
    """
    longest = min(depth, max(len(one), len(two)))
    if not longest:
        return 1.0
    weights = [PERSISTENCE**place for place in range(longest)]
    shares = [
        len({*one[:size]} & {*two[:size]}) / max(len(one[:size]), len(two[:size]))
        for size in range(1, longest + 1)
    ]
    return sum(weight * share for weight, share in zip(weights, shares, strict=True)) / sum(weights)
