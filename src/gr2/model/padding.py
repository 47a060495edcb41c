"""Rows of different lengths → a padded tensor and its mask, and means over the tokens that are not padding.

Shapes: B rows, S source tokens, W width.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F


def padded(sources: Sequence[Sequence[int]], device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    """Token ids of different lengths → ids and mask [B, S] on the device, padded with 0.

    >>> ids, mask = padded([[7, 8], [9]])
    >>> ids.tolist(), mask.tolist()
    ([[7, 8], [9, 0]], [[1, 1], [1, 0]])
    """
    ids = torch.zeros(len(sources), max(map(len, sources), default=0), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, source in enumerate(sources):
        ids[row, : len(source)] = torch.tensor(source, dtype=torch.long)
        mask[row, : len(source)] = 1
    return ids.to(device), mask.to(device)  # filled on the host, moved once


def masked_mean(states: Tensor, mask: Tensor) -> Tensor:
    """The mean of the states [B, S, W] where the mask [B, S] is not 0 → [B, W]; 0 for a row of padding only.

    >>> masked_mean(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([[1, 1, 0]]))
    tensor([[2.]])
    """
    each = mask.unsqueeze(-1).to(states)
    return (states * each).sum(1) / each.sum(1).clamp_min(1)


def pooled_query(states: Tensor, mask: Tensor) -> Tensor:
    """The mean of a query's states [B, S, W] over its tokens, with unit norm → [B, W]."""
    return F.normalize(masked_mean(states, mask), dim=1)
