"""A model as systems that may disagree, for `judge/next_queries.py`; and the learning curve of a model.

The views of a model are systems of their own: vectors alone, words alone, and everything together.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from gr2.data.runs import Run
from gr2.judge.judged_queries import JudgedQueries
from gr2.judge.next_queries import DEPTH
from gr2.model.gr2 import GR2
from gr2.training.curve import DRAWS, Point, learning_curve
from gr2.workflows.learn import encoded, views_of


def view_runs(model: GR2, queries: Mapping[str, str], depth: int = DEPTH) -> list[Run]:
    """The runs of vectors alone, of words alone, and of all views of a model's look-ahead."""
    known = model.look_ahead
    if known is None:
        raise ValueError("this model has no look-ahead, so it has no views that could disagree; give runs")
    vectors = model.with_look_ahead(replace(known, bm25=None, offsets=None, memory=None))
    runs = [vectors.search_many(queries, depth, name="vectors")]
    if known.bm25 is not None:
        runs.append(known.bm25.search(queries, depth, name="words"))
    return [*runs, model.search_many(queries, depth, name="all views")]


def curve(
    folder: Path,
    judgements: JudgedQueries,
    *,
    draws: int = DRAWS,
    device: str = "auto",
    progress: Callable[[str], None] = lambda line: None,
) -> list[Point]:
    """The learning curve over these judgements and those that the model has learned from.

    Args:
        folder: the model; it is not changed.
        judgements: graded documents of this model.
        draws: how often queries are held out.
        device: where queries are encoded.
        progress: called with a line for each step.
    """
    model = GR2.from_pretrained(folder, device=device)
    model.network.eval()
    views = views_of(model, folder)
    judgements.check(set(model.docids.docnos))
    queries = encoded(judgements.over(model.judged).relevant(), model.query_encoder)
    return learning_curve(views, queries, draws=draws, progress=progress)
