"""The scheme `codes-words`: docids ↔ what look-ahead keeps of documents, and documents that are added later.

A docid is M residual codes, and the best words of the document are kept beside it; there is no vector per
document. The vectors of codes are the quantiser's, which stay with the docids, plus what look-ahead learned.
paper: not in it.

Shapes: N documents, W width, M codes of a document, K codes to choose from at each place.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from gr2.bm25 import BM25
from gr2.data.collection import Document
from gr2.docids.clashes import add_documents
from gr2.docids.codes import code_tokeniser, written
from gr2.docids.docids import Docids
from gr2.model.look_ahead import LookAhead
from gr2.model.residual_encoder import encode_residual
from gr2.model.vector_storage import CodeVectors
from gr2.model.word_weights import WordWeights

Floats = NDArray[np.float32]
MOST = 256
"""Codes to choose from at a place, at most: a code is a byte."""


def code_vectors(docids: Docids) -> CodeVectors:
    """The codes of documents, without numbers that tell clashes apart, with the quantiser's vectors."""
    places, choices = int(docids.about["places"]), int(docids.about["choices"])
    if docids.code_vectors is None or choices > MOST:
        raise ValueError(f"expected docids with codebooks of at most {MOST} codes, found {choices}")
    tokens = np.array([row[:places] for row in docids.tokens], np.int64).reshape(-1, places)
    books = docids.code_vectors[: places * choices].reshape(places, choices, -1)
    return CodeVectors((tokens - choices * np.arange(places)).astype(np.uint8), np.ascontiguousarray(books))


def with_documents(
    look_ahead: LookAhead,
    docids: Docids,
    documents: Sequence[Document],
    vectors: Floats,
    words: BM25,
    *,
    fingerprint: str,
) -> tuple[LookAhead, Docids]:
    """Look-ahead and docids with further documents; nothing is trained, and known documents stay as they are.

    Args:
        look_ahead: of the known documents.
        docids: of the known documents, with the codebooks that encode the further ones.
        documents: the further ones.
        vectors: [N, W] of these, made as those that the codebooks were learned from.
        words: an index of all documents, which weighs the words of the further ones.
        fingerprint: of the collection with the further documents.
    """
    if not isinstance(look_ahead.vectors, CodeVectors) or not isinstance(look_ahead.bm25, WordWeights):
        raise ValueError("expected look-ahead of codes and words")
    found = _with_codes(docids, documents, vectors, fingerprint)
    codes = code_vectors(found).codes
    offsets, memory = look_ahead.offsets, look_ahead.memory
    if isinstance(offsets, CodeVectors):
        offsets = replace(offsets, codes=codes)
    if memory is not None:
        place = np.array([found.index[docno] for docno in look_ahead.docnos])
        gains = memory.gains.tocoo()
        shape = (gains.shape[0], len(found))
        moved = sparse.csr_matrix((gains.data, (gains.row, place[gains.col])), shape=shape)
        memory = replace(memory, gains=moved)
    best = WordWeights.of(words, look_ahead.config.kept_words)
    whole = replace(
        look_ahead,
        docnos=found.docnos,
        vectors=replace(look_ahead.vectors, codes=codes),
        bm25=look_ahead.bm25.joined(best, found.docnos),
        offsets=offsets,
        memory=memory,
    )
    return whole, found


def _with_codes(docids: Docids, documents: Sequence[Document], vectors: Floats, fingerprint: str) -> Docids:
    """The docids with those of further documents, by the kept codebooks and the clash rule."""
    books = code_vectors(docids).vectors
    codes = encode_residual(vectors, books).tolist()
    rows = zip(documents, codes, strict=True)
    proposals = {document.docno: [(written(row), 0.0)] for document, row in rows}
    tokenise = code_tokeniser([books.shape[1]] * len(books))
    return add_documents(docids, proposals, tokenise, fingerprint=fingerprint)
