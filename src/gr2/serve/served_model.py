"""A model folder → a model that answers: its searcher, rivals beside it, and the paths of its docids.

The service replaces one as a whole after learning, so no answer is made from two models.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from gr2.judge.judged_queries import JudgedQueries
from gr2.model.config import LookAheadConfig, SearchConfig
from gr2.model.gr2 import GR2
from gr2.model.searcher import Searcher, SearchRequest, SearchResult
from gr2.serve.config import ServiceConfig
from gr2.serve.docid_path import DocidPaths

Asked = tuple[Searcher, SearchRequest]
"""A question, and who answers it."""
EXAMPLES = 6
"""Queries that the empty page proposes."""
SHORT = 60
"""Maximum characters of such a query."""


class ServedModel:
    """A loaded model."""

    def __init__(self, folder: Path, config: ServiceConfig) -> None:
        """Load and verify the folder, and answer two warm-up queries."""
        model = GR2.from_pretrained(folder, device=config.device)
        self.docids, self.provenance, self.look_ahead = model.docids, model.provenance, model.look_ahead
        self.searcher = model.searcher(SearchConfig(batch=config.batch))
        self.dense = plain_searcher(model, words=0.0)
        """Ranks by the vectors of look-ahead alone; None without look-ahead."""
        self.hybrid = None
        """Ranks by words and vectors, with nothing learned; None without look-ahead or its words."""
        if model.look_ahead is not None and model.look_ahead.bm25 is not None:
            self.hybrid = plain_searcher(model, words=LookAheadConfig().words)
        self.paths = DocidPaths(model)
        self.examples = example_queries(model.judged)
        self.searcher.answer([SearchRequest("warm-up with a filter", 1, (0,)), SearchRequest("warm-up", 1)])


def plain_searcher(model: GR2, words: float) -> Searcher | None:
    """A searcher by the vectors of a model's look-ahead and, with this weight, words; nothing learned."""
    if model.look_ahead is None:
        return None
    config = replace(model.look_ahead.config, words=words, residual=0.0)
    return model.with_look_ahead(model.look_ahead.without_learned().with_config(config)).searcher()


def example_queries(judged: JudgedQueries | None) -> tuple[str, ...]:
    """Some short queries that have a relevant document, evenly spread over all that the model knows."""
    if judged is None:
        return ()
    texts = [text for text in judged.relevant().queries.values() if len(text) <= SHORT]
    return tuple(texts[:: max(1, len(texts) // EXAMPLES)][:EXAMPLES])


def answer(asked: Sequence[Asked]) -> list[SearchResult]:
    """Answer a batch, each question by its own searcher, in order."""
    return [
        result
        for searcher, group in groupby(asked, key=itemgetter(0))
        for result in searcher.answer([request for _, request in group])
    ]
