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

import numpy as np
import torch
from torch import Tensor

from gr2.data import Collection
from gr2.docids import latent
from gr2.docids.finding import reciprocal_ranks
from gr2.docids.writing import Writer
from gr2.store import atomic_file
from gr2.tables import render


@dataclass(frozen=True)
class AtRadius:
    """What is written at one radius: the first proposal of each document."""

    radius: float
    found: float
    """MRR of the own document, by BM25 over the whole collection."""
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
        sample: documents to write for at most, drawn from the sorted docnos; None for all.
        progress: whether to show bars.
    """
    if not writer.config.fusion.regularised:
        raise ValueError("a plain generator of pseudo-queries has no latent space and so no radius")
    texts = {document.docno: document.contents for document in collection.documents}
    if sample is not None and sample < len(texts):
        docnos = sorted(texts)
        chosen = np.random.default_rng(0).choice(len(docnos), sample, replace=False)
        texts = {docnos[place]: texts[docnos[place]] for place in sorted(chosen.tolist())}
    e_d = writer.represent_documents(texts)
    found = []
    for radius in radii:
        here = writer.with_radius(radius)
        kept = folder / f"{here.written}-sample-{len(texts)}"
        proposals = here.propose(texts, kept, progress=progress)
        first = {docno: rows[0][0] for docno, rows in proposals.items()}
        found.append(_at(radius, writer, collection, first, e_d))
    return found


def _at(
    radius: float, writer: Writer, collection: Collection, first: Mapping[str, str], e_d: Mapping[str, Tensor]
) -> AtRadius:
    docnos = sorted(first)
    e_q = writer.represent_queries([first[docno] for docno in docnos])
    near = latent.similarity(e_q, torch.stack([e_d[docno] for docno in docnos]))
    ranks = (near > near.diagonal()[:, None]).sum(1) + 1
    apart = latent.similarity(e_q, e_q)
    count = len(docnos)
    total = float(apart.sum() - apart.diagonal().sum())
    how_many = Counter(first.values())
    ranked = reciprocal_ranks(first, collection)
    return AtRadius(
        radius=radius,
        found=sum(ranked.values()) / count,
        near=float((1 / ranks).mean()),
        unique=sum(how_many[text] == 1 for text in first.values()) / count,
        distance=1 - total / max(1, count * (count - 1)),
    )


def suggested(rows: Sequence[AtRadius], *, keeping: float = 0.95) -> float:
    """The radius with most unique docids of those that keep this share of the relevance at the smallest."""
    first = min(rows, key=lambda row: row.radius)
    kept = [row for row in rows if row.found >= keeping * first.found]
    return max(kept, key=lambda row: (row.unique, -row.radius)).radius


def as_table(rows: Sequence[AtRadius]) -> str:
    """A Markdown table, a row for each radius."""
    head = [
        "radius",
        "finds its document: MRR by BM25",
        "… by the latent space",
        "unique docids",
        "mean distance",
    ]
    return render(
        head,
        [
            [f"{r.radius:g}", *(f"{value:.3f}" for value in (r.found, r.near, r.unique, r.distance))]
            for r in rows
        ],
        "markdown",
    )


def as_dicts(rows: Sequence[AtRadius]) -> list[dict[str, float]]:
    """For JSON."""
    return [asdict(row) for row in rows]


def plot(rows: Sequence[AtRadius], path: Path) -> None:
    """Draw relevance and distinctness over the radius, as a .png or .svg file."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError("drawing needs the extra `plots`: pip install 'gr2[plots]'") from error
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    radii = [row.radius for row in rows]
    lines = {
        "relevance: MRR by BM25": [row.found for row in rows],
        "relevance: MRR in the latent space": [row.near for row in rows],
        "distinctness: unique docids": [row.unique for row in rows],
        "distinctness: mean distance": [row.distance for row in rows],
    }
    for name, values in lines.items():
        axes.plot(radii, values, marker="o", label=name, linestyle="-" if "relevance" in name else "--")
    axes.set(xlabel="radius |r|", ylim=(0, 1.05))
    axes.legend()
    with atomic_file(path) as temporary:
        figure.savefig(temporary, format=path.suffix.lstrip(".") or "png", dpi=110)
