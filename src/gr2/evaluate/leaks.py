"""A collection → what its training judgements give away about its test queries.

A *near-twin* is a training query whose words overlap with a test query's by at least 60 % (Jaccard on stems).
A test query is *seen* if any of its relevant documents was relevant to a training query: a system may rank
it well from memory. `gr2 evaluate` therefore reports seen and unseen queries separately. A query without any
relevant document is neither: it is counted apart, and every measure is 0 for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from gr2.data.collection import Collection, Qrels
from gr2.evaluate.controls import neighbours, popularity
from gr2.evaluate.measures import Convention, Evaluation, evaluate
from gr2.evaluate.similarity import nearest_by_jaccard

NEAR_TWIN = 0.6
Overlap = Literal["all", "some", "none", "no relevant"]
"""How many of a query's relevant documents were relevant in training; or that it has none."""


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
    def train_overlap(self) -> dict[str, Overlap]:
        """Test qid → how many of its relevant documents were relevant in training."""
        return train_overlap(self.collection.split(self.train), self.collection.split(self.split))

    def controls(self, measures: tuple[str, ...], convention: Convention | None = None) -> list[Evaluation]:
        """Evaluations of the two controls on the test queries."""
        train, test = self.collection.split(self.train), self.collection.split(self.split)
        queries = {qid: self.collection.queries[qid] for qid in test}
        runs = [popularity(train, queries), neighbours(train, self.collection.queries, queries)]
        return [evaluate(run, test, measures, convention) for run in runs]


def train_overlap(train: Qrels, test: Qrels) -> dict[str, Overlap]:
    """Test qid → whether "all", "some" or "none" of its relevant documents were relevant in training.

    A query without any relevant document is "no relevant".

    >>> train_overlap({"a": {"d1": 2, "d2": 0}}, {"x": {"d1": 1}, "y": {"d1": 1, "d2": 1}, "z": {"d2": 3}})
    {'x': 'all', 'y': 'some', 'z': 'none'}
    """
    known = {docno for judged in train.values() for docno, grade in judged.items() if grade > 0}
    result: dict[str, Overlap] = {}
    for qid, judged in test.items():
        relevant = {docno for docno, grade in judged.items() if grade > 0}
        if not relevant:
            result[qid] = "no relevant"
        else:
            result[qid] = "none" if not relevant & known else "all" if relevant <= known else "some"
    return result


def seen_and_unseen(overlap: Mapping[str, Overlap]) -> dict[str, set[str]]:
    """Group the queries: all and, if there are both kinds, seen and unseen.

    >>> sorted(seen_and_unseen({"x": "all", "z": "none"}))
    ['all', 'seen', 'unseen']
    """
    unseen = {qid for qid, kind in overlap.items() if kind == "none"}
    seen = {qid for qid, kind in overlap.items() if kind in ("all", "some")}
    return {"all": set(overlap)} | ({"seen": seen, "unseen": unseen} if seen and unseen else {})
