"""A collection, its docids and an untrained model → the model's look-ahead, learned from judgements.

Documents are in the order of docids, so a document's place is its docid's index. What is learned, and whether
anything is, is chosen by `selection`; the choice and its table are returned beside the look-ahead.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from gr2.data.collection import Collection, Document
from gr2.docids.codes import KEPT_WORDS
from gr2.docids.docids import Docids
from gr2.judge.judged_queries import JudgedQueries
from gr2.model.codes_words import code_vectors
from gr2.model.config import LookAheadConfig
from gr2.model.encoder import Vectors
from gr2.model.look_ahead import LookAhead
from gr2.model.query_encoder import QueryEncoder, WordEncoder, WordMap
from gr2.model.word_prior import word_space
from gr2.training.candidates import Candidate
from gr2.training.config import LookAheadTraining
from gr2.training.judged import TrainingSet, Unencoded
from gr2.training.learner import Learner
from gr2.training.plain_views import PlainViews
from gr2.training.selection import Selection, select

SPLITS = ("train", "dev")
"""Whose judgements may be learned from."""
LEAST = 2
"""Judged queries below which nothing is learned."""


def word_views(
    documents: Sequence[Document], table: Vectors, tokenizer: Any, config: LookAheadConfig, max_tokens: int
) -> tuple[PlainViews, WordEncoder]:
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
    views = PlainViews(documents, {"words": (space.vectors, None)}, config, known)
    return views, WordEncoder(table, tokenizer, known, max_tokens)


def code_views(
    documents: Sequence[Document], docids: Docids, how: LookAheadTraining, encoder: str
) -> PlainViews:
    """φ for docids of the scheme codes-words: codes and the best words, without a vector per document.

    Args:
        documents: in the order of docids.
        docids: with the quantiser's codebooks.
        how: the weights to start from.
        encoder: the checkpoint that encodes queries.
    """
    made, name = str(docids.about.get("encoder")), Path(encoder).name
    if made != name:
        raise ValueError(
            f"the codes were made from vectors of {made}, but queries are encoded by {name}: make both the "
            "same (--docids.encoder, --look-ahead.encoder)"
        )
    config = replace(how.weights, kept_words=int(docids.about[KEPT_WORDS]))
    return PlainViews(documents, {"codes": (code_vectors(docids), None)}, config)


def judged_queries(collection: Collection, encoder: QueryEncoder) -> dict[str, Unencoded]:
    """The queries of `train` and `dev` that have a relevant document."""
    found = {}
    for split, judged in _judged(collection).items():
        texts = [collection.queries[qid] for qid in judged]
        found[split] = Unencoded(texts, list(judged.values()), encoder)
    return found


def learned_from(collection: Collection, found: Selection | None) -> JudgedQueries:
    """The judgements that look-ahead learned from; if it learned nothing, those it was chosen on."""
    if found is None:
        return JudgedQueries({}, {})
    qrels = _judged(collection)[found.chosen.split if found.chosen.learns else found.measured]
    return JudgedQueries({qid: collection.queries[qid] for qid in qrels}, qrels)


def has_judged_queries(collection: Collection) -> bool:
    """Whether there is anything to learn from."""
    return bool(_judged(collection))


def _judged(collection: Collection) -> dict[str, dict[str, Mapping[str, int]]]:
    """By split, the judgements of queries with a relevant document; splits with too few are left out."""
    found = {
        split: {
            qid: row
            for qid, row in collection.qrels.get(split, {}).items()
            if any(grade > 0 and docno in collection.docnos for docno, grade in row.items())
        }
        for split in SPLITS
    }
    return {split: judged for split, judged in found.items() if len(judged) >= LEAST}


def learn_look_ahead(
    views: PlainViews,
    splits: Mapping[str, TrainingSet | Unencoded],
    *,
    options: Sequence[Candidate] | None = None,
    variant: str = "gr2",
    seed: int = 0,
    progress: Callable[[str], None] = lambda line: None,
) -> tuple[LookAhead, Selection | None]:
    """Choose by cross-validation what is learned, and learn it from all judgements of the chosen split.

    Args:
        views: φ with nothing learned.
        splits: judged queries; without any, φ with the usual weights is returned.
        options: the candidates to choose from; None is all.
        variant: the loss of the regression.
        seed: of the cross-validation.
        progress: called with a line for each step.
    """
    if not splits:
        return views.at(views.usual), None
    found = select(views, splits, options=options, variant=variant, seed=seed, progress=progress)
    plain = views.at(found.weights)
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
    compared = [{**asdict(one), "nDCG@20": round(mean, 6)} for one, mean in found.compared]
    return {
        "chosen": str(found.chosen),
        "candidate": asdict(found.chosen),
        **asdict(found.weights),
        "measured": found.measured,
        "weights": str(found.weights),
        "compared": compared,
        "rows": rows,
    }
