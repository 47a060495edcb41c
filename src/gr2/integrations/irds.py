"""Collections as data sets of ir_datasets; importing this file registers `gr2/pydocs`.

A collection becomes an id with its documents, and an id below it for each split, with queries and judgements:
`gr2/pydocs/test`. Nothing is read before it is used.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from gr2.data.collection import Collection
from gr2.data.pydocs import SPLITS, pydocs
from gr2.extras import extra

with extra("data", "these data sets need ir_datasets"):
    import ir_datasets
    from ir_datasets.datasets.base import Dataset
    from ir_datasets.formats import BaseDocs, BaseQrels, BaseQueries, GenericQuery, TrecQrel
    from ir_datasets.indices import Docstore


class Doc(NamedTuple):
    """A document, with the field names of ir_datasets."""

    doc_id: str
    title: str
    text: str
    url: str

    def default_text(self) -> str:
        """Title and text."""
        return f"{self.title} {self.text}".strip()


def register(id: str, read: Callable[[], Collection], splits: Sequence[str]) -> None:
    """Register a collection and its splits.

    Args:
        id: The id of the documents, such as `gr2/shop`.
        read: Reads the collection, when it is first used.
        splits: Its splits; each becomes an id below that of the documents.
    """
    once = cache(read)
    documents = _Docs(id, once)
    ir_datasets.registry.register(id, Dataset(documents))
    for split in splits:
        judged = (_Queries(id, once, split), _Qrels(once, split))
        ir_datasets.registry.register(f"{id}/{split}", Dataset(documents, *judged))


class _Docs(BaseDocs):
    def __init__(self, id: str, read: Callable[[], Collection]) -> None:
        self._id, self._read, self._store = id, read, _Store(self.docs_iter)

    def docs_iter(self) -> Iterator[Doc]:
        return (Doc(docno, title, text, url) for docno, title, text, url in self._read().documents)

    def docs_count(self) -> int:
        return len(self._read().docnos)

    def docs_store(self, *args: Any, **options: Any) -> "_Store":
        return self._store

    def docs_cls(self) -> type[Doc]:
        return Doc

    def docs_namespace(self) -> str:
        return self._id


class _Store(Docstore):
    """Looks documents up by one pass over them; what was asked for keeps the order of asking."""

    def __init__(self, read: Callable[[], Iterable[Doc]]) -> None:
        super().__init__(Doc)
        self._all = cache(lambda: {doc.doc_id: doc for doc in read()})

    def get_many_iter(self, doc_ids: Iterable[str]) -> Iterator[Doc]:
        return (self._all()[doc_id] for doc_id in doc_ids if doc_id in self._all())


class _Queries(BaseQueries):
    def __init__(self, id: str, read: Callable[[], Collection], split: str) -> None:
        self._id, self._read, self._split = id, read, split

    def queries_iter(self) -> Iterator[GenericQuery]:
        found = self._read()
        return (GenericQuery(qid, found.queries[qid]) for qid in found.split(self._split))

    def queries_namespace(self) -> str:
        return self._id


class _Qrels(BaseQrels):
    def __init__(self, read: Callable[[], Collection], split: str) -> None:
        self._read, self._split = read, split

    def qrels_iter(self) -> Iterator[TrecQrel]:
        for qid, grades in self._read().split(self._split).items():
            for docno, grade in grades.items():
                yield TrecQrel(qid, docno, grade, "0")

    def qrels_defs(self) -> dict[int, str]:
        highest = self._read().grades
        return {0: "not relevant"} | {grade: f"grade {grade} of {highest}" for grade in range(1, highest + 1)}

    def qrels_cls(self) -> Any:
        return TrecQrel


register("gr2/pydocs", pydocs, (*SPLITS, "sentences"))
