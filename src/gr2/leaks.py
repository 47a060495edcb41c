"""A collection → what its training judgements give away about its test queries.

A near-twin is a training query that shares at least 60 % of the words (Jaccard on stems) with a test query.
A test query is *seen* if any of its relevant documents was relevant to a training query: a system may rank
it well by remembering. `gr2 evaluate` therefore prints seen and unseen queries apart.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from gr2.baselines.controls import neighbours, popularity
from gr2.data import Collection, Qrels
from gr2.measures import Convention, Evaluation, evaluate
from gr2.similarity import nearest_by_jaccard

NEAR_TWIN = 0.6


@dataclass(frozen=True)
class Leaks:
    """What the train split of a collection gives away about another split."""

    collection: Collection
    split: str = "test"
    train: str = "train"

    @cached_property
    def near_twins(self) -> dict[str, str]:
        """Test qid → the training query that is its near-twin, where it has one."""
        queries = self.collection.queries
        tests, trains = list(self.collection.split(self.split)), list(self.collection.split(self.train))
        nearest = nearest_by_jaccard([queries[q] for q in tests], [queries[q] for q in trains])
        found = zip(tests, nearest, strict=True)
        return {qid: trains[i] for qid, (i, similarity) in found if similarity >= NEAR_TWIN}

    @cached_property
    def memory(self) -> dict[str, str]:
        """Test qid → "all", "some" or "none" of its relevant documents were relevant in training."""
        return memory(self.collection.split(self.train), self.collection.split(self.split))

    def controls(self, measures: tuple[str, ...], convention: Convention | None = None) -> list[Evaluation]:
        """What the two controls reach on the test queries."""
        train, test = self.collection.split(self.train), self.collection.split(self.split)
        queries = {qid: self.collection.queries[qid] for qid in test}
        runs = [popularity(train, queries), neighbours(train, self.collection.queries, queries)]
        return [evaluate(run, test, measures, convention) for run in runs]


def memory(train: Qrels, test: Qrels) -> dict[str, str]:
    """Test qid → how much of its relevant documents was relevant to any training query.

    >>> memory({"a": {"d1": 2, "d2": 0}}, {"x": {"d1": 1}, "y": {"d1": 1, "d2": 1}, "z": {"d2": 3}})
    {'x': 'all', 'y': 'some', 'z': 'none'}
    """
    known = {docno for judged in train.values() for docno, grade in judged.items() if grade > 0}
    result = {}
    for qid, judged in test.items():
        relevant = {docno for docno, grade in judged.items() if grade > 0}
        result[qid] = "none" if not relevant & known else "all" if relevant <= known else "some"
    return result


def seen_and_unseen(memory: Mapping[str, str]) -> dict[str, set[str]]:
    """All queries and, where there are both kinds, the seen and the unseen ones.

    >>> sorted(seen_and_unseen({"x": "all", "z": "none"}))
    ['all', 'seen', 'unseen']
    """
    unseen = {qid for qid, kind in memory.items() if kind == "none"}
    groups = {"all": set(memory)}
    if unseen and unseen != groups["all"]:
        groups |= {"seen": groups["all"] - unseen, "unseen": unseen}
    return groups
