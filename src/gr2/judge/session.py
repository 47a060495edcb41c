"""Queries, their pools and a judge → what to judge now, one document after the other.

A session begins after the last document that the judge has graded, so judging continues where it stopped; if
there is nothing left from there on, it begins with the first document that has no grade. Every grade is on
disk when `grade` returns. A session knows nothing of screens and keys.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gr2.judge.judgements import Judgement
from gr2.judge.query_list import QueryToJudge
from gr2.judge.store import JudgementStore

Pool = Callable[[QueryToJudge], Sequence[str]]
"""The docnos to judge for a query; asked once for each query, when it is needed."""


@dataclass(frozen=True)
class Place:
    """A document to judge, with its numbers from 1."""

    query: QueryToJudge
    docno: str
    query_number: int
    document_number: int
    documents: int
    """How many documents the query has."""


class Session:
    """Where one judge is."""

    def __init__(
        self, store: JudgementStore, judge: str, queries: Sequence[QueryToJudge], pool: Pool
    ) -> None:
        """Find the first document to judge."""
        self.store, self.judge, self.queries = store, judge, queries
        self._pool, self._pools = pool, dict[str, Sequence[str]]()
        graded = self.graded()
        self.place = self._seek(*self._after(graded), graded) or self._seek(0, 0, graded)
        """The document to judge; None at the end."""

    def graded(self) -> set[tuple[str, str]]:
        """The query and docno of everything that the judge has graded."""
        current = self.store.current().values()
        return {(each.query, each.docno) for each in current if each.judge == self.judge}

    def grade(self, grade: int) -> Judgement:
        """Keep a grade of the present document and go to the next one."""
        if self.place is None:
            raise ValueError("there is no document left to judge")
        query = self.place.query
        given = Judgement(query.text, self.place.docno, grade, self.judge, qid=query.qid)
        [kept] = self.store.append([given])
        self.skip()
        return kept

    def skip(self) -> None:
        """Go to the next document without a grade."""
        if self.place is not None:
            self._go(self.place.query_number - 1, self.place.document_number)

    def next_query(self) -> None:
        """Go to the next query that has a document without a grade."""
        if self.place is not None:
            self._go(self.place.query_number, 0)

    def undo(self) -> Judgement:
        """Retract the judge's latest grade and go back to its document, if it is among those to judge."""
        retracted = self.store.undo(self.judge)
        for number, query in enumerate(self.queries):
            if query.text == retracted.query and retracted.docno in self._documents(query):
                self.place = self._at(number, self._documents(query).index(retracted.docno))
        return retracted

    def _go(self, query: int, document: int) -> None:
        self.place = self._seek(query, document, self.graded())

    def _seek(self, query: int, document: int, graded: set[tuple[str, str]]) -> Place | None:
        """The first place without a grade, from a place (numbers from 0) on."""
        for number in range(query, len(self.queries)):
            text, docnos = self.queries[number].text, self._documents(self.queries[number])
            for at in range(document if number == query else 0, len(docnos)):
                if (text, docnos[at]) not in graded:
                    return self._at(number, at)
        return None

    def _after(self, graded: set[tuple[str, str]]) -> tuple[int, int]:
        """The query and document (from 0) behind the last graded one; 0, 0 if nothing is graded."""
        known = {text for text, _ in graded}
        for number in reversed(range(len(self.queries))):
            query = self.queries[number]
            if query.text in known:  # so that only the pools of judged queries are asked for
                docnos = self._documents(query)
                places = [at for at, docno in enumerate(docnos, 1) if (query.text, docno) in graded]
                if places:
                    return number, places[-1]
        return 0, 0

    def _at(self, number: int, at: int) -> Place:
        query, docnos = self.queries[number], self._documents(self.queries[number])
        return Place(query, docnos[at], number + 1, at + 1, len(docnos))

    def _documents(self, query: QueryToJudge) -> Sequence[str]:
        if query.text not in self._pools:
            self._pools[query.text] = self._pool(query)
        return self._pools[query.text]
