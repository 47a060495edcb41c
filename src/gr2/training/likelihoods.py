"""Logits under teacher forcing → log P(id ∣ ·), with softmax over the vocabulary or over trie children.

Pure functions on tensors, which keep the precision of their inputs; that should be float32 or better.

Legend: D docid rows, T tokens, V vocabulary, N decoding steps, C trie children of all steps.
"""

from math import inf

import torch
from torch import Tensor
from torch.nn import functional as F


def log_likelihood(logits: Tensor, tokens: Tensor, mask: Tensor, *, smoothing: float = 0.0) -> Tensor:
    """The log P(id ∣ ·) = Σ_t log p(w_t), with softmax over the vocabulary: [D, T, V], [D, T], [D, T] → [D].

    Args:
        logits: [D, T, V] the decoder's logits under teacher forcing.
        tokens: [D, T] the target tokens, including the end.
        mask: [D, T] true for real tokens; padding adds 0.
        smoothing: label smoothing over the vocabulary, as in `F.cross_entropy`.
    """
    wanted = tokens.long().masked_fill(~mask, -100).flatten()  # −100 is ignored by cross_entropy
    loss = F.cross_entropy(logits.flatten(0, 1), wanted, reduction="none", label_smoothing=smoothing)
    return -loss.view_as(tokens).sum(1)  # [D]


def trie_log_likelihood(
    logits: Tensor,
    position: Tensor,
    token: Tensor,
    target: Tensor,
    *,
    prior: Tensor | None = None,
    smoothing: float = 0.0,
) -> Tensor:
    """The log p(w) of each of N steps, with softmax over the children of its trie node only: [N].

    Only docids have probability. A forced step, with a single child, gives exactly 0, and so does its
    gradient. The caller sums the steps of a docid.

    Args:
        logits: [N, V] the decoder's logits at each step.
        position: [C] the step of each child, in any order, as returned by `Trie.children`.
        token: [C] the token of each child.
        target: [N] the target token, one of the step's children.
        prior: [C] added to the logit of each child.
        smoothing: label smoothing over the step's children.

    Raises:
        ValueError: If a target is not among the children of its step.

    >>> logits = torch.tensor([[0.0, 9.0, 0.0, 9.0], [5.0, 1.0, 1.0, 1.0]])
    >>> position, token = torch.tensor([0, 0, 1]), torch.tensor([0, 2, 3])
    >>> trie_log_likelihood(logits, position, token, torch.tensor([2, 3])).exp()
    tensor([0.5000, 1.0000])
    """
    steps, width = logits.shape
    taken = token == target[position]  # [C]
    if int(taken.sum()) != steps:
        found = torch.bincount(position[taken], minlength=steps)
        step = int((found != 1).nonzero()[0])
        raise ValueError(
            f"step {step}: target {int(target[step])} must be exactly one child, found {int(found[step])}"
        )
    child = logits.flatten().index_select(0, position * width + token)  # [C]
    child = child if prior is None else child + prior
    highest = logits.new_full((steps,), -inf).scatter_reduce(0, position, child.detach(), "amax")  # [N]
    child = child - highest[position]
    zeros = logits.new_zeros(steps)
    count = zeros.index_add(0, position, torch.ones_like(child))
    hit = zeros.index_add(0, position, torch.where(taken, child, 0.0))
    if smoothing:
        hit = torch.lerp(hit, zeros.index_add(0, position, child) / count, smoothing)
    normaliser = zeros.index_add(0, position, child.exp()).log()
    return torch.where(count > 1, hit - normaliser, 0.0)  # [N]
