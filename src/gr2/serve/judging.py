"""A service and its folder of judgements → what there is to judge: queries with progress, and mixed lists.

The list of a query is made from what the model, its vectors alone (dense) and BM25 find; it does not say who
found what (`judge/pool.py`).
"""

from dataclasses import dataclass
from typing import get_args

from gr2.judge.judgements import Judgement
from gr2.judge.pool import pool
from gr2.judge.query_list import QueryToJudge, by_disagreement, read_query_list
from gr2.judge.store import JudgementStore, config_of
from gr2.model.searcher import Searcher, SearchRequest
from gr2.serve.document_lookup import ResultText
from gr2.serve.judging_config import JudgingConfig, System
from gr2.serve.served_model import ServedModel
from gr2.serve.service import Service


@dataclass(frozen=True)
class QueryProgress:
    """A query, and how many of its documents have grades."""

    query: QueryToJudge
    own: int
    """By the judge who asks."""
    all: int
    """By anyone; a document counts once."""


@dataclass(frozen=True)
class PooledDocument:
    """A document to judge."""

    docno: str
    text: ResultText
    grade: int | None
    """The grade that the judge has given; None if there is none."""


class Judging:
    """Everything behind the routes of judging that needs no learning."""

    def __init__(self, service: Service, config: JudgingConfig) -> None:
        """Read the queries, and open or make the folder of judgements."""
        folder = config.judge
        if folder is None:
            raise ValueError("judging needs a folder of judgements")
        if service.documents.store is None:
            raise ValueError(f"{service.folder}: judging needs the documents, which the model folder lacks")
        self.service, self.config = service, config
        self.systems = _systems(service, config.pool)
        self.queries = [] if config.queries is None else read_query_list(config.queries)
        if self.queries and config.order == "disagreement":
            self.queries = by_disagreement(self.queries, self._all_rankings())
        grades = config_of(folder, config.grades, config.words)
        self.store = JudgementStore(folder, grades, docnos=service.model.docids.index)

    async def pool(self, query: str, judge: str) -> list[PooledDocument]:
        """The documents to judge for a query, mixed, with the grades of this judge."""
        rankings = await self._rankings(query)
        known = self.service.model.docids.index  # BM25 knows documents that the model does not cover
        docnos = [docno for docno in pool(query, rankings, self.config.depth) if docno in known]
        return await self.service.in_document_thread(self._described, query, docnos, judge)

    async def _rankings(self, query: str) -> list[list[str]]:
        """What each system finds for a query."""
        service, depth, model = self.service, self.config.depth, self.service.model
        asked = [(searcher, SearchRequest(query, depth)) for searcher in self._searchers(model)]
        results = await service.batcher.ask(asked) if asked else []
        found = [[model.docids.docnos[docid] for docid in result.docids] for result in results]
        if "bm25" in self.systems:
            ranking = await service.in_document_thread(service.documents.rank, query, depth, None)
            found.append([docno for docno, _ in ranking])
        return found

    def _all_rankings(self) -> list[dict[str, list[str]]]:
        """What each system finds for every query of the file; before the service has started."""
        texts, depth = {query.text: query.text for query in self.queries}, self.config.depth
        runs = [searcher.search_many(texts, depth) for searcher in self._searchers(self.service.model)]
        if self.service.documents.bm25 is not None and "bm25" in self.systems:
            runs.append(self.service.documents.bm25.search(texts, depth))
        return [{text: list(run.docnos(text)) for text in texts} for run in runs]

    def _searchers(self, model: ServedModel) -> list[Searcher]:
        both = {"model": model.searcher, "dense": model.dense}
        return [each for name, each in both.items() if name in self.systems and each is not None]

    def _described(self, query: str, docnos: list[str], judge: str) -> list[PooledDocument]:
        text = " ".join(query.split())
        grades = {
            each.docno: each.grade
            for each in self.current()
            if each.judge == judge.strip() and each.query == text
        }
        texts = self.service.documents.texts(query, docnos)
        return [PooledDocument(docno, texts.get(docno, ResultText()), grades.get(docno)) for docno in docnos]

    def current(self) -> list[Judgement]:
        """The judgements that count now, of this and of other processes."""
        self.store.refresh()
        return list(self.store.current().values())

    def progress(self, judge: str) -> list[QueryProgress]:
        """The queries of the file in their order, then others that somebody has judged."""
        own, everyone = dict[str, set[str]](), dict[str, set[str]]()
        qids: dict[str, str] = {}
        for each in self.current():
            qids.setdefault(each.query, each.qid)
            everyone.setdefault(each.query, set()).add(each.docno)
            if each.judge == judge.strip():
                own.setdefault(each.query, set()).add(each.docno)
        listed = {query.text for query in self.queries}
        typed = [QueryToJudge(text, qid) for text, qid in qids.items() if text not in listed]
        return [
            QueryProgress(query, len(own.get(query.text, ())), len(everyone.get(query.text, ())))
            for query in [*self.queries, *typed]
        ]


def _systems(service: Service, wanted: tuple[System, ...]) -> tuple[System, ...]:
    """The systems whose results are judged; an error if one was asked for and is not available."""
    missing: dict[System, str] = {}
    if service.documents.bm25 is None:
        missing["bm25"] = service.documents.bm25_note
    if service.model.dense is None:
        missing["dense"] = "the model has no look-ahead, whose vectors it needs"
    for name in wanted:
        if name in missing:
            raise ValueError(f"{name} cannot be pooled: {missing[name]}")
    return tuple(name for name in wanted or get_args(System) if name not in missing)
