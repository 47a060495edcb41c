"""A model folder and its settings → answers to requests: apply the filter, search, add the documents' texts.

The model has one thread behind a bounded queue; documents, snippets and BM25 have another.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from gr2.data.collection import Document
from gr2.model.searcher import SearchRequest, SearchResult
from gr2.serve.batching import AnswerTimeout, Batcher, QueueFull
from gr2.serve.config import ServiceConfig, UnsupportedRequest
from gr2.serve.docid_path import Step
from gr2.serve.document_lookup import DocumentLookup, ResultText
from gr2.serve.metrics import Metrics
from gr2.serve.schema import (
    AnswerReply,
    DocnoFilter,
    FieldFilter,
    HealthReply,
    Hit,
    RankedDocument,
    SnippetPart,
    StepReply,
)
from gr2.serve.served_model import Asked, ServedModel, answer
from gr2.store import steady

T = TypeVar("T")


class Service:
    """Everything behind the HTTP routes."""

    def __init__(self, folder: Path, config: ServiceConfig) -> None:
        """Load and verify the folder."""
        self.folder, self.config, self.metrics = folder, config, Metrics()
        self.model, self.documents = steady(
            folder, lambda folder: (ServedModel(folder, config), DocumentLookup(folder, config))
        )
        """The present model, which a request reads once, so that one model answers it; and its documents."""
        self.batcher: Batcher[Asked, SearchResult] = Batcher(
            answer,
            queue=config.queue,
            batch=config.batch,
            gather=config.gather_ms / 1000,
            timeout=config.timeout,
            on_batch=self.metrics.record_batch,
        )
        self._admitted = 0  # queries of the requests being processed
        self._document_thread = ThreadPoolExecutor(1, thread_name_prefix="documents")
        self.metrics.queue_queries.set_function(lambda: self.batcher.waiting)

    async def start(self) -> None:
        """Start the worker in the running event loop."""
        await self.batcher.start()

    async def stop(self) -> None:
        """Answer the queued queries, then end the threads."""
        await self.batcher.stop()
        await asyncio.to_thread(self._document_thread.shutdown)
        self.documents.close()

    async def reload(self) -> None:
        """Load the folder again and answer from then on with what is in it now.

        Requests that have begun are answered by the model that they began with. If the folder cannot be read
        or has other documents, a ValueError is raised and the present model stays.
        """
        model = await asyncio.to_thread(ServedModel, self.folder, self.config)
        if model.docids.docnos != self.model.docids.docnos:
            raise ValueError(f"{self.folder}: has other documents than at the start; restart the service")
        self.model = model

    async def search(
        self, queries: Sequence[str], k: int, restriction: DocnoFilter | FieldFilter | None, bm25: bool
    ) -> list[AnswerReply]:
        """One answer per query; raises `QueueFull`, `AnswerTimeout` or `UnsupportedRequest`."""
        if len(queries) > self.config.queue:
            raise UnsupportedRequest(f"query: this service accepts at most {self.config.queue} queries")
        # Requests that wait for a filter or a snippet count too, or that queue would be unbounded.
        room = self.config.queue + 2 * self.config.batch - self._admitted
        try:
            self._admitted += len(queries)
            if len(queries) > room:
                raise self.batcher.full()
            async with asyncio.timeout(self.config.timeout):
                allowed, model = None, self.model
                if restriction is not None:
                    allowed = await self.in_document_thread(self._allowed, restriction)
                requests = [SearchRequest(query, k, allowed) for query in queries]
                results = await self.batcher.ask([(model.searcher, request) for request in requests])
                return await self.in_document_thread(self._replies, model, requests, results, bm25)
        except TimeoutError:
            self.metrics.turned_away.labels("late").inc()
            raise AnswerTimeout(self.config.timeout) from None
        except (QueueFull, AnswerTimeout) as error:
            self.metrics.turned_away.labels("full" if isinstance(error, QueueFull) else "late").inc()
            raise
        finally:
            self._admitted -= len(queries)

    async def document(self, docno: str) -> tuple[Document, str, tuple[Step, ...]] | None:
        """A document with its docid and path; None if it is unknown."""
        document = await self.in_document_thread(self.documents.document, docno)
        if document is None:
            return None
        model = self.model
        index = model.docids.index.get(docno)
        if index is None:
            return document, "", ()
        return document, model.docids.texts[index], model.paths.path(index)

    def health(self, *, judging: bool = False) -> HealthReply:
        """What is served, and what it supports."""
        return HealthReply(
            status="ok",
            model=self.folder.resolve().name,
            collection=str(self.model.provenance.get("collection", "")),
            gr2=version("gr2"),
            documents=len(self.model.docids),
            texts=self.documents.store is not None,
            bm25=self.documents.bm25 is not None,
            bm25_note=self.documents.bm25_note,
            judging=judging,
            waiting=self.batcher.waiting,
        )

    async def in_document_thread(self, work: Callable[..., T], *arguments: object) -> T:
        """Call something in the thread of documents, snippets and BM25."""
        return await asyncio.get_running_loop().run_in_executor(self._document_thread, work, *arguments)

    def _allowed(self, restriction: DocnoFilter | FieldFilter) -> tuple[int, ...] | None:
        """The docid indices that a filter allows, ascending."""
        if isinstance(restriction, DocnoFilter):
            return self.model.searcher.indices(restriction.docnos)
        return self.model.searcher.indices(self.documents.matching(restriction.field, restriction.contains))

    def _replies(
        self,
        model: ServedModel,
        requests: Sequence[SearchRequest],
        results: Sequence[SearchResult],
        bm25: bool,
    ) -> list[AnswerReply]:
        pairs = zip(requests, results, strict=True)
        return [self._reply(model, request, result, bm25) for request, result in pairs]

    def _reply(
        self, model: ServedModel, request: SearchRequest, result: SearchResult, bm25: bool
    ) -> AnswerReply:
        docnos = [model.docids.docnos[docid] for docid in result.docids]
        baseline = self._bm25_ranking(model, request) if bm25 else None
        texts = self.documents.texts(request.text, {*docnos, *(docno for docno, _ in baseline or ())})
        hits = [
            Hit(
                **_ranked(rank, docno, score, texts).__dict__,
                docid=model.docids.texts[docid],
                path=steps(model.paths.path(docid)),
                views={name: round(value, 3) for name, value in views.items()},
            )
            for rank, (docid, docno, score, views) in enumerate(
                zip(result.docids, docnos, result.scores, result.views or [{}] * len(docnos), strict=True), 1
            )
        ]
        return AnswerReply(
            query=request.text,
            results=hits,
            proven=result.proven,
            cut=result.truncated,
            allowed=None if request.allowed is None else len(request.allowed),
            bm25=None
            if baseline is None
            else [_ranked(r, d, s, texts) for r, (d, s) in enumerate(baseline, 1)],
        )

    def _bm25_ranking(self, model: ServedModel, request: SearchRequest) -> list[tuple[str, float]] | None:
        """The BM25 ranking under the request's filter; None without an index."""
        if self.documents.bm25 is None:
            return None
        allowed = None if request.allowed is None else [model.docids.docnos[i] for i in request.allowed]
        return self.documents.rank(request.text, request.k, allowed)


def steps(path: Sequence[Step]) -> list[StepReply]:
    """A path as the HTTP API returns it."""
    return [StepReply(text=step.text, choices=step.choices) for step in path]


def _ranked(rank: int, docno: str, score: float, texts: dict[str, ResultText]) -> RankedDocument:
    known = texts.get(docno, ResultText())
    parts = [SnippetPart(text=text, marked=marked) for text, marked in known.snippet or ()]
    return RankedDocument(
        rank=rank, docno=docno, score=score, title=known.title, url=known.url, snippet=parts
    )
