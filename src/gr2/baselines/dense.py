"""Dense retrieval without training: a corpus and a pretrained encoder → vectors → a run.

The control for whatever is trained on top of such an encoder: what it could do before. A document is encoded
as its leading text and as pieces, each under its title; it is found by the mean of all these vectors and by
its best piece (MaxP). This file knows no judgements, and nothing of how a text becomes a vector.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from gr2.augment import pieces
from gr2.backbone import identity
from gr2.data import Collection, Document
from gr2.embed import Encoder, Vectors
from gr2.runs import Ranking, Run
from gr2.store import atomic_file

DECIMALS = 6  # of a score; what lies below depends on how a product of 32-bit floats is cut into blocks


@dataclass(frozen=True, kw_only=True)
class DenseConfig:
    """How a document becomes vectors and a score; printed with every result."""

    words: int = 32
    """Words of a piece, the title before it not counted."""
    pieces: int = 8
    """At most so many pieces of a document, spread evenly over it; 0: the leading text alone, much faster."""
    mix: float = 0.5
    """The share of the document's mean vector in a score; the rest is the best piece's, if any."""
    longest: int = 128
    """Tokens at which any text is cut, so how far the leading text goes."""

    def __post_init__(self) -> None:
        """Refuse what would make no sense."""
        if min(self.words, self.longest) < 1 or self.pieces < 0 or not 0 <= self.mix <= 1:
            raise ValueError(
                f"expected words and longest from 1, pieces from 0 and mix from 0 to 1, not {self}"
            )

    @classmethod
    def leading(cls, tokens: int) -> "DenseConfig":
        """So many leading tokens of a document alone; 0: as usual, in pieces."""
        return cls(pieces=0, longest=tokens) if tokens else cls()

    def __str__(self) -> str:
        """As it stands beside a result."""
        return f"words={self.words} pieces={self.pieces} mix={self.mix:g} longest={self.longest}"


class Dense:
    """The vectors of a corpus, and the encoder that reads queries."""

    def __init__(
        self,
        config: DenseConfig,
        encoder: Encoder,
        docnos: Sequence[str],
        means: Vectors,
        parts: Vectors,
        starts: NDArray[np.int64],
    ) -> None:
        """Hold an index; use `Dense.index` to get one.

        Args:
            config: how it was made.
            encoder: what it was made with.
            docnos: the documents in descending order: a stable sort by score then obeys our tie rule.
            means: the mean vector of each document, of unit length [N, W].
            parts: the vectors of all pieces [P, W], document by document.
            starts: the first piece of each document, and P [N + 1].
        """
        self.config, self.encoder, self.docnos = config, encoder, docnos
        self.means, self.parts, self.starts = means, parts, starts

    @classmethod
    def index(
        cls,
        documents: Iterable[Document],
        encoder: Encoder,
        config: DenseConfig | None = None,
        *,
        progress: bool = False,
    ) -> "Dense":
        """Encode title and text of each document; one without a word is left out: nothing could find it."""
        config = config or DenseConfig()
        found = {
            document.docno: _texts(document, config) for document in documents if document.contents.split()
        }
        if not found:
            raise ValueError("dense search needs at least one document with a word in it")
        docnos = sorted(found, reverse=True)
        texts = [found[docno][0] for docno in docnos] + [part for docno in docnos for part in found[docno][1]]
        vectors = encoder.encode(texts, longest=config.longest, progress=progress)
        leads, parts = vectors[: len(docnos)], vectors[len(docnos) :].copy()  # a view would keep the leads
        starts = np.cumsum([0, *(len(found[docno][1]) for docno in docnos)])
        means = leads + np.add.reduceat(parts, starts[:-1], axis=0) if len(parts) else leads
        means = means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
        return cls(config, encoder, docnos, means, parts, starts)

    @property
    def nbytes(self) -> int:
        """What the vectors take, in bytes."""
        return self.means.nbytes + self.parts.nbytes

    def __str__(self) -> str:
        """As it stands beside a result: every setting, and what it costs."""
        count = len(self.means) + len(self.parts)
        return f"dense {self.encoder.name} {self.config} ({count:,} vectors, {self.nbytes / 1e6:,.1f} MB)"

    def vectors(self, docnos: Sequence[str]) -> Vectors:
        """The mean vectors of these documents [N, W]; zeros for one that was left out."""
        place = {docno: row for row, docno in enumerate(self.docnos)}
        none = np.zeros(self.means.shape[1], np.float32)
        return np.stack([self.means[place[docno]] if docno in place else none for docno in docnos])

    def search(
        self, queries: Mapping[str, str], k: int = 1000, *, name: str = "dense", progress: bool = False
    ) -> Run:
        """The k best documents of each query; every document with a word in it has a score."""
        if k < 1:
            raise ValueError(f"expected k of at least 1, found {k}")
        from tqdm import tqdm

        vectors = self.encoder.encode(list(queries.values()), longest=self.config.longest, progress=progress)
        rankings: dict[str, Ranking] = {}
        blocks = range(0, len(vectors), 64)
        for start in tqdm(blocks, unit="block", leave=False, disable=not progress):
            scores = self._scores(vectors[start : start + 64])
            for qid, row in zip(list(queries)[start : start + 64], scores, strict=True):
                rankings[qid] = self._best(row, k)
        return Run(rankings, name)

    def _scores(self, queries: Vectors, block: int = 4096) -> Vectors:
        """The score of every document for each query [Q, N], so many documents at a time."""
        scores = queries @ self.means.T
        if not len(self.parts):
            return scores.round(DECIMALS)
        for a in range(0, len(self.docnos), block):
            b = min(a + block, len(self.docnos))
            first, last = self.starts[a], self.starts[b]
            each = queries @ self.parts[first:last].T
            best = np.maximum.reduceat(each, self.starts[a:b] - first, axis=1)
            scores[:, a:b] = self.config.mix * scores[:, a:b] + (1 - self.config.mix) * best
        return scores.round(DECIMALS)

    def _best(self, scores: Vectors, k: int) -> Ranking:
        found = np.arange(len(scores))
        if len(scores) > k:
            found = np.flatnonzero(scores >= np.partition(scores, -k)[-k])
        best = found[np.argsort(-scores[found], kind="stable")][:k]
        return tuple((self.docnos[i], float(scores[i])) for i in best)


def document_vectors(
    collection: Collection,
    docnos: Sequence[str],
    backbone: str,
    folder: Path,
    config: DenseConfig | None = None,
    *,
    progress: bool = False,
) -> Vectors:
    """The mean vectors of these documents [N, W], made once: they are kept in the folder.

    Vectors of another backbone, of another collection, or made in another way have another file.
    """
    path = vectors_path(collection, backbone, folder, config)
    if not path.exists():
        index = Dense.index(collection.documents, Encoder.load(backbone), config, progress=progress)
        keep_vectors(index, docnos, path)
    return load_file(path)["vectors"]


def vectors_path(
    collection: Collection, backbone: str, folder: Path, config: DenseConfig | None = None
) -> Path:
    """Where `document_vectors` keeps them."""
    made = f"{identity(backbone)} {collection.fingerprint}"
    if config not in (None, DenseConfig()):
        made += f" {config}"
    key = blake2b(made.encode(), digest_size=6).hexdigest()
    return folder / f"vectors.{Path(backbone).name}.{key}.safetensors"


def keep_vectors(index: Dense, docnos: Sequence[str], path: Path) -> None:
    """Write the mean vectors of these documents, whole or not at all."""
    with atomic_file(path) as temporary:
        save_file({"vectors": index.vectors(docnos)}, temporary)


def _texts(document: Document, config: DenseConfig) -> tuple[str, list[str]]:
    """The leading text of a document, and its pieces, one at least if any are wanted; each with the title."""
    lead = " ".join(document.contents.split()[: config.longest])
    if not config.pieces:
        return lead, []
    parts = pieces(document.text, config.words, config.pieces) or [""]
    return lead, [" ".join([*document.title.split(), part]).strip() for part in parts]
