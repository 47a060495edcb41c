"""φ(q, d): a score of every document before a token is written, from up to five views.

φ(q, d) = s·⟨q̂, v_d⟩ + w·BM25(q, d) + b_d + g(q)·(s·⟨q̂ − q̄, δ_d⟩ + η·m(q, d)): vectors, words, a prior of the
documents, learned offsets δ, and the memory m of judged training queries. The gate g trusts what was learned
near the queries it was learned from. Without judgements, the first two views are a hybrid search. Offsets
come from `training/regression.py`, `vector_storage.py` stores all vectors, and `look_ahead_io.py` is the
folder. paper: not in it; the field's word is planning ahead (PAG, SIGIR 2024).

Shapes: Q queries, N documents, T training queries, W width.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from gr2.bm25 import BM25
from gr2.data.collection import Document
from gr2.model.bounded_search import Places, Similarity, best_places, best_with_residual
from gr2.model.config import LookAheadConfig, VectorStorage
from gr2.model.document_features import document_features
from gr2.model.document_vectors import Pieces
from gr2.model.query_encoder import WordMap
from gr2.model.static_encoder import StaticEncoder
from gr2.model.vector_storage import CodeVectors, FullVectors, Stored, stored_as
from gr2.model.word_weights import WordWeights

Floats = NDArray[np.float32]
Ranking = tuple[tuple[int, ...], tuple[float, ...], tuple[dict[str, float], ...]]
"""Places of documents, their log-probabilities, and the contributions of views to each."""
Words = BM25 | WordWeights
Judgement = int | float
"""A grade, which is an integer, or a teacher's weight, which is a float in (0, 1]."""
DECIMALS = 4  # of φ; further digits depend on how a matrix product is split into blocks
CODEBOOKS, VOCABULARY, MEMORY, ENCODER = "codebooks", "vocabulary", "memory", "static encoder"
FIXED = (CODEBOOKS, VOCABULARY, MEMORY, ENCODER)
"""Names of sizes that do not grow with the number of documents, or ever more slowly: the vectors of codes,
the terms of a few words per document, the judged queries, and an encoder."""
FLOOR = 1e-3
"""What a document without any memory counts as, in the logarithm."""


@dataclass(frozen=True)
class Memory:
    """Training queries and what was judged relevant to them."""

    queries: Floats
    """[T, W] unit vectors."""
    gains: sparse.csr_matrix
    """[T, N] the gain of each judged document, divided by the query's largest."""

    @classmethod
    def of(
        cls, queries: Floats, judged: Sequence[Mapping[str, Judgement]], docnos: Mapping[str, int]
    ) -> "Memory":
        """The memory of judgements (docno → grade) by training query; `docnos` has the documents' places."""
        rows, columns, values = [], [], []
        for row, grades in enumerate(judged):
            known = {docno: gain(g) for docno, g in grades.items() if g > 0 and docno in docnos}
            top = max(known.values(), default=1.0)
            for docno, value in sorted(known.items()):
                rows.append(row)
                columns.append(docnos[docno])
                values.append(value / top)
        shape = (len(judged), len(docnos))
        return cls(queries, sparse.csr_matrix((values, (rows, columns)), shape=shape, dtype=np.float32))

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return int(self.queries.nbytes + self.gains.data.nbytes + self.gains.indices.nbytes)

    def nearness(self, queries: Floats) -> Floats:
        """The highest cosine of each query to a training query [Q]."""
        highest: Floats = (queries @ self.queries.T).max(1, initial=-1.0)
        return highest

    def scores(self, queries: Floats, neighbours: int, temperature: float) -> Floats:
        """m(q, d), the log of the gains that similar training queries give; 0 without any [Q, N]."""
        cosines = queries @ self.queries.T
        count = min(neighbours, cosines.shape[1])
        near = np.argpartition(-cosines, count - 1, axis=1)[:, :count]  # [Q, count]
        close = np.take_along_axis(cosines, near, 1) / temperature
        weight = np.exp(close - close.max(1, keepdims=True))
        weight /= weight.sum(1, keepdims=True)
        rows = np.repeat(np.arange(len(queries)), count)
        mix = sparse.csr_matrix((weight.ravel(), (rows, near.ravel())), shape=cosines.shape, dtype=np.float32)
        found: Floats = np.log((mix @ self.gains).toarray() + FLOOR) - np.log(FLOOR)
        return found.astype(np.float32)


@dataclass(frozen=True)
class LookAhead:
    """The views of a collection; documents are in the order of `docnos`."""

    config: LookAheadConfig
    docnos: tuple[str, ...]
    vectors: Stored
    """[N, W] unit vectors of the documents, or codes in their place."""
    pieces: Pieces | None = None
    """The vectors of their pieces, of which the best counts too."""
    bm25: Words | None = None
    """Over the same documents in the same order; `WordWeights` has their best words alone."""
    offsets: Stored | None = None
    """[N, W] δ, learned; of documents that are codes, those of their codes."""
    memory: Memory | None = None
    centre: Floats | None = None
    """[W] q̄, the mean of the queries that the offsets were learned from; None is zero."""
    word_map: WordMap | None = None
    """How queries become vectors if the backbone is no text encoder."""
    encoder: StaticEncoder | None = None
    """What encoded the documents and encodes queries, if it is not the backbone."""
    prior: Floats | None = None
    """[N] b_d, learned; the same for every query."""

    @classmethod
    def build(
        cls,
        documents: Sequence[Document],
        vectors: Floats | Stored,
        config: LookAheadConfig | None = None,
        *,
        pieces: Pieces | None = None,
        bm25: Words | None = None,
        word_map: WordMap | None = None,
    ) -> "LookAhead":
        """φ with nothing learned, for documents, their vectors and their BM25 index in the same order.

        Without an index, the documents are indexed if words count.
        """
        config = config or LookAheadConfig()
        if bm25 is None and config.words:
            bm25 = words_of(documents, config)
        prior = document_features(documents) @ np.array(config.prior, np.float32) if config.prior else None
        docnos = tuple(document.docno for document in documents)
        stored = FullVectors(vectors) if isinstance(vectors, np.ndarray) else vectors
        return cls(config, docnos, stored, pieces, bm25, word_map=word_map, prior=prior)

    def views(self, texts: Sequence[str], queries: Floats) -> dict[str, Floats]:
        """What each view contributes to φ, by name [Q, N]; their sum is φ.

        Args:
            texts: the queries.
            queries: [Q, W] their unit vectors.
        """
        config = self.config
        found = {"vectors": config.scale * self.cosines(queries)}
        if self.bm25 is not None and config.words:
            found["words"] = np.float32(config.words) * self.bm25.scores(texts)
        if self.prior is not None:
            found["prior"] = np.tile(self.prior, (len(texts), 1))
        found |= self.learned_views(queries)
        return {name: view.astype(np.float32, copy=False) for name, view in found.items()}

    def cosines(self, queries: Floats) -> Floats:
        """⟨q̂, v_d⟩, or its mix with the best piece of each document [Q, N]."""
        found = self.vectors.dot(queries)
        if self.pieces is None:
            return found
        mixed: Floats = self.pieces.mix * found + (1 - self.pieces.mix) * self.pieces.best(queries)
        return mixed

    def learned_views(self, queries: Floats) -> dict[str, Floats]:
        """What the learned views contribute to φ, by name [Q, N]."""
        config, found = self.config, dict[str, Floats]()
        trust = self.trust(queries)[:, None]
        if self.offsets is not None:
            found["learned"] = trust * (config.scale * self.offsets.dot(self.centred(queries)))
        if self.memory is not None and config.memory:
            known = self.memory.scores(queries, config.neighbours, config.temperature)
            found["memory"] = trust * (config.memory * known)
        return found

    def scores(self, texts: Sequence[str], queries: Floats) -> Floats:
        """φ of every document for each query [Q, N]."""
        total: Floats = np.sum(list(self.views(texts, queries).values()), axis=0, dtype=np.float32)
        return total

    def rank(
        self,
        texts: Sequence[str],
        queries: Floats,
        ks: Sequence[int],
        allowed: Sequence[Sequence[int] | None],
        similarities: Sequence[Similarity] | None = None,
    ) -> list[Ranking]:
        """The k best documents of each query, by φ; ties are broken as in every run.

        Args:
            texts: the queries; one without a token and without a known word gets an empty ranking.
            queries: [Q, W] their unit vectors.
            ks: the number of documents wanted for each.
            allowed: the places of the documents allowed for each; None allows all.
            similarities: for each query, what the decoder adds to φ, before its weight; None adds nothing.

        Returns:
            For each query: places, log P(d ∣ q) = φ − logsumexp φ over all documents, and what each view
            contributed to φ. The decoder's part is added to both, but is not in the normaliser.
        """
        views = self.views(texts, queries)
        total: Floats = np.round(np.sum(list(views.values()), axis=0, dtype=np.float32), DECIMALS)
        found: list[Ranking] = []
        for row, (k, some) in enumerate(zip(ks, allowed, strict=True)):
            if not queries[row].any() and not views.get("words", queries)[row].any():
                found.append(((), (), ()))
                continue
            part = {name: view[row] for name, view in views.items()}
            if similarities is not None:
                weight = self.config.residual
                places, near = best_with_residual(total[row], k, weight, similarities[row], some)
                added = np.float32(weight) * near
            else:
                known = np.arange(len(total[row])) if some is None else np.asarray(some, np.int64)
                places = known[best_places(total[row][known], k)]
                added = np.zeros(len(places), np.float32)
            found.append(_ranking(total[row], part, places, added))
        return found

    def centred(self, queries: Floats) -> Floats:
        """q̂ − q̄ [Q, W], which meets the offsets."""
        return queries if self.centre is None else queries - self.centre

    def trust(self, queries: Floats) -> Floats:
        """g(q), from 0 to 1 [Q]; 1 without a gate."""
        if self.config.gate is None or self.memory is None:
            return np.ones(len(queries), np.float32)
        low, high = self.config.gate
        trust: Floats = np.clip((self.memory.nearness(queries) - low) / (high - low), 0, 1).astype(np.float32)
        return trust

    def stored(self, storage: VectorStorage, parts: int | None = None, words: int = 0) -> "LookAhead":
        """The same with its vectors, offsets and words in a storage, once all is learned.

        Product quantisation is for the vectors of documents and pieces; offsets then have 8 bits.

        Args:
            storage: 32 bits, 8 bits or product-quantised.
            parts: bytes of a product-quantised vector; None is one per 8 dimensions.
            words: the best words of each document that are kept, with 4-bit weights; 0 keeps all.
        """
        pieces, offsets, bm25 = self.pieces, self.offsets, self.bm25
        config = replace(self.config, kept_words=words or self.config.kept_words)
        if words and isinstance(bm25, BM25):
            bm25 = WordWeights.of(bm25, words)
        vectors = stored_as(self.vectors, storage, parts)
        if pieces is not None:
            pieces = replace(pieces, parts=stored_as(pieces.parts, storage, parts))
        if offsets is not None:
            offsets = stored_as(offsets, "int8" if storage == "pq" else storage)
        return replace(self, config=config, vectors=vectors, pieces=pieces, offsets=offsets, bm25=bm25)

    def without_learned(self) -> "LookAhead":
        """The words and vectors alone."""
        return replace(self, offsets=None, memory=None, centre=None, prior=None)

    def with_config(self, config: LookAheadConfig) -> "LookAhead":
        """The same views, weighted differently."""
        return replace(self, config=config)

    @property
    def nbytes(self) -> dict[str, int]:
        """The size of each view in bytes, and of the static encoder if there is one.

        Codes of documents are counted once, although learned vectors of codes have them too.
        """
        vectors, offsets = self.vectors, self.offsets
        if isinstance(vectors, CodeVectors):
            found = {"codes": vectors.codes.nbytes, CODEBOOKS: vectors.vectors.nbytes}
        else:
            found = {"vectors": vectors.nbytes + (0 if self.pieces is None else self.pieces.nbytes)}
        found |= {} if self.bm25 is None else {"words": self.bm25.nbytes}
        found |= {VOCABULARY: self.bm25.vocabulary_bytes} if isinstance(self.bm25, WordWeights) else {}
        found |= {} if self.prior is None else {"prior": self.prior.nbytes}
        if isinstance(offsets, CodeVectors):
            found[CODEBOOKS] += offsets.vectors.nbytes
        elif offsets is not None:
            found["learned"] = offsets.nbytes
        found |= {} if self.memory is None else {MEMORY: self.memory.nbytes}
        found |= {} if self.encoder is None else {ENCODER: self.encoder.nbytes}
        return found

    @property
    def bytes_per_document(self) -> dict[str, float]:
        """The size of each view that grows with the collection, per document."""
        count = max(1, len(self.docnos))
        return {name: size / count for name, size in self.nbytes.items() if name not in FIXED}

    @property
    def sizes(self) -> str:
        """The sizes as printed: per document, and what does not grow with the collection."""
        each = ", ".join(f"{view} {size:,.0f}" for view, size in self.bytes_per_document.items())
        fixed = {view: size for view, size in self.nbytes.items() if view not in self.bytes_per_document}
        more = "".join(f"; {view} {size / 1e6:.1f} MB" for view, size in fixed.items())
        return f"bytes per document: {each}{more}"


def _ranking(total: Floats, views: Mapping[str, Floats], places: Places, added: Floats) -> Ranking:
    """Places, log-probabilities and contributions: φ of all documents [N], and what is added to the best."""
    peak = total.max()
    mass = peak + np.log(np.exp(total - peak, dtype=np.float64).sum())
    parts = [{name: float(view[place]) for name, view in views.items()} for place in places]
    if added.any():
        parts = [each | {"decoder": float(more)} for each, more in zip(parts, added, strict=True)]
    return tuple(places.tolist()), tuple((total[places] + added - mass).tolist()), tuple(parts)


def words_of(documents: Sequence[Document], config: LookAheadConfig) -> Words:
    """The words of documents: all, or the best of each."""
    index = BM25.index(documents, config.bm25)
    return WordWeights.of(index, config.kept_words) if config.kept_words else index


def gain(judgement: Judgement) -> float:
    """2^g − 1 of a grade; a teacher's weight is a gain already.

    >>> gain(2), gain(0.5)
    (3.0, 0.5)
    """
    return 2.0**judgement - 1 if isinstance(judgement, Integral) else float(judgement)
