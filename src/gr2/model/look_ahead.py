"""φ(q, d): a score of every document before a token is written, from up to four views.

φ(q, d) = s·⟨q̂, v_d⟩ + w·BM25(q, d) + g(q)·(s·⟨q̂ − q̄, δ_d⟩ + η·m(q, d)): vectors, words, learned offsets δ
of the documents, and the memory m of judged training queries. The gate g trusts what was learned near the
queries it was learned from. Without judgements, the first two views are a hybrid search. Offsets
come from `training/regression.py`. paper: not in it; the field's word is planning ahead (PAG, SIGIR 2024).

Shapes: Q queries, N documents, T training queries, W width.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from scipy import sparse

from gr2.bm25 import BM25, BM25Config
from gr2.data.collection import Document
from gr2.model.config import LookAheadConfig
from gr2.model.document_vectors import Pieces
from gr2.model.query_encoder import WordMap
from gr2.store import atomic_folder, verify, write_json

Floats = NDArray[np.float32]
Ranking = tuple[tuple[int, ...], tuple[float, ...], tuple[dict[str, float], ...]]
"""Places of documents, their log-probabilities, and the contributions of views to each."""
DECIMALS = 4  # of φ; further digits depend on how a matrix product is split into blocks
FLOOR = 1e-3
"""What a document without any memory counts as, in the logarithm."""


@dataclass(frozen=True)
class Memory:
    """Training queries and what was judged relevant to them."""

    queries: Floats
    """[T, W] unit vectors."""
    gains: sparse.csr_matrix
    """[T, N] (2^g − 1) of each judged document, divided by the query's largest."""

    @classmethod
    def of(cls, queries: Floats, judged: Sequence[Mapping[str, int]], docnos: Mapping[str, int]) -> "Memory":
        """The memory of judgements (docno → grade) by training query; `docnos` has the documents' places."""
        rows, columns, values = [], [], []
        for row, grades in enumerate(judged):
            known = {docno: 2.0**g - 1 for docno, g in grades.items() if g > 0 and docno in docnos}
            top = max(known.values(), default=1.0)
            for docno, gain in sorted(known.items()):
                rows.append(row)
                columns.append(docnos[docno])
                values.append(gain / top)
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
    vectors: Floats
    """[N, W] unit vectors of the documents."""
    pieces: Pieces | None = None
    """The vectors of their pieces, of which the best counts too."""
    bm25: BM25 | None = None
    """Over the same documents in the same order."""
    offsets: Floats | None = None
    """[N, W] δ, learned."""
    memory: Memory | None = None
    centre: Floats | None = None
    """[W] q̄, the mean of the queries that the offsets were learned from; None is zero."""
    word_map: WordMap | None = None
    """How queries become vectors if the backbone is no text encoder."""

    @classmethod
    def build(
        cls,
        documents: Sequence[Document],
        vectors: Floats,
        config: LookAheadConfig | None = None,
        *,
        pieces: Pieces | None = None,
        word_map: WordMap | None = None,
    ) -> "LookAhead":
        """φ with nothing learned, for documents and their vectors in the same order."""
        config = config or LookAheadConfig()
        bm25 = BM25.index(documents, config.bm25) if config.words else None
        docnos = tuple(document.docno for document in documents)
        return cls(config, docnos, vectors, pieces, bm25, word_map=word_map)

    def unlearned(self, config: LookAheadConfig | None = None) -> "LookAhead":
        """φ without what was learned from judgements, with the usual weights or these."""
        config = config or LookAheadConfig(bm25=self.config.bm25)
        return replace(self, config=config, offsets=None, centre=None, memory=None)

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
        found |= self.learned_views(queries)
        return {name: view.astype(np.float32, copy=False) for name, view in found.items()}

    def cosines(self, queries: Floats) -> Floats:
        """⟨q̂, v_d⟩, or its mix with the best piece of each document [Q, N]."""
        found: Floats = queries @ self.vectors.T
        if self.pieces is None:
            return found
        mixed: Floats = self.pieces.mix * found + (1 - self.pieces.mix) * self.pieces.best(queries)
        return mixed

    def learned_views(self, queries: Floats) -> dict[str, Floats]:
        """What the learned views contribute to φ, by name [Q, N]."""
        config, found = self.config, dict[str, Floats]()
        trust = self.trust(queries)[:, None]
        if self.offsets is not None:
            found["learned"] = trust * (config.scale * (self.centred(queries) @ self.offsets.T))
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
    ) -> list[Ranking]:
        """The k best documents of each query, by φ; ties are broken as in every run.

        Args:
            texts: the queries; one without a token and without a known word gets an empty ranking.
            queries: [Q, W] their unit vectors.
            ks: the number of documents wanted for each.
            allowed: the places of the documents allowed for each; None allows all.

        Returns:
            For each query: places, log P(d ∣ q) = φ − logsumexp φ over all documents, and what each view
            contributed to φ.
        """
        views = self.views(texts, queries)
        total: Floats = np.round(np.sum(list(views.values()), axis=0, dtype=np.float32), DECIMALS)
        found: list[Ranking] = []
        for row, (k, some) in enumerate(zip(ks, allowed, strict=True)):
            if not queries[row].any() and not total[row].any():
                found.append(((), (), ()))
                continue
            if some is None:
                places = best_places(total[row], k)
            else:
                places = np.asarray(some)[best_places(total[row][list(some)], k)]
            peak = total[row].max()
            mass = peak + np.log(np.exp(total[row] - peak, dtype=np.float64).sum())
            scores = (total[row][places] - mass).tolist()
            parts = [{name: float(view[row, place]) for name, view in views.items()} for place in places]
            found.append((tuple(places.tolist()), tuple(scores), tuple(parts)))
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

    def with_config(self, config: LookAheadConfig) -> "LookAhead":
        """The same views, weighted differently."""
        return replace(self, config=config)

    @property
    def nbytes(self) -> dict[str, int]:
        """The size of each view in bytes."""
        found = {"vectors": self.vectors.nbytes + (0 if self.pieces is None else self.pieces.nbytes)}
        found |= {} if self.bm25 is None else {"words": self.bm25.nbytes}
        found |= {} if self.offsets is None else {"learned": self.offsets.nbytes}
        found |= {} if self.memory is None else {"memory": self.memory.nbytes}
        return found

    def save(self, folder: Path) -> None:
        """Write everything as a folder with a manifest."""
        arrays: dict[str, NDArray[np.generic]] = {"vectors": np.ascontiguousarray(self.vectors)}
        if self.pieces is not None:
            arrays |= {"parts": self.pieces.parts, "starts": self.pieces.starts}
        if self.offsets is not None:
            arrays["offsets"] = np.ascontiguousarray(self.offsets)
        if self.centre is not None:
            arrays["centre"] = np.ascontiguousarray(self.centre)
        if self.word_map is not None:
            arrays |= {"map.centre": self.word_map.centre, "map.turn": self.word_map.turn}
        if self.memory is not None:
            gains = self.memory.gains
            arrays |= {"queries": self.memory.queries, "gains.data": gains.data}
            arrays |= {"gains.indices": gains.indices, "gains.indptr": gains.indptr}
        with atomic_folder(folder) as temporary:
            save_file(arrays, temporary / "look_ahead.safetensors")
            write_json(
                temporary / "look_ahead.json",
                {
                    "config": asdict(self.config),
                    "docnos": list(self.docnos),
                    "mix": None if self.pieces is None else self.pieces.mix,
                },
            )
            if self.bm25 is not None:
                self.bm25.save(temporary / "bm25")

    @classmethod
    def load(cls, folder: Path) -> "LookAhead":
        """Read what `save` wrote; a changed byte is refused."""
        import orjson

        verify(folder)
        content = orjson.loads((folder / "look_ahead.json").read_bytes())
        stored, arrays = content["config"], load_file(folder / "look_ahead.safetensors")
        gate = None if stored["gate"] is None else tuple(stored["gate"])
        config = LookAheadConfig(**{**stored, "bm25": BM25Config(**stored["bm25"]), "gate": gate})
        memory = None
        if "queries" in arrays:
            parts = (arrays["gains.data"], arrays["gains.indices"], arrays["gains.indptr"])
            shape = (len(arrays["queries"]), len(content["docnos"]))
            memory = Memory(arrays["queries"], sparse.csr_matrix(parts, shape=shape))
        bm25 = BM25.load(folder / "bm25") if (folder / "bm25").exists() else None
        mix = content.get("mix")
        pieces = None if mix is None else Pieces(arrays["parts"], arrays["starts"], mix)
        learned = {name: arrays.get(name) for name in ("offsets", "centre")}
        mapped = WordMap(arrays["map.centre"], arrays["map.turn"]) if "map.turn" in arrays else None
        docnos = tuple(content["docnos"])
        return cls(config, docnos, arrays["vectors"], pieces, bm25, memory=memory, word_map=mapped, **learned)


def best_places(scores: Floats, k: int) -> NDArray[np.int64]:
    """The places of the k highest scores, best first; of equal scores the later place is first.

    Places follow docnos, so that is the tie rule of runs.

    >>> best_places(np.array([1.0, 3.0, 2.0, 3.0], np.float32), 3).tolist()
    [3, 1, 2]
    """
    found = np.arange(len(scores))
    if len(scores) > k:
        found = np.flatnonzero(scores >= np.partition(scores, -k)[-k])
    return found[np.lexsort((-found, -scores[found]))][:k]
