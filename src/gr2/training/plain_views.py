"""φ with nothing learned: which vectors it uses and how much words count, chosen on judged queries.

Compared are the kinds of vectors (of the leading text, the mean over pieces, or that and the best piece), the
weight of BM25, and how often titles are counted in it. The best combination is taken if it is better than the
usual one by more than a standard error, or by more than two where there are few queries. Counting titles
more often must be that much better by itself, because it also changes the terms along which offsets are
shared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gr2.data.collection import Document
from gr2.model.config import LookAheadConfig
from gr2.model.document_features import FEATURES, document_features
from gr2.model.document_vectors import Pieces
from gr2.model.encoder import Vectors
from gr2.model.look_ahead import LookAhead, Words, words_of
from gr2.model.query_encoder import WordMap
from gr2.model.static_encoder import StaticEncoder
from gr2.model.vector_storage import Stored
from gr2.training.judged import TrainingSet
from gr2.training.learner import Learner

WORDS = (0.5, 1.0)
TITLES = (1, 4)
"""How often titles are counted: once, or four times."""
FEW, ERRORS = 75, 2.0
"""On fewer queries than this, so many standard errors are asked for instead of one (docs/log.md)."""


@dataclass(frozen=True, order=True)
class Weights:
    """What φ is made of when nothing is learned."""

    vectors: str
    """The kind of vectors."""
    words: float
    """The weight of BM25."""
    titles: int = 1
    """How often BM25 counts a title."""
    prior: tuple[float, ...] = ()
    """How much each of `document_features` counts; empty if none does."""

    def __str__(self) -> str:
        """As printed with what was chosen."""
        titles = f", titles counted {self.titles} times" if self.titles != 1 else ""
        named = zip(FEATURES, self.prior, strict=False)
        prior = "".join(f", {name} {weight:+.2f}" for name, weight in named)
        return f"{self.vectors} vectors, words {self.words:g}{titles}{prior}"


@dataclass(frozen=True)
class PlainViews:
    """The parts of φ with nothing learned, from which a combination is chosen."""

    documents: Sequence[Document]
    vectors: Mapping[str, tuple[Vectors | Stored, Pieces | None]]
    """By kind, the usual one first."""
    config: LookAheadConfig
    word_map: WordMap | None = None
    encoder: StaticEncoder | None = None
    """What makes the vectors, if it is not the backbone."""
    _indexes: dict[int, Words] = field(default_factory=dict, repr=False)

    @classmethod
    def of_look_ahead(cls, known: LookAhead, documents: Sequence[Document], kind: str) -> "PlainViews":
        """What an existing look-ahead consists of, without what it learned; its weights are the usual ones.

        Args:
            known: the look-ahead.
            documents: its documents, in its order.
            kind: what to call its vectors.
        """
        how = known.config.bm25
        indexes = {} if known.bm25 is None else {how.title_weight: known.bm25}
        config = replace(known.config, gate=None, memory=0.0, prior=())
        vectors = {kind: (known.vectors, known.pieces)}
        return cls(documents, vectors, config, known.word_map, known.encoder, indexes)

    @cached_property
    def features(self) -> NDArray[np.float32]:
        """What every document has, whatever a query asks [N, F]."""
        return document_features(self.documents)

    @property
    def usual(self) -> Weights:
        """The combination that is kept unless another is clearly better."""
        config = self.config
        return Weights(next(iter(self.vectors)), config.words, config.bm25.title_weight, config.prior)

    def index(self, titles: int) -> Words:
        """The words of the documents, with titles counted so often; indexed once."""
        if titles not in self._indexes:
            how = replace(self.config.bm25, title_weight=titles)
            self._indexes[titles] = words_of(self.documents, replace(self.config, bm25=how))
        return self._indexes[titles]

    def at(self, weights: Weights) -> LookAhead:
        """φ with these weights, and without what a decoder adds."""
        rows, pieces = self.vectors[weights.vectors]
        bm25 = self.index(weights.titles) if weights.words else None
        how = replace(self.config.bm25, title_weight=weights.titles)
        config = replace(self.config, words=weights.words, bm25=how, residual=0.0, prior=weights.prior)
        plain = LookAhead.build(
            self.documents, rows, config, pieces=pieces, bm25=bm25, word_map=self.word_map
        )
        return replace(plain, encoder=self.encoder)


def choose_weights(
    views: PlainViews, queries: TrainingSet
) -> tuple[Weights, tuple[tuple[Weights, float], ...]]:
    """The best combination, if it is clearly better, and the nDCG@20 of all that were compared."""
    usual = views.usual
    learner = Learner(views.at(replace(usual, words=0.0)))
    titled = bool(usual.words) and any(document.title for document in views.documents)
    words = {
        titles: views.index(titles).scores(queries.texts)
        for titles in ({usual.titles, *TITLES} if titled else {usual.titles} if usual.words else ())
    }
    values: dict[Weights, list[float]] = {}
    for kind in views.vectors:
        dense = views.at(replace(usual, vectors=kind, words=0.0)).scores(queries.texts, queries.vectors)
        if not words:
            values[replace(usual, vectors=kind, words=0.0)] = learner.ndcg(dense, queries.judged)
        for titles, lexical in words.items():
            for weight in {usual.words, *WORDS}:
                found = learner.ndcg(dense + np.float32(weight) * lexical, queries.judged)
                values[replace(usual, vectors=kind, words=weight, titles=titles)] = found
    compared = {weights: float(np.mean(found)) for weights, found in sorted(values.items())}
    usually = [weights for weights in compared if weights.titles == usual.titles]
    best, simple = (max(some, key=lambda one: round(compared[one], 4)) for some in (compared, usually))
    if not _clearly_better(values[best], values[replace(best, titles=usual.titles)]):
        best = simple
    if not _clearly_better(values[best], values[usual]):
        best = usual
    return best, tuple(compared.items())


def _clearly_better(these: Sequence[float], those: Sequence[float]) -> bool:
    """Whether the mean gain, query by query, is more than its standard error; with few queries, than two."""
    gains = np.array(these) - np.array(those)
    errors = ERRORS if len(gains) < FEW else 1.0
    return bool(gains.mean() > errors * standard_error(gains[:, None])[0])


def standard_error(gains: NDArray[np.float64]) -> NDArray[np.float64]:
    """The standard error of the mean of each column [Q, C] → [C]; infinite for a single query.

    >>> standard_error(np.array([[1.0], [3.0]]))
    array([1.])
    """
    count, columns = gains.shape
    if count < 2:
        return np.full(columns, np.inf)
    error: NDArray[np.float64] = gains.std(0, ddof=1) / np.sqrt(count)
    return error
