"""Dense retrieval without training: a corpus and a pretrained encoder → vectors → a run.

It shows how well the encoder retrieves on its own, before a model is trained on top of it.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from gr2.data.collection import Document
from gr2.data.runs import Ranking, Run
from gr2.model.config import VectorConfig
from gr2.model.document_vectors import DocumentVectors, encode_documents
from gr2.model.encoder import Vectors, Watch, unwatched
from gr2.model.text_encoder import TextEncoder

BLOCK = 64
"""Queries scored at a time."""


class Dense:
    """The vectors of a corpus, and the encoder for queries."""

    def __init__(self, encoder: TextEncoder, vectors: DocumentVectors) -> None:
        """Store the parts; use `Dense.index` to build an index."""
        self.encoder, self.vectors = encoder, vectors

    @classmethod
    def index(
        cls,
        documents: Iterable[Document],
        encoder: TextEncoder,
        config: VectorConfig | None = None,
        *,
        progress: bool = False,
        watch: Watch = unwatched,
    ) -> "Dense":
        """Encode title and text of each document; documents without words are left out."""
        return cls(encoder, encode_documents(documents, encoder, config, progress=progress, watch=watch))

    def __str__(self) -> str:
        """As printed with results: all settings and the size of the index."""
        count = len(self.vectors.means) + len(self.vectors.parts)
        size = self.vectors.nbytes / 1e6
        return f"dense {self.encoder.name} {self.vectors.config} ({count:,} vectors, {size:,.1f} MB)"

    def search(
        self, queries: Mapping[str, str], k: int = 1000, *, name: str = "dense", progress: bool = False
    ) -> Run:
        """The k best documents of each query; every document that has words gets a score."""
        if k < 1:
            raise ValueError(f"expected k of at least 1, found {k}")
        from tqdm import tqdm

        max_tokens = self.vectors.config.max_tokens
        vectors = self.encoder.encode(list(queries.values()), max_tokens=max_tokens, progress=progress)
        rankings: dict[str, Ranking] = {}
        for start in tqdm(range(0, len(vectors), BLOCK), unit="block", leave=False, disable=not progress):
            scores = self.vectors.scores(vectors[start : start + BLOCK])
            for qid, row in zip(list(queries)[start : start + BLOCK], scores, strict=True):
                rankings[qid] = self._best(row, k)
        return Run(rankings, name)

    def _best(self, scores: Vectors, k: int) -> Ranking:
        found = np.arange(len(scores))
        if len(scores) > k:
            found = np.flatnonzero(scores >= np.partition(scores, -k)[-k])
        best = found[np.argsort(-scores[found], kind="stable")][:k]
        return tuple((self.vectors.docnos[i], float(scores[i])) for i in best)
