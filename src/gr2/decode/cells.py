"""Tokens become decoder states: one step over any mixture of rows, depths and queries.

Each token that was ever read is a cell: its keys and values are written once and never moved. A row is the
list of its cells, so beams that share a past share its cells and nothing is re-ordered when beams are. One
step may read one token per row (beam), rows of different depths (best-first) or several tokens per row (a
forced stretch): for the decoder these are all just new cells with their ancestors. Keys and values of the
encoder are computed once per query. This file knows no trie and no score.

Shapes: B queries, N new cells, R rows, T tokens so far, S source tokens, H heads, E width of a head, D width.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from gr2.decode.kernels import attend
from gr2.decode.weights import Decoder, Layer


class Cells:
    """The growing memory of one batch of queries."""

    def __init__(self, decoder: Decoder, states: Tensor, mask: Tensor, longest: int, *, keep: bool) -> None:
        """Read the encoder's states.

        Args:
            decoder: the weights.
            states: [B, S, width] of the encoder, padded.
            mask: [B, S], nonzero where there is a token.
            longest: the most tokens a row can have, the start included.
            keep: keep the last layer's state of every cell, for representations.
        """
        if decoder.longest is not None and longest > decoder.longest:
            raise ValueError(f"docids need {longest} decoder positions; the model has {decoder.longest}")
        self.decoder, self.batch, self.used = decoder, len(states), 0
        self.split = (decoder.heads, decoder.inner // decoder.heads)  # H, E
        self.memory = [self._memory(layer, states) for layer in decoder.layers]
        self.visible = None if bool(mask.all()) else mask.bool()[:, None, None, :]  # [B, 1, 1, S]
        none = states.new_empty(0, decoder.inner)
        self.keys, self.values = [none] * len(decoder.layers), [none] * len(decoder.layers)  # [cells, H·E]
        self.ancestors = states.new_empty(0, longest, dtype=torch.long)  # [cells, T] the cell itself last
        self.length = states.new_empty(0, dtype=torch.long)  # [cells] tokens up to the cell, itself included
        self.rows = states.new_zeros(self.batch, dtype=torch.long)  # [B] tokens read for each query
        self.states: Tensor | None = (
            states.new_empty(0, decoder.embedding.shape[1]) if keep else None
        )  # [cells, D]
        self.bias = _bias_table(decoder, longest)

    def _memory(self, layer: Layer, states: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [B, H, S, E] of the encoder's states for one layer."""
        batch, source, _ = states.shape
        both = layer.memory(states.reshape(batch * source, -1)).view(batch, source, 2, *self.split)
        keys, values = both.permute(2, 0, 3, 1, 4).contiguous()
        return keys, values

    def extend(self, query: Tensor, parent: Tensor, tokens: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Read the next tokens of some rows.

        Args:
            query: [R] which query each row belongs to, ascending.
            parent: [R] the last cell of each row, -1 if it has none.
            tokens: [N] the next tokens, row after row.
            counts: [R] how many of them belong to each row, at least one.

        Returns:
            The new cells of each row [N], row after row, and their states [N, D], final norm included.
        """
        last = counts.cumsum(0) - 1  # [R] where each row's last new cell stands among the new ones
        row = torch.repeat_interleave(counts, output_size=len(tokens))  # [N]
        new = self._register(parent, last, row, counts)
        self.rows.index_add_(0, query, counts)
        state = self._forward(tokens, query[row], new)
        if self.states is not None:
            self.states[new] = state
        return torch.arange(new.start, new.stop, device=tokens.device), state

    def _register(self, parent: Tensor, last: Tensor, row: Tensor, counts: Tensor) -> slice:
        """Give the new cells their places, lengths and ancestors."""
        start, stop = self.used, self.used + len(row)
        self._reserve(stop)
        before = torch.where(parent >= 0, self.length[parent], 0)[row]  # [N] tokens read in earlier steps
        first = (last - counts + 1 + start)[row]  # [N] the first new cell of the row
        place = torch.arange(self.ancestors.shape[1], device=row.device)  # [T]
        offset = place - before[:, None]  # [N, T] among the row's new cells
        self.ancestors[start:stop] = torch.where(
            offset < 0, self.ancestors[parent[row]], first[:, None] + offset
        )
        self.length[start:stop] = torch.arange(start + 1, stop + 1, device=row.device) - first + before
        self.used = stop
        return slice(start, stop)

    def _reserve(self, size: int) -> None:
        """Make room for so many cells, doubling."""
        room = len(self.length)
        if size <= room:
            return
        room = max(size, 2 * room, 64 * self.batch)

        def grown(old: Tensor) -> Tensor:
            new = old.new_empty(room, *old.shape[1:])
            new[: len(old)] = old
            return new

        self.keys, self.values = [grown(x) for x in self.keys], [grown(x) for x in self.values]
        self.ancestors, self.length = grown(self.ancestors), grown(self.length)
        self.states = None if self.states is None else grown(self.states)

    def _forward(self, tokens: Tensor, query: Tensor, new: slice) -> Tensor:
        """The decoder over the new cells → states [N, D]."""
        decoder = self.decoder
        length = self.length[new]
        past = self.ancestors[new, : int(length.max())]  # [N, T]
        pad = None if self.batch == 1 else _Padding(query, self.batch)
        x = decoder.embedding[tokens]  # [N, D]
        if decoder.positions is not None:
            x = x + decoder.positions[length - 1]
        if decoder.first_norm is not None:
            x = decoder.first_norm(x)
        for number, layer in enumerate(decoder.layers):
            x = self._layer(number, layer, x, new, past, pad)
        return x if decoder.last_norm is None else decoder.last_norm(x)

    def _layer(
        self, number: int, layer: Layer, x: Tensor, new: slice, past: Tensor, pad: "_Padding | None"
    ) -> Tensor:
        decoder = self.decoder
        norm = layer.norms

        def itself(x: Tensor) -> Tensor:
            query, key, value = layer.self_in(x).chunk(3, 1)  # [N, H·E] each
            keys, values, scale = self.keys[number], self.values[number], decoder.attention_scale
            keys[new], values[new] = key, value
            return layer.self_out(attend(query, keys, values, past, self.length[new], self.bias, scale))

        def cross(x: Tensor) -> Tensor:
            return layer.cross_out(self._cross_attention(layer.cross_in(x), number, pad))

        def dense(x: Tensor) -> Tensor:
            up = layer.up(x)
            if decoder.gated:
                gate, up = up.chunk(2, 1)
                return layer.down(decoder.activation(gate) * up)
            return layer.down(decoder.activation(up))

        for part, normalise in zip((itself, cross, dense), norm, strict=True):
            x = x + part(normalise(x)) if decoder.pre_norm else normalise(x + part(x))
        return x

    def _cross_attention(self, query: Tensor, number: int, pad: "_Padding | None") -> Tensor:
        """[N, H·E] → [N, H·E]: each cell attends to the source tokens of its query."""
        keys, values = self.memory[number]
        padded = query.unsqueeze(0) if pad is None else pad.spread(query)  # [B, R, H·E]
        mixed = F.scaled_dot_product_attention(
            padded.view(*padded.shape[:2], *self.split).transpose(1, 2),  # [B, H, R, E]
            keys,
            values,
            attn_mask=self.visible,
            scale=self.decoder.attention_scale,
        )
        out = mixed.transpose(1, 2).flatten(2)  # [B, R, H·E]
        return out[0] if pad is None else pad.collect(out)


class _Padding:
    """Rows of unequal numbers per query ↔ one block [B, most, ...]."""

    def __init__(self, query: Tensor, batch: int) -> None:
        per_query = torch.bincount(query, minlength=batch)  # [B]
        self.batch, self.most = batch, int(per_query.max())
        start = per_query.cumsum(0) - per_query
        place = torch.arange(len(query), device=query.device) - start[query]
        self.at = query * self.most + place  # [N]

    def spread(self, x: Tensor) -> Tensor:
        block = x.new_zeros(self.batch * self.most, x.shape[1])
        return block.index_copy_(0, self.at, x).view(self.batch, self.most, -1)

    def collect(self, block: Tensor) -> Tensor:
        return block.reshape(self.batch * self.most, -1).index_select(0, self.at)


def _bias_table(decoder: Decoder, longest: int) -> Tensor:
    """What is added to an attention score by distance [longest, H]."""
    if decoder.distance_bias is None:
        return torch.zeros(longest, decoder.heads, device=decoder.device)
    distance = torch.arange(longest, device=decoder.device).clamp_max(decoder.distance_bias.shape[1] - 1)
    return decoder.distance_bias[:, distance].T.contiguous()
