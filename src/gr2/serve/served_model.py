"""A model folder → a model that answers: its searcher, a dense one beside it, and the paths of its docids.

The service replaces one as a whole after learning, so no answer is made from two models.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from gr2.model.config import SearchConfig
from gr2.model.gr2 import GR2
from gr2.model.searcher import Searcher, SearchRequest, SearchResult
from gr2.serve.config import ServiceConfig
from gr2.serve.docid_path import DocidPaths

Asked = tuple[Searcher, SearchRequest]
"""A question, and who answers it."""


class ServedModel:
    """A loaded model."""

    def __init__(self, folder: Path, config: ServiceConfig) -> None:
        """Load and verify the folder, and answer two warm-up queries."""
        model = GR2.from_pretrained(folder, device=config.device)
        self.docids, self.provenance = model.docids, model.provenance
        self.searcher = model.searcher(SearchConfig(batch=config.batch))
        self.dense = dense_searcher(model)
        """Ranks by the vectors of look-ahead alone; None without look-ahead."""
        self.paths = DocidPaths(model)
        self.searcher.answer([SearchRequest("warm-up with a filter", 1, (0,)), SearchRequest("warm-up", 1)])


def dense_searcher(model: GR2) -> Searcher | None:
    """A searcher that ranks by the vectors of a model's look-ahead, with nothing learned and no words."""
    if model.look_ahead is None:
        return None
    config = replace(model.look_ahead.config, words=0.0, residual=0.0)
    plain = replace(model.look_ahead, config=config, bm25=None, offsets=None, memory=None)
    return model.with_look_ahead(plain).searcher()


def answer(asked: Sequence[Asked]) -> list[SearchResult]:
    """Answer a batch, each question by its own searcher, in order."""
    return [
        result
        for searcher, group in groupby(asked, key=itemgetter(0))
        for result in searcher.answer([request for _, request in group])
    ]
