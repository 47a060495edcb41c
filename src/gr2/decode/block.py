"""Rows of unequal numbers per query ↔ one padded block.

Shapes: B queries, N rows, M the most rows of a query.
"""

import torch
from torch import Tensor

NOTHING = -torch.inf
"""The score of what does not exist."""


class Block:
    """The place of each of N rows, sorted by query, in a block [B, M]."""

    def __init__(self, query: Tensor, batch: int) -> None:
        """Count the rows of each query.

        Args:
            query: [N] the query of each row, ascending; at least one row.
            batch: B.
        """
        count = torch.bincount(query, minlength=batch)  # [B]
        self.shape = (batch, int(count.max()))
        place = torch.arange(len(query), device=query.device) - (count.cumsum(0) - count)[query]
        self.at = query * self.shape[1] + place  # [N]

    def spread(self, rows: Tensor, empty: float = 0.0) -> Tensor:
        """Rows [N, ...] → block [B, M, ...], `empty` where a query has fewer rows."""
        block = rows.new_full((self.shape[0] * self.shape[1], *rows.shape[1:]), empty)
        return block.index_copy_(0, self.at, rows).view(*self.shape, *rows.shape[1:])

    def collect(self, block: Tensor) -> Tensor:
        """Block [B, M, ...] → rows [N, ...]."""
        return block.flatten(0, 1).index_select(0, self.at)

    def numbers(self) -> Tensor:
        """The number of the row at each place [B, M]; 0 where there is none."""
        return self.spread(torch.arange(len(self.at), device=self.at.device))

    def best(self, values: Tensor, most: int) -> tuple[Tensor, Tensor]:
        """The (at most) `most` highest values [N] of each query and their rows; -inf where there is none."""
        top, at = self.spread(values, NOTHING).topk(min(most, self.shape[1]), dim=1)
        return top, self.numbers().gather(1, at)
