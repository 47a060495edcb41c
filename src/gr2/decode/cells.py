"""Tokens → decoder states: one step over any mixture of rows, depths and queries.

Each token the decoder has read is a cell: its keys and values are written once and never moved. A row is the
list of its cells, so beams with a common prefix share its cells and nothing is copied when beams are
reordered. One step may read one token per row (beam search), rows of different depths (best-first search) or
several tokens per row (a forced stretch): to the decoder these are all new cells with their ancestors. Keys
and values of the encoder's states are computed once per query.

Shapes: B queries, N new cells, R rows, T tokens so far, S source tokens, H heads, E width of a head, D width.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from gr2.decode.block import Block
from gr2.decode.decoder import Decoder, Layer
from gr2.decode.kernels import attend


class Cells:
    """The cells of one batch of queries, on the decoder's device."""

    def __init__(self, decoder: Decoder, states: Tensor, mask: Tensor, longest: int, *, keep: bool) -> None:
        """Compute keys and values of the encoder's states.

        Args:
            decoder: the weights.
            states: [B, S, width] of the encoder, padded, on any device.
            mask: [B, S], nonzero where there is a token.
            longest: the most tokens a row can have, the start included.
            keep: keep the final state of every cell, for representations.
        """
        if decoder.longest is not None and longest > decoder.longest:
            raise ValueError(f"docids need {longest} decoder positions; the model has {decoder.longest}")
        states, mask = states.to(decoder.embedding), mask.to(decoder.device)  # device and precision
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
            query: [R] the query of each row, ascending.
            parent: [R] the last cell of each row, -1 if it has none.
            tokens: [N] the next tokens, row after row.
            counts: [R] the number of tokens of each row, at least one.

        Returns:
            The new cells of each row [N], row after row, and their states [N, D], final norm included.
        """
        last = counts.cumsum(0) - 1  # [R] each row's last new cell, counted from the first new one
        row = torch.repeat_interleave(counts, output_size=len(tokens))  # [N]
        new = self._register(parent, last, row, counts)
        self.rows.index_add_(0, query, counts)
        state = self._forward(tokens, query[row], new)
        if self.states is not None:
            self.states[new] = state
        return torch.arange(new.start, new.stop, device=tokens.device), state

    def _register(self, parent: Tensor, last: Tensor, row: Tensor, counts: Tensor) -> slice:
        """Enter the new cells with their lengths and ancestors."""
        start, stop = self.used, self.used + len(row)
        self._reserve(stop)
        before = self.length[parent].masked_fill(parent < 0, 0)[row]  # [N] tokens read in earlier steps
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
        """Make room for `size` cells; the room at least doubles when it grows."""
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
        block = None if self.batch == 1 else Block(query, self.batch)
        x = decoder.embedding[tokens]  # [N, D]
        if decoder.positions is not None:
            x = x + decoder.positions[length - 1]
        if decoder.first_norm is not None:
            x = decoder.first_norm(x)
        for number, layer in enumerate(decoder.layers):
            x = self._layer(number, layer, x, new, past, block)
        return x if decoder.last_norm is None else decoder.last_norm(x)

    def _layer(
        self, number: int, layer: Layer, x: Tensor, new: slice, past: Tensor, block: Block | None
    ) -> Tensor:
        decoder = self.decoder
        norm = layer.norms

        def itself(x: Tensor) -> Tensor:
            query, key, value = layer.self_in(x).chunk(3, 1)  # [N, H·E] each
            keys, values, scale = self.keys[number], self.values[number], decoder.attention_scale
            keys[new], values[new] = key, value
            return layer.self_out(attend(query, keys, values, past, self.length[new], self.bias, scale))

        def cross(x: Tensor) -> Tensor:
            return layer.cross_out(self._cross_attention(layer.cross_in(x), number, block))

        def dense(x: Tensor) -> Tensor:
            up = layer.up(x)
            if decoder.gated:
                gate, up = up.chunk(2, 1)
                return layer.down(decoder.activation(gate) * up)
            return layer.down(decoder.activation(up))

        for part, normalise in zip((itself, cross, dense), norm, strict=True):
            x = x + part(normalise(x)) if decoder.pre_norm else normalise(x + part(x))
        return x

    def _cross_attention(self, query: Tensor, number: int, block: Block | None) -> Tensor:
        """[N, H·E] → [N, H·E]: each cell attends to the source tokens of its query."""
        keys, values = self.memory[number]
        padded = query.unsqueeze(0) if block is None else block.spread(query)  # [B, R, H·E]
        mixed = F.scaled_dot_product_attention(
            padded.view(*padded.shape[:2], *self.split).transpose(1, 2),  # [B, H, R, E]
            keys,
            values,
            attn_mask=self.visible,
            scale=self.decoder.attention_scale,
        )
        out = mixed.transpose(1, 2).flatten(2)  # [B, R, H·E]
        return out[0] if block is None else block.collect(out)


def _bias_table(decoder: Decoder, longest: int) -> Tensor:
    """The bias added to attention scores by distance [longest, H]."""
    if decoder.distance_bias is None:
        return decoder.embedding.new_zeros(longest, decoder.heads)
    distance = torch.arange(longest, device=decoder.device).clamp_max(decoder.distance_bias.shape[1] - 1)
    return decoder.distance_bias[:, distance].T.contiguous()
