"""Decoder states → log-probabilities of the children of trie nodes.

There are two normalisers. `vocabulary` is the softmax over all tokens (transformers, the paper). `trie` is
the softmax over a node's children: all probability lies on docids, a single child is certain, and only the
children's rows of the output layer are needed. Only with `trie` can a prior over the children be added to
their logits.

Shapes: B queries, R rows, C children of all rows, D width, V vocabulary, K scores of a prior.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from gr2.decode.decoder import Decoder
from gr2.decode.kernels import pair_dots
from gr2.decode.paths import Paths

Normaliser = Literal["vocabulary", "trie"]
CHUNK = 128
"""Rows per product with the whole output layer: the prepacked one is fastest at this size."""
WIDE = 1024
"""With more children than this, the whole output layer is cheaper than single rows of it."""


@dataclass(frozen=True, kw_only=True)
class NodePrior:
    """Scores of nodes that are added to the decoder's logits, by query.

    A node's score is the logsumexp of a range of K scores, 0 if the range is empty. The ranges of a node's
    children are adjacent and together are the node's range.
    """

    low: Tensor
    """[nodes] The first score of each node's range."""
    high: Tensor
    """[nodes] The end of the range, exclusive."""
    scores: Tensor
    """[B, K] The scores for each query of the batch."""

    def to(self, device: torch.device) -> "NodePrior":
        """The same prior on a device."""
        if self.low.device == self.high.device == self.scores.device == device:
            return self
        return NodePrior(low=self.low.to(device), high=self.high.to(device), scores=self.scores.to(device))

    def score(self, query: Tensor, child: Tensor) -> Tensor:
        """The score [C] of each child node [C] for its query [C]; gradients flow to `scores`."""
        low = self.low[child].long()  # [C]
        count = self.high[child].long() - low  # [C]
        pair = torch.repeat_interleave(count)  # [E] the child of each score of each range
        begin = count.cumsum(0) - count
        column = torch.arange(len(pair), device=pair.device) - (begin - low)[pair]
        value = self.scores.flatten().index_select(0, query[pair] * self.scores.shape[1] + column)
        total = segment_logsumexp(value, pair, len(child))
        return total.masked_fill(count == 0, 0.0)


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
        nodes: [R] the node of each row.
        normaliser: "vocabulary" or "trie".
        prior: added to the logits (trie normaliser only).

    Returns:
        Row, child node and log-probability, each [C], row after row.
    """
    row, token, child = paths.children(nodes)
    if normaliser == "vocabulary":
        return row, child, _over_vocabulary(decoder, states, row, token).clamp_max_(0.0)
    logits = _of_children(decoder, states, row, token, paths.count(nodes)).float()
    if prior is not None:
        logits = logits + prior.score(query[row], child)
    total = segment_logsumexp(logits, row, len(nodes))
    return row, child, (logits - total[row]).nan_to_num(nan=-torch.inf, neginf=-torch.inf).clamp_max_(0.0)


def segment_logsumexp(values: Tensor, segment: Tensor, segments: int) -> Tensor:
    """Logsumexp of the values [C] of each segment → [segments]; -inf for one without finite values."""
    most = values.new_full((segments,), -torch.inf).scatter_reduce_(0, segment, values.detach(), "amax")
    safe = most.clamp_min(torch.finfo(values.dtype).min)  # -inf minus -inf would be NaN
    total = values.new_zeros(segments).index_add(0, segment, (values - safe[segment]).exp())
    return safe + total.log()


def _over_vocabulary(decoder: Decoder, states: Tensor, row: Tensor, token: Tensor) -> Tensor:
    """The log-probabilities of the children [C], normalised over the vocabulary.

    log_softmax and not logsumexp: the latter takes ten times longer where logits differ by more than 87,
    because it sums denormal numbers.
    """
    if len(states) <= CHUNK:
        return decoder.logits(states).float().log_softmax(1)[row, token]
    starts = range(0, len(states), CHUNK)
    edges = torch.searchsorted(row, torch.tensor([*starts, len(states)], device=row.device)).tolist()
    parts = []
    for number, start in enumerate(starts):
        logp = decoder.logits(states[start : start + CHUNK]).float().log_softmax(1)  # [CHUNK, V]
        part = slice(edges[number], edges[number + 1])
        parts.append(logp[row[part] - start, token[part]])
    return torch.cat(parts)


def _of_children(decoder: Decoder, states: Tensor, row: Tensor, token: Tensor, count: Tensor) -> Tensor:
    """The logits of the children alone [C]: by single rows of the output layer, or by all for wide nodes."""
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
