"""Training judgements → two control runs that read no document, to measure how much they give away.

A system that does not beat the controls has shown nothing. `popularity` returns one fixed ranking for every
query; `neighbours` copies the judgements of the most similar training queries.
"""

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from gr2.data.collection import Qrels
from gr2.data.runs import Run
from gr2.evaluate.similarity import TfIdf


def popularity(train: Qrels, qids: Mapping[str, object], k: int = 1000) -> Run:
    """The same ranking for every query: documents by the sum of their grades in the training judgements.

    >>> popularity({"a": {"d1": 1, "d2": 3}, "b": {"d1": 1}}, {"q": ""}).docnos("q")
    ('d2', 'd1')
    """
    total: dict[str, float] = defaultdict(float)
    for judged in train.values():
        for docno, grade in judged.items():
            total[docno] += grade
    popular = Run.from_dict({"all": {docno: score for docno, score in total.items() if score > 0}})
    return Run(dict.fromkeys(qids, popular.rankings["all"][:k]), "popularity")


def neighbours(
    train: Qrels,
    train_queries: Mapping[str, str],
    queries: Mapping[str, str],
    k: int = 1000,
    *,
    near: int = 10,
) -> Run:
    """Score a document by the `near` training queries most similar to the query: Σ cosine² · grade.

    >>> neighbours({"a": {"d1": 1}, "b": {"d2": 1}}, {"a": "cats", "b": "dogs"}, {"q": "my cat"}).docnos("q")
    ('d1',)
    """
    known = [qid for qid in train if qid in train_queries]
    index = TfIdf([train_queries[qid] for qid in known])
    scores: dict[str, dict[str, float]] = {}
    for qid, text in queries.items():
        cosines = index.cosines(text)
        row: dict[str, float] = defaultdict(float)
        for position in np.argsort(-cosines, kind="stable")[:near]:
            for docno, grade in train[known[position]].items():
                row[docno] += float(cosines[position]) ** 2 * grade
        scores[qid] = {docno: score for docno, score in row.items() if score > 0}
    full = Run.from_dict(scores, "neighbours")
    return Run({qid: ranking[:k] for qid, ranking in full.rankings.items()}, full.name)
