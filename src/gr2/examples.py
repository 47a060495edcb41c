"""A collection, its docids and a tokenizer → what training reads: token ids and docid indices."""

from collections.abc import Callable, Mapping, Sequence

from gr2.augment import AugmentConfig, Entities, capitalised_entities, texts_of
from gr2.batches import Examples
from gr2.data import Collection
from gr2.docids import Docids

Read = Callable[[Sequence[str]], list[list[int]]]
"""Texts → source tokens, special tokens included, cut at the model's limit."""


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
    """Training queries with their graded docids, and the texts that stand for each document.

    A collection without the split is indexed only, from its documents: the zero-resource setting.

    Args:
        collection: documents, queries and judgements.
        docids: of every document of this very collection.
        read: the model's tokenizer.
        split: whose judgements are learned.
        augment: how many texts of each kind stand for a document.
        entities: a document's entities, such as a tagger finds them; None is capitalised spans by rarity.
        pseudo_queries: docno → queries that a model made for the document.
        seed: of the entities that are drawn.
    """
    _same(collection, docids)
    judged_queries = [
        (qid, grades)
        for qid, row in collection.qrels.get(split, {}).items()
        if (grades := _by_grade(row, docids))
    ]
    entities = entities or capitalised_entities(collection.documents)
    made = pseudo_queries or {}
    if unknown := [docno for docno in made if docno not in docids.index]:
        raise ValueError(f"pseudo-queries of a document that {collection.name} does not have: {unknown[0]!r}")
    texts: list[str] = []
    owners: list[int] = []
    for document in collection.documents:
        own = made.get(document.docno, ())
        found = texts_of(document, augment or AugmentConfig(), entities, seed=seed, pseudo_queries=own)
        texts += found
        owners += [docids.index[document.docno]] * len(found)
    return Examples(
        queries=_in_chunks(read, [collection.queries[qid] for qid, _ in judged_queries]),
        judged=[grades for _, grades in judged_queries],
        texts=_in_chunks(read, texts),
        text_docids=owners,
    )


def _by_grade(row: Mapping[str, int], docids: Docids) -> dict[int, list[int]]:
    grades: dict[int, list[int]] = {}
    for docno, grade in sorted(row.items()):
        if grade > 0:
            grades.setdefault(grade, []).append(docids.index[docno])
    return grades


def _same(collection: Collection, docids: Docids) -> None:
    """Docids belong to one collection; with those of another, training would teach nonsense in silence."""
    made_for = docids.about.get("fingerprint")
    if made_for is not None and made_for != collection.fingerprint:
        raise ValueError(
            f"these docids were made for a collection with the fingerprint {str(made_for)[:12]}, "
            f"but {collection.name} has {collection.fingerprint[:12]}: build them again"
        )
    missing = [docno for docno in collection.docnos if docno not in docids.index]
    if missing:
        raise ValueError(
            f"{len(missing)} documents of {collection.name} have no docid, for example {missing[0]!r}"
        )


def _in_chunks(read: Read, texts: Sequence[str], size: int = 10_000) -> list[list[int]]:
    return [row for start in range(0, len(texts), size) for row in read(texts[start : start + size])]
