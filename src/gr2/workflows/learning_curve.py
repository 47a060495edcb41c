"""A learning curve for the report of `gr2 index`: what fewer judged queries would have taught."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from gr2.data.collection import Collection
from gr2.model.query_encoder import QueryEncoder
from gr2.training.candidates import Candidate
from gr2.training.curve import curve_of_choice
from gr2.training.fit_look_ahead import judged_queries
from gr2.training.judged import TrainingSet
from gr2.training.plain_views import PlainViews, Weights

Curve = Sequence[tuple[int, float]]
"""nDCG@20 by the number of judged queries that were learned from."""


def learning_curve(
    collection: Collection,
    split: str,
    views: PlainViews,
    facts: Mapping[str, Any],
    encoder: QueryEncoder,
    sizes: Sequence[int],
    *,
    seed: int,
) -> tuple[Curve, str]:
    """The curve, and a line that tells it.

    Args:
        collection: with the judgements that were learned from.
        split: of the queries to measure on.
        views: φ with nothing learned.
        facts: what was chosen (`selection_facts`).
        encoder: of queries.
        sizes: numbers of judged queries.
        seed: of the sample of each size.
    """
    candidate = Candidate.from_json(facts["candidate"]) if "candidate" in facts else Candidate()
    if not (candidate.learns or facts.get("prior")):
        return (), "curve: nothing was learned, so there is no learning curve"
    weights = Weights(facts["vectors"], facts["words"], facts["titles"], tuple(facts["prior"]))
    source = candidate.split if candidate.learns else facts["measured"]
    queries, measured = judged_queries(collection, encoder)[source].encoded(), collection.split(split)
    texts = [collection.queries[qid] for qid in measured]
    asked, started = TrainingSet(texts, encoder.encode(texts), list(measured.values())), time.process_time()
    points = curve_of_choice(views, weights, candidate, queries, asked, sizes, seed=seed)
    seconds = (time.process_time() - started) / max(1, len(points) - 1)
    shown = ", ".join(f"{value:.4f} ({size})" for size, value in points)
    return points, (
        f"curve: nDCG@20 of {split} after learning from so many judged queries: {shown}; "
        f"{seconds:.1f} CPU-seconds each"
    )
