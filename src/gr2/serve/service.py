"""A model folder and its settings → answers to requests: apply the filter, search, add the documents' texts.

The model has one thread behind a bounded queue; documents, snippets and BM25 have another.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from gr2.data.collection import Document
from gr2.model.look_ahead import LookAhead
from gr2.model.searcher import SearchRequest, SearchResult
from gr2.model.similar import similar
from gr2.serve.batching import AnswerTimeout, Batcher, QueueFull
from gr2.serve.config import ServiceConfig, UnsupportedRequest
from gr2.serve.docid_path import Step
from gr2.serve.document_lookup import DocumentLookup
from gr2.serve.metrics import Metrics
from gr2.serve.replies import Ranked, answer_reply, ranking_reply
from gr2.serve.schema import AnswerReply, DocnoFilter, FieldFilter, HealthReply, RankedDocument
from gr2.serve.served_model import Asked, ServedModel, answer
from gr2.store import steady

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Extras:
    """What an answer has besides the model's ranking, if it is available."""

    bm25: bool = False
    dense: bool = False
    hybrid: bool = False
    explain: bool = False


NOTHING = Extras()


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
        self._version = version("gr2")  # is read from a file, for which there may be no descriptor later
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
        self,
        queries: Sequence[str],
        k: int,
        restriction: DocnoFilter | FieldFilter | None,
        extras: Extras = NOTHING,
    ) -> list[AnswerReply]:
        """One answer per query; raises `QueueFull`, `AnswerTimeout` or `UnsupportedRequest`."""
        model = self.model
        rivals = {
            "dense": model.dense if extras.dense else None,
            "hybrid": model.hybrid if extras.hybrid else None,
        }
        searchers = {name: searcher for name, searcher in rivals.items() if searcher is not None}
        most = self.config.queue // (1 + len(searchers))
        if len(queries) > most:
            raise UnsupportedRequest(f"query: this service accepts at most {most} queries")
        async with self._admitted_for(len(queries) * (1 + len(searchers))):
            allowed = None
            if restriction is not None:
                allowed = await self.in_document_thread(self._allowed, restriction)
            requests = [SearchRequest(query, k, allowed) for query in queries]
            asked = [
                (each, request) for each in (model.searcher, *searchers.values()) for request in requests
            ]
            results = await self.batcher.ask(asked)
            return await self.in_document_thread(
                self._replies, model, requests, results, [*searchers], extras
            )

    async def similar(self, docno: str, k: int) -> list[RankedDocument] | None:
        """The documents nearest to one by the model's vectors; None if it or the vectors are missing."""
        model = self.model
        if model.look_ahead is None or docno not in model.docids.index:
            return None
        async with self._admitted_for(1):
            return await self.in_document_thread(self._similar, model, model.look_ahead, docno, k)

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
            gr2=self._version,
            documents=len(self.model.docids),
            texts=self.documents.store is not None,
            bm25=self.documents.bm25 is not None,
            bm25_note=self.documents.bm25_note,
            dense=self.model.dense is not None,
            hybrid=self.model.hybrid is not None,
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

    @asynccontextmanager
    async def _admitted_for(self, count: int) -> AsyncIterator[None]:
        """Room for this many questions, within the timeout; raises `QueueFull` or `AnswerTimeout`."""
        # Requests that wait for a filter or a snippet count too, or that queue would be unbounded.
        room = self.config.queue + 2 * self.config.batch - self._admitted
        try:
            self._admitted += count
            if count > room:
                raise self.batcher.full()
            async with asyncio.timeout(self.config.timeout):
                yield
        except TimeoutError:
            self.metrics.turned_away.labels("late").inc()
            raise AnswerTimeout(self.config.timeout) from None
        except (QueueFull, AnswerTimeout) as error:
            self.metrics.turned_away.labels("full" if isinstance(error, QueueFull) else "late").inc()
            raise
        finally:
            self._admitted -= count

    def _replies(
        self,
        model: ServedModel,
        requests: Sequence[SearchRequest],
        results: Sequence[SearchResult],
        rivals: Sequence[str],
        extras: Extras,
    ) -> list[AnswerReply]:
        """`results` has the model's answers, then those of each rival."""
        found = []
        for row, request in enumerate(requests):
            beside: dict[str, Ranked] = {}
            for number, name in enumerate(rivals, 1):
                other = results[number * len(requests) + row]
                docnos = [model.docids.docnos[docid] for docid in other.docids]
                beside[name] = list(zip(docnos, other.scores, strict=True))
            if extras.bm25 and self.documents.bm25 is not None:
                beside["bm25"] = self._bm25_ranking(model, request)
            found.append(
                answer_reply(model, self.documents, request, results[row], beside, explain=extras.explain)
            )
        return found

    def _bm25_ranking(self, model: ServedModel, request: SearchRequest) -> Ranked:
        """The BM25 ranking under the request's filter."""
        allowed = None if request.allowed is None else [model.docids.docnos[i] for i in request.allowed]
        return self.documents.rank(request.text, request.k, allowed)

    def _similar(self, model: ServedModel, look_ahead: LookAhead, docno: str, k: int) -> list[RankedDocument]:
        near = similar(look_ahead, model.docids.index[docno], k)
        ranking = [(model.docids.docnos[place], cosine) for place, cosine in near]
        return ranking_reply(ranking, self.documents.texts("", [docno for docno, _ in ranking]))
