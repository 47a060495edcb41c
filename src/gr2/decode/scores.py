"""Decoder states become log-probabilities of the children of trie nodes.

Two normalisers: `vocabulary` divides by the sum over all tokens the model knows (transformers, the paper),
`trie` by the sum over the children alone, so that all probability lies on docids and a single child is
certain. Only the second needs no output layer over the vocabulary, and only there can a prior of the children
join the logits. This file knows no search and no layer.

Shapes: B queries, R rows, C children of all rows, D width, V vocabulary, P width of a prior vector.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from gr2.decode.kernels import pair_dots
from gr2.decode.paths import Paths
from gr2.decode.weights import Decoder

Normaliser = Literal["vocabulary", "trie"]
CHUNK = 128
"""Rows whose logits over the vocabulary exist at a time: the prepared output layer is fastest there."""
WIDE = 1024
"""With more children than this the whole output layer is cheaper than single rows of it."""


@dataclass(frozen=True, kw_only=True)
class NodePrior:
    """A score for each (query, child), added to the child's logit: ``scale · ⟨query, vector⟩ + bias``.

    Only children of branching nodes need a vector, and not all of those: one without takes its bias alone.
    """

    slot: Tensor
    """[nodes] The row of each node in `vectors`, -1 for none."""
    vectors: Tensor
    """[slots, P], for example the mean of the document vectors below a node."""
    queries: Tensor
    """[B, P] The vector of each query of the batch."""
    scale: float = 1.0
    bias: Tensor | None = None
    """[nodes], for example the logarithm of the docids below; None is 0."""

    @property
    def nbytes(self) -> int:
        """The bytes that grow with the collection."""
        tensors = [self.slot, self.vectors] + ([] if self.bias is None else [self.bias])
        return sum(tensor.nbytes for tensor in tensors)

    def score(self, query: Tensor, child: Tensor) -> Tensor:
        """The score [C] of each child node [C] for its query [C]."""
        slot = self.slot[child].long()
        known = torch.nonzero(slot >= 0)[:, 0]
        used = slot[known]
        if len(used) and int(used.max()) >= len(self.vectors):
            raise ValueError(f"a node prior of {len(self.vectors)} vectors names the slot {int(used.max())}")
        dots = pair_dots(self.vectors, used, self.queries, query[known])
        score = dots.new_zeros(len(child)).index_copy_(0, known, dots * self.scale)
        return score if self.bias is None else score + self.bias[child]


def child_scores(
    decoder: Decoder,
    paths: Paths,
    states: Tensor,
    query: Tensor,
    nodes: Tensor,
    normaliser: Normaliser,
    prior: NodePrior | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The children of each row's node and their log-probabilities, never above 0.

    Args:
        decoder: for its output layer.
        paths: the trie.
        states: [R, D] the decoder state of each row.
        query: [R] the query of each row.
        nodes: [R] the node where each row stands.
        normaliser: "vocabulary" or "trie".
        prior: added to the logits (trie normaliser only).

    Returns:
        Row, child node and log-probability, each [C], row after row.
    """
    row, token, child = paths.children(nodes)
    if normaliser == "vocabulary":
        return row, child, _over_vocabulary(decoder, states, row, token).clamp_max_(0.0)
    logits = _of_children(decoder, states, row, token, paths.count(nodes))
    if prior is not None:
        logits = logits + prior.score(query[row], child)
    total = segment_logsumexp(logits, row, len(nodes))
    return row, child, (logits - total[row]).nan_to_num(nan=-torch.inf, neginf=-torch.inf).clamp_max_(0.0)


def segment_logsumexp(values: Tensor, segment: Tensor, segments: int) -> Tensor:
    """Logsumexp of the values [C] of each segment → [segments]; -inf where there is nothing above it."""
    most = values.new_full((segments,), -torch.inf).scatter_reduce_(0, segment, values, "amax")
    safe = most.clamp_min(torch.finfo(values.dtype).min)  # -inf minus -inf would be NaN
    total = values.new_zeros(segments).index_add_(0, segment, (values - safe[segment]).exp())
    return safe + total.log()


def _over_vocabulary(decoder: Decoder, states: Tensor, row: Tensor, token: Tensor) -> Tensor:
    """The log-probabilities of the children [C], normalised over the vocabulary.

    log_softmax and not logsumexp: the latter takes ten times longer where logits differ by more than 87,
    because it sums numbers too small for float32's fast arithmetic.
    """
    if len(states) <= CHUNK:
        return decoder.logits(states).log_softmax(1)[row, token]
    starts = range(0, len(states), CHUNK)
    edges = torch.searchsorted(row, torch.tensor([*starts, len(states)], device=row.device)).tolist()
    parts = []
    for number, start in enumerate(starts):
        logp = decoder.logits(states[start : start + CHUNK]).log_softmax(1)  # [CHUNK, V]
        part = slice(edges[number], edges[number + 1])
        parts.append(logp[row[part] - start, token[part]])
    return torch.cat(parts)


def _of_children(decoder: Decoder, states: Tensor, row: Tensor, token: Tensor, count: Tensor) -> Tensor:
    """The logits of the children alone [C]: single rows of the output layer, or all where there are many."""
    wide = count > WIDE  # [R]
    if not bool(wide.any()):
        return _rows_of_head(decoder, states, row, token)
    logits = states.new_empty(len(row))
    many = wide[row]  # [C]
    place = wide.cumsum(0) - 1  # [R] among the wide rows
    logits[many] = decoder.logits(states[wide])[place[row[many]], token[many]]
    logits[~many] = _rows_of_head(decoder, states, row[~many], token[~many])
    return logits


def _rows_of_head(decoder: Decoder, states: Tensor, row: Tensor, token: Tensor) -> Tensor:
    scaled = states * decoder.head_scale if decoder.head_scale != 1 else states
    logits = pair_dots(decoder.head_rows, token, scaled, row)
    return logits if decoder.head_bias is None else logits + decoder.head_bias[token]
