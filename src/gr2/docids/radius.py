"""What the radius |r| trades: docids near their documents for docids that nobody else has (paper §3.1).

|r| belongs to one latent space only, so it is chosen for each trained model: documents are written for at
several radii, and of each the relevance (does the docid find its own document, by BM25 and in the space of
the autoencoder) and the distinctness (how many are unique, how far they lie apart) are told. This file
trains nothing.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gr2.baselines.sparse import BM25
from gr2.data import Collection
from gr2.docids import latent
from gr2.docids.finding import SETTINGS, reciprocal_ranks
from gr2.docids.writing import Writer
from gr2.tables import render

NEAR = 3
"""Documents of a neighbourhood in a sample: enough to clash, few enough to have many neighbourhoods."""
WORDS = 32
"""Of a document's beginning, by which its neighbours are found."""


@dataclass(frozen=True)
class AtRadius:
    """What is written at one radius: the first proposal of each document."""

    radius: float
    documents: int
    """How many were written for: all, or a sample of neighbourhoods."""
    found: float
    """MRR of the own document, by BM25 over the whole collection."""
    error: float
    """The standard error of that."""
    near: float
    """MRR of the own document among those written for, by similarity of e_q of the docid and e_d."""
    unique: float
    """Share of documents whose first proposal is nobody else's."""
    distance: float
    """Mean of 1 − cosine of e_q of two documents' docids."""


def compare_radii(
    writer: Writer,
    collection: Collection,
    radii: Sequence[float],
    folder: Path,
    *,
    sample: int | None = None,
    progress: bool = False,
) -> list[AtRadius]:
    """Write for documents at each radius and look at what comes out.

    Args:
        writer: a trained model with a latent space.
        collection: whose documents to write for.
        radii: to be compared.
        folder: where what was written is kept, so that an interruption loses little.
        sample: documents to write for at most; None for all.
        progress: whether to show bars.
    """
    if not writer.config.fusion.regularised:
        raise ValueError("a plain generator of pseudo-queries has no latent space and so no radius")
    texts = {document.docno: document.contents for document in collection.documents}
    index = BM25.index(collection.documents, SETTINGS)
    if sample is not None and sample < len(texts):
        texts = neighbourhoods(texts, index, sample)
    e_d = writer.represent_documents(texts)
    found = []
    for radius in radii:
        here = writer.with_radius(radius)
        kept = folder / f"{here.written}-sample-{len(texts)}"
        proposals = here.propose(texts, kept, progress=progress)
        first = {docno: rows[0][0] for docno, rows in proposals.items()}
        found.append(_at(radius, writer, index, first, e_d))
    return found


def neighbourhoods(texts: Mapping[str, str], index: BM25, sample: int) -> dict[str, str]:
    """So many of the documents (docno → text): some by chance, each with those that are most like it.

    Docids clash between documents that are alike; a sample by chance alone would hide most of it.
    """
    docnos = sorted(texts)
    order = [docnos[place] for place in np.random.default_rng(0).permutation(len(docnos))[:sample]]
    begin = {docno: " ".join(texts[docno].split()[:WORDS]) for docno in order}
    run = index.search(begin, NEAR)
    found = [near for docno in order for near in (docno, *run.docnos(docno))]
    kept = list(dict.fromkeys(found))[:sample]
    return {docno: texts[docno] for docno in sorted(kept)}


def _at(
    radius: float, writer: Writer, index: BM25, first: Mapping[str, str], e_d: Mapping[str, Tensor]
) -> AtRadius:
    docnos = sorted(first)
    e_q = writer.represent_queries([first[docno] for docno in docnos])
    near = latent.similarity(e_q, torch.stack([e_d[docno] for docno in docnos]))
    ranks = (near > near.diagonal()[:, None]).sum(1) + 1
    apart = latent.similarity(e_q, e_q)
    count = len(docnos)
    total = float(apart.sum() - apart.diagonal().sum())
    how_many = Counter(first.values())
    ranked = np.array(list(reciprocal_ranks(first, index).values()))
    return AtRadius(
        radius=radius,
        documents=count,
        found=float(ranked.mean()),
        error=float(ranked.std()) / count**0.5,
        near=float((1 / ranks).mean()),
        unique=sum(how_many[text] == 1 for text in first.values()) / count,
        distance=1 - total / max(1, count * (count - 1)),
    )


def suggested(rows: Sequence[AtRadius], *, keeping: float = 0.95) -> float:
    """The radius with most unique docids of those that keep this share of both relevances at the smallest.

    A radius of 0 is there to be compared with: with it nothing is sampled. If no other keeps as much, the
    smallest of them is suggested.
    """
    order = sorted(rows, key=lambda row: row.radius)
    others = [row for row in order if row.radius > 0] or order
    first = order[0]
    kept = [row for row in others if row.found >= keeping * first.found and row.near >= keeping * first.near]
    return max(kept or others[:1], key=lambda row: (row.unique, -row.radius)).radius


def as_table(rows: Sequence[AtRadius]) -> str:
    """A Markdown table, a row for each radius."""
    head = [
        "radius",
        "finds its document: MRR by BM25",
        "… by the latent space",
        f"unique docids of {rows[0].documents:,}",
        "mean distance",
    ]
    return render(
        head,
        [
            [
                f"{r.radius:g}",
                f"{r.found:.3f} ± {r.error:.3f}",
                *(f"{value:.3f}" for value in (r.near, r.unique, r.distance)),
            ]
            for r in rows
        ],
        "markdown",
    )


def as_dicts(rows: Sequence[AtRadius]) -> list[dict[str, Any]]:
    """For JSON."""
    return [asdict(row) for row in rows]
