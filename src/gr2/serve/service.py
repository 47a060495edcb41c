"""A model folder and a configuration → answers to requests: filter, model, documents, in this order.

The model has a thread of its own behind a bounded queue; documents, snippets and BM25 have another. This file
knows no HTTP.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from gr2.data import Document
from gr2.model import GR2
from gr2.serve.batching import Batcher, Full, Late
from gr2.serve.config import Impossible, ServiceConfig
from gr2.serve.engine import Asked, Engine, Found, Step
from gr2.serve.metrics import Metrics
from gr2.serve.schema import AnswerReply, HealthReply, Hit, OnlyDocnos, OnlyField, Piece, Shown, StepReply
from gr2.serve.shelf import Dressed, Shelf

T = TypeVar("T")


class Service:
    """Everything behind the routes."""

    def __init__(self, folder: Path, config: ServiceConfig) -> None:
        """Read the folder, refused if a byte changed or it is of another version; answer a first query."""
        self.folder, self.config, self.metrics = folder, config, Metrics()
        model = GR2.from_pretrained(folder)
        self.docids, self.provenance = model.docids, model.provenance
        self.engine, self.shelf = Engine(model), Shelf(folder, config)
        self.engine.search([Asked("a first query, so that nobody waits for what is made once", 1, (0,))])
        self.engine.search([Asked("another", 1)])
        self.batcher: Batcher[Asked, Found] = Batcher(
            self.engine.search,
            queue=config.queue,
            batch=config.batch,
            gather=config.gather_ms / 1000,
            timeout=config.timeout,
            noted=self.metrics.noted,
        )
        self._inside = 0  # queries of requests under way
        self._side = ThreadPoolExecutor(1, thread_name_prefix="documents")
        self.metrics.gauges["gr2_queue_queries"] = ("Queries that wait.", lambda: self.batcher.waiting)

    async def start(self) -> None:
        """Begin to work, in the running loop."""
        await self.batcher.start()

    async def stop(self) -> None:
        """Answer what waits, then end the threads."""
        await self.batcher.stop()
        await asyncio.to_thread(self._side.shutdown)
        self.shelf.close()

    async def search(
        self, queries: Sequence[str], k: int, narrow: OnlyDocnos | OnlyField | None, bm25: bool
    ) -> list[AnswerReply]:
        """An answer for each query; `Full` or `Late` if that takes too much, `Impossible` if it cannot be."""
        if len(queries) > self.config.queue:
            raise Impossible(f"query: this service takes at most {self.config.queue} queries of a request")
        # Whoever waits for a filter or a snippet takes room too, else these queues would have no end.
        room = self.config.queue + 2 * self.config.batch - self._inside
        try:
            self._inside += len(queries)
            if len(queries) > room:
                raise self.batcher.full()
            async with asyncio.timeout(self.config.timeout):
                allowed = await self._aside(self._allowed, narrow) if narrow is not None else None
                asked = [Asked(query, k, allowed) for query in queries]
                found = await self.batcher.ask(asked)
                return await self._aside(self._replies, asked, found, bm25)
        except TimeoutError:
            self.metrics.turned_away.add("late")
            raise Late(f"there was no answer within {self.config.timeout:g} s") from None
        except (Full, Late) as error:
            self.metrics.turned_away.add("full" if isinstance(error, Full) else "late")
            raise
        finally:
            self._inside -= len(queries)

    async def document(self, docno: str) -> tuple[Document, str, tuple[Step, ...]] | None:
        """A document with its docid and path; None if it is not here."""
        document = await self._aside(self.shelf.document, docno)
        if document is None:
            return None
        index = self.docids.index.get(docno)
        if index is None:
            return document, "", ()
        return document, self.docids.texts[index], self.engine.path(index)

    def health(self) -> HealthReply:
        """What is served."""
        return HealthReply(
            status="ok",
            model=self.folder.resolve().name,
            collection=str(self.provenance.get("collection", "")),
            gr2=version("gr2"),
            documents=len(self.docids),
            texts=self.shelf.store is not None,
            bm25=self.shelf.bm25 is not None,
            bm25_note=self.shelf.no_bm25,
            waiting=self.batcher.waiting,
        )

    async def _aside(self, work: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._side, work, *arguments)

    def _allowed(self, narrow: OnlyDocnos | OnlyField) -> tuple[int, ...]:
        """The docid indices that a filter allows, ascending."""
        if isinstance(narrow, OnlyDocnos):
            docnos = narrow.docnos
        else:
            docnos = self.shelf.matching(narrow.field, narrow.contains)
        index = self.docids.index
        return tuple(sorted({index[docno] for docno in docnos if docno in index}))

    def _replies(self, asked: Sequence[Asked], found: Sequence[Found], bm25: bool) -> list[AnswerReply]:
        return [self._reply(one, answer, bm25) for one, answer in zip(asked, found, strict=True)]

    def _reply(self, asked: Asked, found: Found, bm25: bool) -> AnswerReply:
        docnos = [self.docids.docnos[docid] for docid in found.docids]
        beside = None
        if bm25 and self.shelf.bm25 is not None:
            names = None if asked.allowed is None else [self.docids.docnos[i] for i in asked.allowed]
            beside = self.shelf.rank(asked.text, asked.k, names)
        dressed = self.shelf.dress(asked.text, {*docnos, *(docno for docno, _ in beside or ())})
        hits = [
            Hit(
                **_shown(rank, docno, score, dressed).__dict__,
                docid=self.docids.texts[docid],
                path=steps(self.engine.path(docid)),
            )
            for rank, (docid, docno, score) in enumerate(
                zip(found.docids, docnos, found.scores, strict=True), 1
            )
        ]
        return AnswerReply(
            query=asked.text,
            results=hits,
            proven=found.proven,
            cut=found.cut,
            allowed=None if asked.allowed is None else len(asked.allowed),
            bm25=None if beside is None else [_shown(r, d, s, dressed) for r, (d, s) in enumerate(beside, 1)],
        )


def steps(path: Sequence[Step]) -> list[StepReply]:
    """A path as it goes over the wire."""
    return [StepReply(text=step.text, choices=step.choices) for step in path]


def _shown(rank: int, docno: str, score: float, dressed: dict[str, Dressed]) -> Shown:
    known = dressed.get(docno, Dressed())
    pieces = [Piece(text=text, marked=marked) for text, marked in known.snippet or ()]
    return Shown(rank=rank, docno=docno, score=score, title=known.title, url=known.url, snippet=pieces)
