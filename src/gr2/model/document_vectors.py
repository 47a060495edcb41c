"""Documents and a pretrained encoder → vectors: of the whole document, and of its pieces.

A document is encoded as its leading text and as pieces, each with its title; it is scored by the mean of all
these vectors and by its best piece (MaxP). Vectors are computed once and saved in a file. Nothing here uses
relevance judgements.

Shapes: N documents, P pieces of all documents, Q queries, W width.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from gr2.data.collection import Collection, Document
from gr2.model.backbone import identity
from gr2.model.config import VectorConfig
from gr2.model.encoder import Vectors, Watch, unwatched
from gr2.model.text_encoder import TextEncoder, load_encoder
from gr2.model.vector_storage import FullVectors, Stored
from gr2.store import atomic_file
from gr2.text import pieces as pieces_of_text

Kind = Literal["lead", "mean", "pieces"]
"""What scores a document: the vector of its leading text, the mean over that and all pieces, or that mean and
the best piece (MaxP)."""
DECIMALS = 6  # of a score; further digits depend on how a matrix product is split into blocks


@dataclass(frozen=True)
class Pieces:
    """The vectors of documents' pieces; every document has at least one, which may be zero."""

    parts: Stored
    """[P, W] document by document."""
    starts: NDArray[np.int64]
    """[N + 1] index of the first piece of each document, then P."""
    mix: float
    """Weight of a document's one vector in its score; its best piece has the rest."""

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return int(self.parts.nbytes + self.starts.nbytes)

    def best(self, queries: Vectors, block: int = 4096) -> Vectors:
        """The highest dot product of each query with a piece of each document [Q, W] → [Q, N]."""
        count = len(self.starts) - 1
        found = np.empty((len(queries), count), np.float32)
        for a in range(0, count, block):
            b = min(a + block, count)
            first, last = self.starts[a], self.starts[b]
            each = self.parts.dot(queries, slice(first, last))
            found[:, a:b] = np.maximum.reduceat(each, self.starts[a:b] - first, axis=1)
        return found


@dataclass(frozen=True)
class DocumentVectors:
    """The vectors of a corpus; documents without any word are left out."""

    config: VectorConfig
    """How they were made."""
    docnos: Sequence[str]
    """In descending order, so that a stable sort by score follows the tie rule of runs."""
    means: Vectors
    """[N, W] the mean vector of each document, of unit length."""
    parts: Vectors
    """[P, W] the vectors of all pieces, document by document."""
    starts: NDArray[np.int64]
    """[N + 1] index of the first piece of each document, then P."""
    leads: Vectors
    """[N, W] the vector of each document's leading text."""

    @property
    def nbytes(self) -> int:
        """The size of the vectors in bytes."""
        return self.means.nbytes + self.parts.nbytes

    def of(self, docnos: Sequence[str], kind: Kind = "mean") -> Vectors:
        """The vectors of these documents [len(docnos), W]; zeros for documents left out."""
        rows = self.means if kind == "mean" else self.leads
        place = {docno: row for row, docno in enumerate(self.docnos)}
        none = np.zeros(rows.shape[1], np.float32)
        return np.stack([rows[place[docno]] if docno in place else none for docno in docnos])

    def pieces_of(self, docnos: Sequence[str]) -> tuple[Vectors, NDArray[np.int64]]:
        """The vectors of these documents' pieces, and the index of each document's first, then the total."""
        place = {docno: row for row, docno in enumerate(self.docnos)}
        none = np.zeros((1, self.parts.shape[1]), np.float32)
        rows = [
            self.parts[self.starts[place[docno]] : self.starts[place[docno] + 1]] if docno in place else none
            for docno in docnos
        ]
        return np.concatenate(rows), np.cumsum([0, *map(len, rows)])

    def scores(self, queries: Vectors, block: int = 4096) -> Vectors:
        """The score of every document for each query [Q, W] → [Q, N], a block of documents at a time."""
        scores = queries @ self.means.T
        if len(self.parts):
            mix = self.config.mix
            scores = mix * scores + (1 - mix) * Pieces(FullVectors(self.parts), self.starts, mix).best(
                queries, block
            )
        return scores.round(DECIMALS)


def encode_documents(
    documents: Iterable[Document],
    encoder: TextEncoder,
    config: VectorConfig | None = None,
    *,
    progress: bool = False,
    watch: Watch = unwatched,
) -> DocumentVectors:
    """Encode title and text of each document that has at least one word."""
    config = config or VectorConfig()
    found = {one.docno: encoded_texts(one, config) for one in documents if one.contents.split()}
    if not found:
        raise ValueError("dense search needs at least one document with a word in it")
    docnos = sorted(found, reverse=True)
    texts = [found[docno][0] for docno in docnos] + [part for docno in docnos for part in found[docno][1]]
    vectors = encoder.encode(texts, max_tokens=config.max_tokens, progress=progress, watch=watch)
    leads, parts = vectors[: len(docnos)], vectors[len(docnos) :].copy()  # a view would keep all vectors
    starts = np.cumsum([0, *(len(found[docno][1]) for docno in docnos)])
    means = leads + np.add.reduceat(parts, starts[:-1], axis=0) if len(parts) else leads
    means = means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
    return DocumentVectors(config, docnos, means, parts, starts, leads)


def document_vectors(
    collection: Collection,
    docnos: Sequence[str],
    backbone: str,
    folder: Path,
    config: VectorConfig | None = None,
    *,
    progress: bool = False,
) -> Vectors:
    """The mean vectors of these documents [N, W], computed once and saved in the folder.

    Each combination of backbone, collection and configuration has its own file.
    """
    path = vectors_path(collection, backbone, folder, config)
    if not path.exists():
        encoder = load_encoder(backbone)
        keep_vectors(encode_documents(collection.documents, encoder, config, progress=progress), docnos, path)
    return load_file(path)["vectors"]


def vectors_by_kind(
    collection: Collection,
    docnos: Sequence[str],
    backbone: str,
    folder: Path,
    config: VectorConfig | None = None,
    *,
    progress: bool = False,
) -> dict[str, tuple[Vectors, Pieces | None]]:
    """The vectors of these documents by kind, `lead` first; without pieces that is the only one.

    Computed once and saved in the folder, as by `document_vectors`.
    """
    config = config or VectorConfig()
    means = document_vectors(collection, docnos, backbone, folder, config, progress=progress)
    stored = load_file(vectors_path(collection, backbone, folder, config))
    if not config.pieces:
        return {"lead": (means, None)}
    if "parts" not in stored:  # written by an earlier version
        return {"mean": (means, None)}
    pieces = Pieces(FullVectors(stored["parts"]), stored["starts"], config.mix)
    return {"lead": (stored["leads"], None), "mean": (means, None), "pieces": (means, pieces)}


def vectors_path(
    collection: Collection, backbone: str, folder: Path, config: VectorConfig | None = None
) -> Path:
    """The file in which `document_vectors` saves them."""
    made = f"{identity(backbone)} {collection.fingerprint}"
    if config not in (None, VectorConfig()):
        made += f" {config}"
    key = blake2b(made.encode(), digest_size=6).hexdigest()
    return folder / f"vectors.{Path(backbone).name}.{key}.safetensors"


def keep_vectors(vectors: DocumentVectors, docnos: Sequence[str], path: Path) -> None:
    """Save the vectors of these documents; the file is written completely or not at all."""
    found: dict[str, NDArray[np.generic]] = {"vectors": vectors.of(docnos)}
    if vectors.config.pieces:
        parts, starts = vectors.pieces_of(docnos)
        found |= {"leads": vectors.of(docnos, "lead"), "parts": parts, "starts": starts}
    with atomic_file(path) as temporary:
        save_file(found, temporary)


def encoded_texts(document: Document, config: VectorConfig) -> tuple[str, list[str]]:
    """The leading text of a document, and its pieces (at least one if wanted), each with the title."""
    lead = " ".join(document.contents.split()[: config.max_tokens])
    if not config.pieces:
        return lead, []
    parts = pieces_of_text(document.text, config.words, config.pieces) or [""]
    return lead, [" ".join([*document.title.split(), part]).strip() for part in parts]
