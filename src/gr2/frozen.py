"""Encoder states computed once, for training while the encoder stands still: on a CPU most of a step's work.

Every query and text is encoded before the first step and kept as 16-bit floats, behind each other without
padding; a batch's states are then read and not computed. Knows no loss and no docids.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from gr2.batches import Batch, Examples, padded
from gr2.network import Network


class FrozenStates:
    """The states of all examples; call it with a batch, as `train` does."""

    def __init__(
        self, network: Network, examples: Examples, *, batch: int = 64, progress: bool = False
    ) -> None:
        """Encode everything once."""
        self.queries = _Rows(network, examples.queries, batch, progress)
        self.texts = _Rows(network, examples.texts, batch, progress)

    @property
    def nbytes(self) -> int:
        """What the states take, in bytes."""
        return self.queries.states.nbytes + self.texts.states.nbytes

    def __call__(self, network: Network, batch: Batch) -> tuple[Tensor, Tensor]:
        """The states of the batch's queries and of its texts, as 32-bit floats."""
        return (
            self.queries.padded(batch.query_index, batch.query_mask),
            self.texts.padded(batch.text_index, batch.text_mask),
        )


class _Rows:
    """The states of many texts, row behind row."""

    def __init__(
        self, network: Network, sources: Sequence[Sequence[int]], batch: int, progress: bool
    ) -> None:
        from tqdm import tqdm

        lengths = torch.tensor([len(source) for source in sources], dtype=torch.long)
        self.start = lengths.cumsum(0) - lengths
        self.states = torch.zeros(int(lengths.sum()), network.head.in_features, dtype=torch.float16)
        order = lengths.argsort(descending=True, stable=True)  # the slowest first: no surprise at the end
        network.eval()
        with tqdm(total=len(order), unit="text", leave=False, disable=not progress) as bar:
            for rows in torch.split(order, batch):
                self._encode(network, [sources[row] for row in rows.tolist()], rows)
                bar.update(len(rows))

    @torch.no_grad()
    def _encode(self, network: Network, sources: list[Sequence[int]], rows: Tensor) -> None:
        ids, mask = padded(sources)
        self.states[self._places(rows, mask)] = network.encode(ids, mask)[mask.bool()].half()

    def _places(self, rows: Tensor, mask: Tensor) -> Tensor:
        """Where the real tokens of these rows are kept, row by row."""
        return (self.start[rows][:, None] + torch.arange(mask.shape[1]))[mask.bool()]

    def padded(self, rows: Tensor, mask: Tensor) -> Tensor:
        """[B, S, W], zeros where the mask is not set."""
        states = torch.zeros(*mask.shape, self.states.shape[1])
        states[mask.bool()] = self.states[self._places(rows, mask)].float()
        return states
