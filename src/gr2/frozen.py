"""Encoder states computed once, for training while the encoder stands still: on a CPU most of a step's work.

Every query and text is encoded before the first step and kept as 16-bit floats, behind each other without
padding; a batch's states are then read and not computed. A file of them is named after what they depend on,
the encoder's weights and the tokens, so that a run that goes on, or another with the same encoder and texts,
finds its own and nobody else's. Knows no loss and no docids.
"""

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from gr2.batches import Batch, Examples, padded
from gr2.network import Network
from gr2.store import atomic_file

STATES = "states."
"""How the names of files of states begin."""


class FrozenStates:
    """The states of all examples; call it with a batch, as `train` does."""

    def __init__(
        self,
        network: Network,
        examples: Examples,
        *,
        folder: Path | None = None,
        batch: int = 64,
        progress: bool = False,
    ) -> None:
        """Encode everything once, or read it from the folder, if there is one; what is new is kept there."""
        encoder = b"" if folder is None else _digest(network)
        self.queries = _Rows(network, examples.queries, encoder, folder, batch, progress)
        self.texts = _Rows(network, examples.texts, encoder, folder, batch, progress)

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
        self,
        network: Network,
        sources: Sequence[Sequence[int]],
        encoder: bytes,
        folder: Path | None,
        batch: int,
        progress: bool,
    ) -> None:
        lengths = torch.tensor([len(source) for source in sources], dtype=torch.long)
        self.start = lengths.cumsum(0) - lengths
        known = None if folder is None else folder / f"{STATES}{_name(encoder, sources)}.safetensors"
        if known is not None and known.exists():
            self.states = load_file(known)["states"]
            return
        self.states = torch.zeros(int(lengths.sum()), network.head.in_features, dtype=torch.float16)
        self._fill(network, sources, lengths, batch, progress)
        if known is not None:
            with atomic_file(known) as temporary:
                save_file({"states": self.states}, temporary)

    def _fill(
        self,
        network: Network,
        sources: Sequence[Sequence[int]],
        lengths: Tensor,
        batch: int,
        progress: bool,
    ) -> None:
        from tqdm import tqdm

        order = lengths.argsort(descending=True, stable=True)  # the slowest first: no surprise at the end
        network.eval()
        with tqdm(total=len(order), unit="text", leave=False, disable=not progress) as bar:
            for rows in torch.split(order, batch) if len(order) else ():  # split gives one part of nothing
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


def _digest(network: Network) -> bytes:
    """Of all that makes states: the encoder, and the bridge behind it."""
    found = blake2b(digest_size=16)
    for part in (network.encoder, network.bridge):
        for name, value in sorted(part.state_dict().items()):
            found.update(name.encode())
            found.update(value.detach().contiguous().cpu().numpy().tobytes())
    return found.digest()


def _name(encoder: bytes, sources: Sequence[Sequence[int]]) -> str:
    """Of the encoder and of what it reads."""
    found = blake2b(encoder, digest_size=8)
    for source in sources:
        found.update(np.asarray([len(source), *source], np.int32).tobytes())
    return found.hexdigest()
