"""The space that documents and queries share: L_Rel, L_Div, L_Docid, vectors on a sphere (paper §3.1).

Pure functions on tensors: row i of the documents' representations and row i of the queries' are a pair. This
file knows no network and no text.

Shapes: B pairs, Z width of the latent space.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Similarity = Literal["cosine", "dot"]


def similarity(a: Tensor, b: Tensor, kind: Similarity = "cosine") -> Tensor:
    """The sim of each row of a [B, Z] and each row of b [B, Z] → [B, B].

    # paper: the dot product. It has no bound, and β = 30 times it runs away; so cosine, with `dot` to choose.
    """
    if kind == "cosine":
        a, b = F.normalize(a, dim=1), F.normalize(b, dim=1)
    return a @ b.T


def relevance(
    e_d: Tensor,
    e_q: Tensor,
    *,
    kind: Similarity = "cosine",
    temperature: float = 1.0,
    log: bool = True,
) -> Tensor:
    """L_Rel: each document shall be nearer to its own query than to the other queries of the batch.

    # paper: minus the mean softmax ratio itself (`log=False`); its logarithm, cross-entropy, is what trains.
    """
    scores = similarity(e_d, e_q, kind) / temperature
    own = torch.log_softmax(scores, 1).diagonal()
    return -(own if log else own.exp()).mean()


def distinctness(e_d: Tensor, e_q: Tensor, *, kind: Similarity = "cosine") -> Tensor:
    """L_Div (Eq. diversity): documents apart, queries apart, and a document near its query."""
    count = len(e_d)
    apart = sum(
        (near.sum() - near.diagonal().sum()) / max(1, count * (count - 1))
        for near in (similarity(e_d, e_d, kind), similarity(e_q, e_q, kind))
    )
    return apart - similarity(e_d, e_q, kind).diagonal().mean()


def filling(
    documents: Tensor, queries: Tensor, width: int, *, spread: float = 0.3
) -> tuple[Tensor, Tensor, Tensor]:
    """Maps that make pooled states [N, W] of documents and of queries fill the space from the start.

    Pooled states of a language model have most in common with each other, and what tells texts apart is weak:
    a random map sends all of them to nearly one place, from where L_Div and L_Rel lead them nowhere. So each
    kind is centred, and the strongest directions of both get the same strength. # paper: not in it.

    Args:
        documents: [N, W] pooled states of documents.
        queries: [M, W] those of queries.
        width: Z.
        spread: the standard deviation of each coordinate, before tanh.

    Returns:
        The weights [K, W] for both, K ≤ Z as many as there are directions, and the biases [K] of each.
    """
    centres = documents.mean(0), queries.mean(0)
    both = torch.cat([documents - centres[0], queries - centres[1]])
    _, strengths, directions = torch.linalg.svd(both, full_matrices=False)
    strengths = strengths / len(both) ** 0.5
    known = int((strengths > 1e-3 * strengths[0].clamp_min(1e-9)).sum())
    kept = min(width, known)
    weights = spread * directions[:kept] / strengths[:kept, None]
    return weights, -(weights @ centres[0]), -(weights @ centres[1])


def docid_loss(
    generator: Tensor,
    autoencoder: Tensor,
    rel: Tensor,
    div: Tensor,
    *,
    alpha: float = 1.0,
    beta: float = 30.0,
) -> Tensor:
    """L_Docid (Eq. docid) = L_MLE of both models + α·L_Rel + β·L_Div."""
    return generator + autoencoder + alpha * rel + beta * div


def on_sphere(e_d: Tensor, noise: Tensor, radius: float) -> Tensor:
    """The z = e_d + r with r on the surface of the sphere of this radius, with the noise [B, Z].

    Gaussian noise makes every direction equally likely. # paper: z may leave the bounds of the space;
    here each coordinate is kept inside them, so that the decoder sees what it may have been trained on.
    """
    r = radius * F.normalize(noise, dim=1)
    return (e_d + r).clamp(-1, 1) if radius else e_d
