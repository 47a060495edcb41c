"""An ir_datasets id → a collection.

`ir:beir/scifact` reads every split registered below it (train, dev, test, ...). An id with judgements of its
own, such as `ir:gov2/trec-tb-2004`, becomes the test split. Documents are streamed; nothing is copied.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gr2.data.collection import Collection, Document
from gr2.extras import extra

SPLITS = ("train", "dev", "validation", "valid", "test")
TEXT_FIELDS = ("text", "body", "abstract")
QUERY_FIELDS = ("title", "query", "text")


@dataclass(frozen=True)
class IrdsDocuments:
    """The documents of an ir_datasets id; each iteration streams them again."""

    id: str

    @cached_property
    def _dataset(self) -> Any:
        return load(self.id)

    def __iter__(self) -> Iterator[Document]:
        """Yield the documents in the data set's own order."""
        return (document_of(row) for row in explained(self.id, self._dataset.docs_iter))


def read_irds(id: str) -> Collection:
    """Read a collection by its ir_datasets id."""
    dataset = load(id)
    if not dataset.has_docs():
        raise ValueError(f"the ir_datasets id {id!r} has no documents")
    parts = {"test": dataset} if dataset.has_qrels() else _splits(id)
    return from_irds(id.replace("/", "-"), id, {split: [part] for split, part in parts.items()})


def from_irds(name: str, documents: str, splits: dict[str, list[Any]]) -> Collection:
    """A collection with the documents of one id and the queries and judgements of other ids per split."""
    queries: dict[str, str] = {}
    qrels: dict[str, dict[str, dict[str, int]]] = {split: {} for split in splits}
    for split, datasets in splits.items():
        for dataset in datasets:
            for query in explained(documents, dataset.queries_iter):
                queries[query.query_id] = _first(query, QUERY_FIELDS)
            for row in explained(documents, dataset.qrels_iter):
                qrels[split].setdefault(row.query_id, {})[row.doc_id] = int(row.relevance)
    return Collection(name=name, documents=IrdsDocuments(documents), queries=queries, qrels=qrels)


def load(id: str) -> Any:
    """Load an ir_datasets id; an unknown id raises a ValueError with an example."""
    with extra("data", "ids of ir_datasets need that package"):
        import ir_datasets
    try:
        return ir_datasets.load(id)
    except KeyError:
        raise ValueError(f"no ir_datasets id is called {id!r}; one looks like beir/scifact/test") from None


def document_of(row: Any) -> Document:
    """A document from any ir_datasets type: title, text and URL if they are strings."""
    url = _first(row, ("url",))
    if not any(isinstance(getattr(row, name, None), str) for name in TEXT_FIELDS):
        # web pages are bytes: ir_datasets extracts the text, with the title
        return Document(row.doc_id, "", row.default_text(), url)
    return Document(row.doc_id, _first(row, ("title",)), _first(row, TEXT_FIELDS), url)


def explained(id: str, read: Callable[[], Iterable[Any]]) -> Iterator[Any]:
    """Yield what is read; if the data is missing and cannot be downloaded, raise a readable error."""
    try:
        yield from read()
    except (OSError, RuntimeError) as error:
        raise ValueError(f"ir_datasets could not read {id!r}: {error}") from error


def _splits(id: str) -> dict[str, Any]:
    parts = {}
    for split in SPLITS:
        try:
            part = load(f"{id}/{split}")
        except ValueError:
            continue
        if part.has_qrels():
            parts[split] = part
    return parts


def _first(row: Any, names: Sequence[str]) -> str:
    values = (getattr(row, name, None) for name in names)
    return next((value for value in values if isinstance(value, str) and value), "")
