"""The trade-off of the radius |r|: a larger one gives more unique but less relevant docids (paper §3.1).

The scale of |r| depends on the latent space, so it is chosen for each trained model. Docids are generated at
several radii, and two things are measured at each: relevance (does the docid find its own document, with BM25
and in the latent space) and distinctness (share of unique docids, mean distance between docids).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gr2.bm25 import BM25
from gr2.data.collection import Collection
from gr2.evaluate.tables import render
from gr2.schemes.fusion import latent
from gr2.schemes.fusion.generator import DocidGenerator
from gr2.schemes.round_trip import by_round_trip, ranks_of
from gr2.schemes.self_retrieval import SETTINGS, reciprocal_ranks

NEAR = 3
"""Documents per neighbourhood in a sample: enough to clash, few enough for many neighbourhoods."""
WORDS = 32
"""Leading words of a document that are the query to find its neighbours."""


@dataclass(frozen=True)
class AtRadius:
    """Measurements at one radius, over the first proposal of each document."""

    radius: float
    documents: int
    """Documents for which docids were generated: all, or a sample of neighbourhoods."""
    found: float
    """MRR of a docid's own document, with BM25 over the whole collection."""
    error: float
    """Standard error of `found`."""
    near: float
    """MRR of a docid's own document among `documents`, by the similarity of the docid's e_q to e_d."""
    unique: float
    """Share of documents whose first proposal no other document has."""
    distance: float
    """Mean of 1 − cosine between the e_q of two docids."""


def compare_radii(
    writer: DocidGenerator,
    collection: Collection,
    radii: Sequence[float],
    folder: Path,
    *,
    sample: int | None = None,
    progress: bool = False,
) -> list[AtRadius]:
    """Generate docids at each radius and measure their relevance and distinctness.

    Args:
        writer: a trained generator with a latent space.
        collection: the documents to generate docids for.
        radii: the radii to compare.
        folder: where proposals are saved, so that an interrupted run can continue.
        sample: maximum number of documents; None means all.
        progress: show progress bars.
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
        if weight := here.config.round_trip:
            proposals = by_round_trip(proposals, ranks_of(proposals, index), weight)
        first = {docno: rows[0][0] for docno, rows in proposals.items()}
        found.append(_at(radius, writer, index, first, e_d))
    return found


def neighbourhoods(texts: Mapping[str, str], index: BM25, sample: int) -> dict[str, str]:
    """A sample of the documents (docno → text): random ones, each with its nearest neighbours by BM25.

    Docids clash between similar documents; a purely random sample would hide most clashes.
    """
    docnos = sorted(texts)
    order = [docnos[place] for place in np.random.default_rng(0).permutation(len(docnos))[:sample]]
    begin = {docno: " ".join(texts[docno].split()[:WORDS]) for docno in order}
    run = index.search(begin, NEAR)
    found = [near for docno in order for near in (docno, *run.docnos(docno))]
    kept = list(dict.fromkeys(found))[:sample]
    return {docno: texts[docno] for docno in sorted(kept)}


def _at(
    radius: float, writer: DocidGenerator, index: BM25, first: Mapping[str, str], e_d: Mapping[str, Tensor]
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
    """The radius with the most unique docids that keeps enough relevance.

    Enough means the share `keeping` of both relevances at the smallest radius. Radius 0 samples nothing and
    serves only for comparison. If no radius keeps enough, the smallest one above 0 is suggested.
    """
    order = sorted(rows, key=lambda row: row.radius)
    others = [row for row in order if row.radius > 0] or order
    first = order[0]
    kept = [row for row in others if row.found >= keeping * first.found and row.near >= keeping * first.near]
    return max(kept or others[:1], key=lambda row: (row.unique, -row.radius)).radius


def as_table(rows: Sequence[AtRadius]) -> str:
    """A Markdown table with one row per radius."""
    head = [
        "radius",
        "MRR of its document: BM25",
        "in the latent space",
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
    """The rows as plain dictionaries, for JSON."""
    return [asdict(row) for row in rows]
