"""Given docids → their representations for a query, by one teacher-forced pass of the decoder.

Shapes: B queries, R docid rows, T docid tokens with the start, S source tokens, W width, H width of ξ.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gr2.model.network import START, Network


class DocidReader:
    """All docids as tensors, read by the decoder under teacher forcing."""

    def __init__(self, tokens: Sequence[Sequence[int]], device: torch.device) -> None:
        """Convert the tokens of each docid, without start and end."""
        longest = max(map(len, tokens)) + 1
        inputs = np.full((len(tokens), longest), START, np.int64)
        for index, row in enumerate(tokens):
            inputs[index, 1 : len(row) + 1] = row
        self.inputs = torch.from_numpy(inputs).to(device)  # [docids, T]
        self.lengths = torch.tensor([len(row) + 1 for row in tokens], device=device)  # [docids]

    def represent(
        self, network: Network, states: Tensor, mask: Tensor, owner: Tensor, docids: Tensor
    ) -> Tensor:
        """f_id of each row's docid [R], read for its query: states [B, S, W], mask [B, S] → [R, H]."""
        length = int(self.lengths[docids].max())
        hidden = network.decode(states[owner], mask[owner], self.inputs[docids, :length])
        real = torch.arange(length, device=hidden.device) < self.lengths[docids][:, None]
        real[:, 0] = False  # the start token does not belong to the docid
        return network.represent_docid(hidden, real)

    def similarities(
        self, network: Network, states: Tensor, mask: Tensor, owner: Tensor, docids: Tensor
    ) -> Tensor:
        """sim(f_q, f_id) of each row [R], from 0 to 1."""
        f_q = network.represent_query(states, mask)[owner]
        f_id = self.represent(network, states, mask, owner, docids)
        return torch.cosine_similarity(f_q.float(), f_id.float(), dim=1)
