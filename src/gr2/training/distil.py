"""Look-ahead with all its views → a generative model without any: documents are sequences of codes.

A document's score is the sum of its codes' logits s·⟨q̂, e_(t,c)⟩, and of the weights of some words that may
be kept beside them; there are no vectors, offsets or memory. Code vectors start as those of a residual
quantiser, where the score is the dense score of the reconstruction. They then learn the teacher's φ: the
cross-entropy of its softmax over the best documents of each query, which is convex in the code vectors, by
the regression of `regression`.
paper: not in it; soft grades are its future work.

Shapes: Q queries, N documents, M codes of a document, K codes to choose from at each place, W width.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from gr2.bm25 import BM25
from gr2.model.bounded_search import best_places
from gr2.model.config import LookAheadConfig
from gr2.model.look_ahead import LookAhead
from gr2.model.vector_storage import CodeVectors
from gr2.model.word_weights import WordWeights
from gr2.training.features import code_features
from gr2.training.regression import RegressionConfig, fit_offsets
from gr2.training.regression_loss import Judged

Floats = NDArray[np.float32]
BLOCK = 256
"""Queries whose scores exist at a time."""


@dataclass(frozen=True, kw_only=True)
class DistilConfig:
    """How code vectors learn from a teacher."""

    nearest: int = 64
    """Documents of each query, best by the teacher, whose weights are learned."""
    floor: float = 1e-3
    """The lowest weight that is kept, where the highest is 1."""
    decay: float = 0.1
    """λ, the weight of the squared distance to the quantiser's code vectors."""
    iterations: int = 40
    """Iterations of L-BFGS."""


def coded(plain: LookAhead, codes: NDArray[np.integer], vectors: Floats, *, words: int = 0) -> LookAhead:
    """Look-ahead with codes in place of all views.

    Args:
        plain: whose documents these are.
        codes: [N, M].
        vectors: [M·K, W] of each code.
        words: the best words of each document that are kept beside its codes; 0 keeps none.
    """
    places = codes.shape[1]
    if len(vectors) % places or not 0 <= codes.max() < min(256, len(vectors) // places):
        raise ValueError(
            f"expected {places} × K vectors for codes below K ≤ 256, found {len(vectors)} and codes up to "
            f"{codes.max()}"
        )
    stored = CodeVectors(codes.astype(np.uint8), vectors.reshape(places, -1, vectors.shape[1]))
    config, kept = LookAheadConfig(scale=plain.config.scale, words=0.0), None
    if words and isinstance(plain.bm25, BM25):
        kept = WordWeights.of(plain.bm25, words)
        config = replace(config, words=plain.config.words, bm25=plain.config.bm25, kept_words=words)
    return LookAhead(config, plain.docnos, stored, bm25=kept, word_map=plain.word_map, encoder=plain.encoder)


def distil(
    teacher: LookAhead,
    student: LookAhead,
    texts: Sequence[str],
    queries: Floats,
    config: DistilConfig | None = None,
    *,
    progress: Callable[[int, float], None] = lambda iteration, value: None,
) -> LookAhead:
    """The student with code vectors that order documents as the teacher does.

    Args:
        teacher: φ with all its views.
        student: from `coded`, over the same documents.
        texts: queries to learn from; they need no judgements.
        queries: [Q, W] their vectors.
        config: the number of documents, λ and iterations.
        progress: called with the number of evaluations and the value of the objective.
    """
    config = config or DistilConfig()
    stored = student.vectors
    if not isinstance(stored, CodeVectors) or student.docnos != teacher.docnos:
        raise ValueError("the student must have codes for the teacher's documents: see `coded`")
    features, base = code_features(stored), student.scores(texts, queries)
    places = {docno: place for place, docno in enumerate(teacher.docnos)}
    moved = fit_offsets(
        torch.from_numpy(queries),
        torch.from_numpy(base),
        Judged.of(soft_lists(teacher, texts, queries, config), places),
        scale=student.config.scale,
        config=RegressionConfig(
            variant="soft",
            own=False,
            shared="codes",
            negatives="all",
            decay=config.decay,
            iterations=config.iterations,
        ),
        features=features,
        progress=progress,
        of_features=True,
    ).numpy()
    vectors = stored.vectors + moved.reshape(stored.vectors.shape)
    return replace(student, vectors=replace(stored, vectors=vectors))


def soft_lists(
    teacher: LookAhead, texts: Sequence[str], queries: Floats, config: DistilConfig
) -> list[dict[str, float]]:
    """For each query, the weights exp(φ − max φ) of its best documents."""
    found = []
    for start in range(0, len(texts), BLOCK):
        part = slice(start, start + BLOCK)
        for row in teacher.scores(texts[part], queries[part]):
            best = best_places(row, config.nearest)
            weights = np.exp(row[best] - row[best[0]])
            found.append(
                {teacher.docnos[i]: float(w) for i, w in zip(best, weights, strict=True) if w >= config.floor}
            )
    return found
