"""Documents that nobody judged → pseudo-queries with soft grades from a teacher. paper: not in it.

A pseudo-query is a document's title, or a piece of its text, whose vector exists already. A teacher scores
its own document and the best documents of φ₀ for it; the softmax of these scores, divided by its highest
value, gives the weights that the loss `soft` of the regression takes. The teacher is φ₀ itself, or any
function of a query and texts, such as `CrossEncoder.scores`.

Shapes: Q pseudo-queries, N documents, W width.
"""

from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gr2.data.collection import Document
from gr2.model.bounded_search import best_places
from gr2.model.config import VectorConfig
from gr2.model.document_vectors import Pieces, encoded_texts
from gr2.model.look_ahead import LookAhead
from gr2.model.query_encoder import QueryEncoder
from gr2.model.vector_storage import FullVectors
from gr2.training.judged import TrainingSet

Floats = NDArray[np.float32]
Teacher = Callable[[str, Sequence[str]], ArrayLike]
"""A query and texts → a score of each text; the difference of two scores is that of their log-odds."""
BLOCK = 64
"""Pseudo-queries whose scores exist at a time."""


@dataclass(frozen=True, kw_only=True)
class PseudoQueryConfig:
    """How many pseudo-queries there are, and how they are graded."""

    most: int = 1000
    """Pseudo-queries at most, a seeded sample: one of every document before a second one of any."""
    nearest: int = 10
    """Documents of highest φ₀ that are graded beside the pseudo-query's own."""
    temperature: float = 1.0
    """Of the softmax of the teacher's scores; the higher, the more equal are the weights."""
    floor: float = 0.1
    """The lowest weight that is kept, where the highest is 1."""
    seed: int = 0
    """Of the sample."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if min(self.most, self.nearest) < 0 or self.temperature <= 0 or not 0 < self.floor <= 1:
            raise ValueError(
                "expected most and nearest of at least 0, a temperature above 0 and a floor above 0 and at "
                f"most 1, not {self}"
            )


@dataclass(frozen=True)
class PseudoQueries:
    """Texts of documents in place of queries, not graded yet."""

    texts: Sequence[str]
    vectors: Floats
    """[Q, W] their unit vectors."""
    owners: Sequence[int]
    """The place of the document that each is taken from."""


def title_queries(
    documents: Sequence[Document],
    encoder: QueryEncoder,
    config: PseudoQueryConfig,
    *,
    skip: Container[str] = (),
) -> PseudoQueries:
    """Titles as pseudo-queries; only those of the sample are encoded.

    Args:
        documents: in the order of their places.
        encoder: of queries.
        config: the size and the seed of the sample.
        skip: docnos to leave out, such as those of judged documents.
    """
    owners = [i for i, one in enumerate(documents) if one.title.strip() and one.docno not in skip]
    owners = [owners[row] for row in _sample(owners, config)]
    texts = [documents[owner].title for owner in owners]
    return PseudoQueries(texts, encoder.encode(texts), owners)


def piece_queries(
    documents: Sequence[Document],
    pieces: Pieces,
    made: VectorConfig,
    config: PseudoQueryConfig,
    *,
    skip: Container[str] = (),
) -> PseudoQueries:
    """Pieces of text, each with its title, as pseudo-queries; their vectors are those of the documents.

    Args:
        documents: in the order of their places.
        pieces: the vectors of their pieces.
        made: how the pieces were made.
        config: the size and the seed of the sample.
        skip: docnos to leave out, such as those of judged documents.
    """
    texts: list[str] = []
    owners: list[int] = []
    for place, document in enumerate(documents):
        parts = encoded_texts(document, made)[1]
        count = int(pieces.starts[place + 1] - pieces.starts[place])
        if len(parts) != count:
            raise ValueError(f"{document.docno!r} has {count} vectors of pieces, but {len(parts)} pieces")
        texts += parts
        owners += [place] * count
    if not isinstance(pieces.parts, FullVectors):
        raise ValueError("pseudo-queries need the vectors of pieces in 32 bits")
    vectors = pieces.parts.rows
    known = np.any(vectors, axis=1)  # a document without a word has a vector of zeros
    rows = [i for i, owner in enumerate(owners) if known[i] and documents[owner].docno not in skip]
    rows = [rows[i] for i in _sample([owners[row] for row in rows], config)]
    return PseudoQueries([texts[i] for i in rows], vectors[rows], [owners[i] for i in rows])


def soft_graded(
    queries: PseudoQueries,
    plain: LookAhead,
    documents: Sequence[Document],
    config: PseudoQueryConfig,
    *,
    teacher: Teacher | None = None,
) -> TrainingSet:
    """Pseudo-queries with a teacher's weights of their own documents and of the best documents of φ₀.

    Args:
        queries: pseudo-queries.
        plain: φ₀.
        documents: in the same order as in `plain`.
        config: the number of documents, temperature and floor.
        teacher: reads title and text of the documents; None takes φ₀.
    """
    if tuple(document.docno for document in documents) != plain.docnos:
        raise ValueError("the documents are not those of the look-ahead, or not in the same order")
    judged = []
    for start in range(0, len(queries.texts), BLOCK):
        part = slice(start, start + BLOCK)
        texts = queries.texts[part]
        phi = plain.scores(texts, queries.vectors[part])  # [q, N]
        for text, row, own in zip(texts, phi, queries.owners[part], strict=True):
            places = list(dict.fromkeys([own, *best_places(row, config.nearest).tolist()]))
            scores = row[places] if teacher is None else _asked(teacher, text, [documents[i] for i in places])
            weights = soft_weights(scores, temperature=config.temperature, floor=config.floor)
            judged.append({plain.docnos[i]: w for i, w in zip(places, weights, strict=True) if w})
    return TrainingSet(queries.texts, queries.vectors, judged)


def soft_weights(scores: ArrayLike, *, temperature: float, floor: float) -> list[float]:
    """The softmax of scores / temperature, divided by its highest; 0 below the floor.

    >>> [round(weight, 3) for weight in soft_weights([1.0, 3.0, 2.0], temperature=1.0, floor=0.2)]
    [0.0, 1.0, 0.368]
    """
    values = np.asarray(scores, np.float64) / temperature
    weights = np.exp(values - values.max())  # the normaliser cancels
    found: list[float] = np.where(weights >= floor, weights, 0.0).tolist()
    return found


def _asked(teacher: Teacher, text: str, documents: Sequence[Document]) -> NDArray[np.float64]:
    """The teacher's score of each document."""
    scores = np.asarray(teacher(text, [document.contents for document in documents]), np.float64)
    if scores.shape != (len(documents),) or not np.isfinite(scores).all():
        raise ValueError(f"expected {len(documents)} finite scores from the teacher for {text!r}: {scores}")
    return scores


def _sample(owners: Sequence[int], config: PseudoQueryConfig) -> list[int]:
    """Rows in random order, at most so many; no document has a second one before each has a first."""
    order: list[int] = np.random.default_rng([config.seed, len(owners)]).permutation(len(owners)).tolist()
    seen = Counter[int]()
    turns = []
    for row in order:
        turns.append(seen[owners[row]])
        seen[owners[row]] += 1
    return [order[i] for i in np.argsort(turns, kind="stable")[: config.most]]
