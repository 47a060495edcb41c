"""A collection, its docids and a tokenizer → training examples: token ids and docid indices."""

from collections.abc import Callable, Mapping, Sequence

from gr2.data.collection import Collection
from gr2.docids.docids import Docids
from gr2.training.augment import Entities, capitalised_entities, queries_of, texts_of
from gr2.training.batches import Examples
from gr2.training.config import AugmentConfig

Read = Callable[[Sequence[str]], list[list[int]]]
"""Texts → source tokens, including special tokens, truncated to the model's limit."""


def examples_of(
    collection: Collection,
    docids: Docids,
    read: Read,
    *,
    split: str = "train",
    augment: AugmentConfig | None = None,
    entities: Entities | None = None,
    pseudo_queries: Mapping[str, Sequence[str]] | None = None,
    seed: int = 0,
) -> Examples:
    """Training queries with their graded docids, then those made from documents, and the documents' texts.

    Without the split, only the documents are used: the zero-resource setting.

    Args:
        collection: documents, queries and judgements.
        docids: the docids of all documents of this collection.
        read: the model's tokenizer.
        split: the judgements to train on.
        augment: how many texts of each kind to use per document.
        entities: finds a document's entities; None uses capitalised spans, rarest first.
        pseudo_queries: docno → generated queries for the document.
        seed: seed for drawing entities.
    """
    _same(collection, docids)
    known = {
        qid: grades
        for qid, row in collection.qrels.get(split, {}).items()
        if (grades := _by_grade(row, docids))
    }
    queries, judged = [collection.queries[qid] for qid in known], list(known.values())
    top = max((grade for grades in judged for grade in grades), default=1)
    how, entities = augment or AugmentConfig(), entities or capitalised_entities(collection.documents)
    made = pseudo_queries or {}
    if unknown := [docno for docno in made if docno not in docids.index]:
        raise ValueError(f"pseudo-queries for a document that is not in {collection.name}: {unknown[0]!r}")
    texts: list[str] = []
    owners: list[int] = []
    for document in collection.documents:
        own, docid = made.get(document.docno, ()), docids.index[document.docno]
        found = texts_of(document, how, entities, seed=seed, pseudo_queries=own)
        texts += found
        owners += [docid] * len(found)
        extra = queries_of(document, how, entities, seed=seed, pseudo_queries=own)
        queries += extra
        judged += [{top: [docid]}] * len(extra)
    return Examples(
        queries=_in_chunks(read, queries),
        judged=judged,
        texts=_in_chunks(read, texts),
        text_docids=owners,
    )


def _by_grade(row: Mapping[str, int], docids: Docids) -> dict[int, list[int]]:
    grades: dict[int, list[int]] = {}
    for docno, grade in sorted(row.items()):
        if grade > 0 and docno not in docids.index:
            raise ValueError(f"a judgement names the document {docno!r}, which the collection does not have")
        if grade > 0:
            grades.setdefault(grade, []).append(docids.index[docno])
    return grades


def _same(collection: Collection, docids: Docids) -> None:
    """Check that the docids belong to this collection; with others, training would silently be wrong."""
    made_for = docids.about.get("fingerprint")
    if made_for is not None and made_for not in (collection.fingerprint, collection.whole):
        raise ValueError(
            f"these docids were made for a collection with the fingerprint {str(made_for)[:12]}, "
            f"but {collection.name} has {collection.fingerprint[:12]}: rebuild the docids"
        )
    missing = [docno for docno in collection.docnos if docno not in docids.index]
    if missing:
        raise ValueError(
            f"{len(missing)} documents of {collection.name} have no docid, for example {missing[0]!r}"
        )


def _in_chunks(read: Read, texts: Sequence[str], size: int = 10_000) -> list[list[int]]:
    return [row for start in range(0, len(texts), size) for row in read(texts[start : start + size])]
