"""Encoder states computed once, for training with a frozen encoder; on a CPU this saves most of the work.

Every query and text is encoded before the first step and stored as 16-bit floats without padding; a batch's
states are then looked up instead of computed. The name of a file of states is a hash of the encoder's weights
and the tokens, so a resumed run, or another run with the same encoder and texts, finds it.
"""

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from gr2.model.network import Network
from gr2.model.padding import padded
from gr2.store import atomic_file
from gr2.training.batches import Batch, Examples

STATES = "states."
"""Prefix of the names of files of states."""


class EncoderCache:
    """The states of all examples; passed to `train` as `read`."""

    def __init__(
        self,
        network: Network,
        examples: Examples,
        *,
        folder: Path | None = None,
        batch: int = 64,
        progress: bool = False,
    ) -> None:
        """Encode all examples, or load their states from the folder if given; new states are saved there."""
        encoder = b"" if folder is None else _digest(network)
        self.queries = _Rows(network, examples.queries, encoder, folder, batch, progress)
        self.texts = _Rows(network, examples.texts, encoder, folder, batch, progress)

    @property
    def nbytes(self) -> int:
        """The size of the states in bytes."""
        return self.queries.states.nbytes + self.texts.states.nbytes

    def __call__(self, network: Network, batch: Batch) -> tuple[Tensor, Tensor]:
        """The states of the batch's queries and of its texts, as 32-bit floats."""
        return (
            self.queries.padded(batch.query_index, batch.query_mask),
            self.texts.padded(batch.text_index, batch.text_mask),
        )


class _Rows:
    """The states of many texts in one array."""

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

        order = lengths.argsort(descending=True, stable=True)  # slowest first, for a safe estimate
        network.eval()
        with tqdm(total=len(order), unit="text", leave=False, disable=not progress) as bar:
            for rows in torch.split(order, batch) if len(order) else ():  # split would return one empty part
                self._encode(network, [sources[row] for row in rows.tolist()], rows)
                bar.update(len(rows))

    @torch.no_grad()
    def _encode(self, network: Network, sources: list[Sequence[int]], rows: Tensor) -> None:
        ids, mask = padded(sources)
        states = network.encode(ids.to(network.device), mask.to(network.device)).cpu()
        self.states[self._places(rows, mask)] = states[mask.bool()].half()

    def _places(self, rows: Tensor, mask: Tensor) -> Tensor:
        """The positions of these rows' tokens in the array, row by row."""
        return (self.start[rows][:, None] + torch.arange(mask.shape[1]))[mask.bool()]

    def padded(self, rows: Tensor, mask: Tensor) -> Tensor:
        """The states [B, S, W] on the mask's device, zeros at padding; the cache itself is on the CPU."""
        real = mask.bool().cpu()
        states = torch.zeros(*mask.shape, self.states.shape[1])
        states[real] = self.states[self._places(rows.cpu(), real)].float()
        return states.to(mask.device)


def _digest(network: Network) -> bytes:
    """A hash of the weights that produce the states: the encoder and the bridge after it."""
    found = blake2b(digest_size=16)
    for part in (network.encoder, network.bridge):
        for name, value in sorted(part.state_dict().items()):
            found.update(name.encode())
            found.update(value.detach().contiguous().cpu().numpy().tobytes())
    return found.digest()


def _name(encoder: bytes, sources: Sequence[Sequence[int]]) -> str:
    """A hash of the encoder and of the tokens it reads."""
    found = blake2b(encoder, digest_size=8)
    for source in sources:
        found.update(np.asarray([len(source), *source], np.int32).tobytes())
    return found.hexdigest()
