"""A collection, its docids and an untrained model → the model's look-ahead, learned from judgements.

Documents are in the order of docids, so a document's place is its docid's index. What is learned, and whether
anything is, is chosen by `selection`; the choice and its table are returned beside the look-ahead.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gr2.data.collection import Collection, Document
from gr2.model.config import LookAheadConfig
from gr2.model.document_vectors import Pieces
from gr2.model.encoder import Vectors
from gr2.model.look_ahead import LookAhead
from gr2.model.query_encoder import QueryEncoder, WordEncoder, WordMap
from gr2.model.word_prior import word_space
from gr2.training.candidates import Candidate
from gr2.training.judged import TrainingSet, Unencoded
from gr2.training.learner import Learner
from gr2.training.selection import Selection, select

SPLITS = ("train", "dev")
"""Whose judgements may be learned from."""
LEAST = 2
"""Judged queries below which nothing is learned."""


def plain_views(
    documents: Sequence[Document],
    vectors: Mapping[str, tuple[Vectors, Pieces | None]],
    config: LookAheadConfig,
    *,
    word_map: WordMap | None = None,
) -> dict[str, LookAhead]:
    """φ with nothing learned for each kind of vectors; all share one index of words."""
    first, pieces = next(iter(vectors.values()))
    start = LookAhead.build(documents, first, config, pieces=pieces, word_map=word_map)
    return {kind: replace(start, vectors=rows, pieces=parts) for kind, (rows, parts) in vectors.items()}


def word_views(
    documents: Sequence[Document], table: Vectors, tokenizer: Any, config: LookAheadConfig, max_tokens: int
) -> tuple[dict[str, LookAhead], WordEncoder]:
    """φ for a backbone that is no text encoder: vectors are whitened means of word embeddings.

    Args:
        documents: in the order of docids.
        table: [V, W] the backbone's word embeddings.
        tokenizer: the backbone's.
        config: the weights to start from.
        max_tokens: tokens to which queries are truncated; documents are read as a whole.
    """
    rows = [tokenizer(document.contents)["input_ids"] for document in documents]
    space = word_space(table, rows, range(len(rows)), len(rows))
    known = WordMap(space.centre, space.turn)
    views = plain_views(documents, {"words": (space.vectors, None)}, config, word_map=known)
    return views, WordEncoder(table, tokenizer, known, max_tokens)


def judged_queries(collection: Collection, encoder: QueryEncoder) -> dict[str, Unencoded]:
    """The queries of `train` and `dev` that have a relevant document."""
    found = {}
    for split in SPLITS:
        judged = {
            qid: row
            for qid, row in collection.qrels.get(split, {}).items()
            if any(grade > 0 and docno in collection.docnos for docno, grade in row.items())
        }
        if len(judged) >= LEAST:
            texts = [collection.queries[qid] for qid in judged]
            found[split] = Unencoded(texts, list(judged.values()), encoder)
    return found


def learn_look_ahead(
    views: Mapping[str, LookAhead],
    splits: Mapping[str, TrainingSet | Unencoded],
    *,
    options: Sequence[Candidate] | None = None,
    variant: str = "gr2",
    seed: int = 0,
    progress: Callable[[str], None] = lambda line: None,
) -> tuple[LookAhead, Selection | None]:
    """Choose by cross-validation what is learned, and learn it from all judgements of the chosen split.

    Args:
        views: φ with nothing learned, by kind of vectors, the usual kind first.
        splits: judged queries; without any, the first view is returned as it is.
        options: the candidates to choose from; None is all.
        variant: the loss of the regression.
        seed: of the cross-validation.
        progress: called with a line for each step.
    """
    if not splits:
        return next(iter(views.values())), None
    found = select(views, splits, options=options, variant=variant, seed=seed, progress=progress)
    plain = views[found.vectors]
    plain = plain.with_config(replace(plain.config, words=found.words))
    if not found.chosen.learns:
        return plain, found
    progress(f"learning {found.chosen}")
    return Learner(plain).learn(splits[found.chosen.split].encoded(), found.chosen), found


def selection_facts(found: Selection | None) -> dict[str, Any]:
    """The selection as JSON values, for the model's provenance and the report."""
    if found is None:
        return {"chosen": "nothing", "rows": []}
    rows = [
        {
            "candidate": str(row.candidate),
            "random": round(row.random, 6),
            "disjoint": round(row.disjoint, 6),
            "gain": round(row.gain, 6),
            "error": round(row.error, 6) if np.isfinite(row.error) else None,
        }
        for row in found.rows
    ]
    weights = [
        {"vectors": kind, "words": words, "nDCG@20": round(mean, 6)} for kind, words, mean in found.weights
    ]
    return {
        "chosen": str(found.chosen),
        "vectors": found.vectors,
        "words": found.words,
        "measured": found.measured,
        "weights": weights,
        "rows": rows,
    }
