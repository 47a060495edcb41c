"""A search that goes only where allowed documents are.

A filter narrows what may be written, not what probabilities are over: children that lead to no allowed
document are scored with the others and then dropped. So a document has the score it has without the filter.
"""

import torch
from torch import Tensor

from gr2.decode.search import Search


class Narrowed(Search):
    """A search whose rows go on only to nodes on the paths to allowed leaves."""

    keep: Tensor

    def allow(self, leaves: Tensor) -> None:
        """Mark the nodes on the paths to these leaves; there must be one."""
        nodes = leaves.to(self.paths.first.device)
        self.keep = torch.zeros(len(self.paths.first) - 1, dtype=torch.bool, device=nodes.device)
        while len(nodes):
            self.keep[nodes] = True
            nodes = torch.unique(self.paths.parent(nodes[nodes > 0]))
            nodes = nodes[~self.keep[nodes]]

    def score(self, state: Tensor, query: Tensor, node: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The children [C] of each row as without a filter, less those that lead to nothing allowed."""
        row, child, gain = super().score(state, query, node)
        kept = self.keep[child]
        return row[kept], child[kept], gain[kept]
