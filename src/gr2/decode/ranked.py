"""The result of a search: docid indices and scores of each query, and what they cost."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True, eq=False, kw_only=True)
class Ranked:
    """The docids found for a batch of queries, best first; query `b` owns ``offsets[b] ... offsets[b + 1]``.

    >>> found = Ranked(
    ...     offsets=np.array([0, 2, 3]),
    ...     docids=np.array([7, 4, 1]),
    ...     scores=np.array([-0.5, -2, -1], np.float32),
    ...     proven=np.array([True, False]),
    ...     rows=np.array([9, 12]),
    ... )
    >>> [docids.tolist() for docids, scores in found]
    [[7, 4], [1]]
    """

    offsets: NDArray[np.int64]
    """[B + 1] Where the docids of each query start and end."""
    docids: NDArray[np.int64]
    """[found] docid indices of the trie."""
    scores: NDArray[np.float32]
    """[found] log-probabilities (divided by a power of the length if a length penalty was given); ties are
    ordered by docid index."""
    proven: NDArray[np.bool_]
    """[B] True: no allowed docid outside the list has a better score. False: not known."""
    rows: NDArray[np.int64]
    """[B] The number of tokens that the decoder read for the query: the cost of the search on any machine."""
    vectors: Tensor | None = None
    """[found, width] the representations of the docids on the decoder's device, if `project` was given."""

    @classmethod
    def of_nothing(cls) -> "Ranked":
        """The result of an empty batch."""
        none = np.zeros(0, np.int64)
        return cls(
            offsets=np.zeros(1, np.int64),
            docids=none,
            scores=none.astype(np.float32),
            proven=none.astype(np.bool_),
            rows=none,
        )

    def __len__(self) -> int:
        """The number of queries."""
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """The docid indices and scores of each query."""
        return (self[query] for query in range(len(self)))

    def __getitem__(self, query: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The docid indices and scores of one query."""
        if not 0 <= query < len(self):
            raise IndexError(f"query {query} of {len(self)}")
        part = slice(int(self.offsets[query]), int(self.offsets[query + 1]))
        return self.docids[part], self.scores[part]
