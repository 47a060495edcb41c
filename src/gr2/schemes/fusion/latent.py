"""The latent space shared by documents and queries: L_Rel, L_Div, L_Docid, sampling on a sphere (paper §3.1).

Pure functions on tensors: row i of the documents' vectors e_d and row i of the queries' vectors e_q are a
pair.

Shapes: B pairs, Z width of the latent space.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Similarity = Literal["cosine", "dot"]


def similarity(a: Tensor, b: Tensor, kind: Similarity = "cosine") -> Tensor:
    """The similarity of each row of a [B, Z] to each row of b [B, Z] → [B, B].

    # paper: the dot product. It is unbounded, and with β = 30 training diverges; so cosine is the default.
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
    """L_Rel: each document should be nearer to its own query than to the other queries of the batch.

    # paper: minus the mean softmax ratio itself (`log=False`); the default is its logarithm, cross-entropy.
    """
    scores = similarity(e_d, e_q, kind) / temperature
    own = torch.log_softmax(scores, 1).diagonal()
    return -(own if log else own.exp()).mean()


def distinctness(e_d: Tensor, e_q: Tensor, *, kind: Similarity = "cosine") -> Tensor:
    """L_Div (Eq. diversity): pushes documents apart and queries apart, and pulls each pair together."""
    count = len(e_d)
    apart = sum(
        (near.sum() - near.diagonal().sum()) / max(1, count * (count - 1))
        for near in (similarity(e_d, e_d, kind), similarity(e_q, e_q, kind))
    )
    return apart - similarity(e_d, e_q, kind).diagonal().mean()


def filling(
    documents: Tensor, queries: Tensor, width: int, *, spread: float = 0.3
) -> tuple[Tensor, Tensor, Tensor]:
    """Initial projections with which pooled states of documents and queries fill the latent space.

    The pooled states of a language model are all similar, and what distinguishes texts is weak: a random
    projection maps them to nearly the same point, where L_Div and L_Rel give no useful gradient. So documents
    and queries are each centred, and their strongest common directions are scaled to the same variance.
    # paper: does not describe this.

    Args:
        documents: [N, W] pooled states of documents.
        queries: [M, W] pooled states of queries.
        width: Z.
        spread: the standard deviation of each coordinate, before tanh.

    Returns:
        The shared weights [K, W], where K ≤ Z is the number of directions found, and the biases [K] of
        documents and of queries.
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
    """Sample z = e_d + r, with r of length `radius` in the direction of the noise [B, Z].

    Gaussian noise makes every direction equally likely. # paper: z may leave the bounds of the space;
    here each coordinate is clamped to them, so that the decoder sees values like those it was trained on.
    """
    r = radius * F.normalize(noise, dim=1)
    return (e_d + r).clamp(-1, 1) if radius else e_d
