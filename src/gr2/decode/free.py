"""Encoder states → the likeliest token sequences, by beam search without a trie: proposals for new docids.

The search is that of transformers' `generate` with `early_stopping="never"`: at each step the best 2·beams
continuations of each text are ranked; those that end among the first `beams` are finished, and the best
`beams` others continue, until none of them can overtake the worst finished one.

Shapes: B texts, K beams, R rows (live beams), M the most rows of a text, V tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gr2.decode.block import NOTHING, Block
from gr2.decode.cells import Cells
from gr2.decode.decoder import Decoder


@dataclass(frozen=True)
class Written:
    """A token sequence, without start and end, and its score."""

    tokens: tuple[int, ...]
    score: float


@torch.inference_mode()
def free_beam(
    decoder: Decoder,
    states: Tensor,
    mask: Tensor,
    *,
    end: int,
    beams: int = 10,
    longest: int = 32,
    length_penalty: float = 1.0,
    never: Sequence[int] = (),
) -> list[list[Written]]:
    """The best sequences of each text, best first, at most `beams` of them.

    Args:
        decoder: the weights; the search runs on their device.
        states: [B, S, width] what the decoder attends to, padded.
        mask: [B, S] nonzero where there is a token.
        end: the token that ends a sequence.
        beams: the number of prefixes of a text that continue after each step.
        longest: the most tokens of a sequence, without the end.
        length_penalty: a score is the sum of log-probabilities divided by the length, end included, to this
            power.
        never: tokens that are never generated; their probability is not redistributed.
    """
    if beams < 1 or longest < 1:
        raise ValueError(f"expected at least 1 beam and 1 token, found {beams} and {longest}")
    if not len(states):
        return []
    search = _Free(decoder, states, mask, end, beams, longest, length_penalty, never)
    for depth in range(longest + 1):
        if not search.step(depth):
            break
    return search.finished


class _Free:
    """The state of one batch: live rows, their tokens, and the finished sequences."""

    def __init__(
        self,
        decoder: Decoder,
        states: Tensor,
        mask: Tensor,
        end: int,
        beams: int,
        longest: int,
        penalty: float,
        never: Sequence[int],
    ) -> None:
        self.decoder, self.end, self.beams, self.longest, self.penalty = decoder, end, beams, longest, penalty
        self.cells = Cells(decoder, states, mask, longest + 1, keep=False)
        batch, device = len(states), decoder.device
        self.never = torch.tensor(never, dtype=torch.long, device=device)
        self.text = torch.arange(batch, device=device)  # [R]
        self.score = torch.zeros(batch, device=device)  # [R] sums of log-probabilities
        self.cell = torch.full((batch,), -1, device=device)  # [R] the last one read
        self.token = torch.full((batch,), decoder.start, device=device)  # [R] the next one to read
        self.past: list[tuple[int, ...]] = [()] * batch  # of each row, `token` included, the start not
        self.finished: list[list[Written]] = [[] for _ in range(batch)]

    def step(self, depth: int) -> bool:
        """Read one token in each row; returns whether any row continues."""
        cells, state = self.cells.extend(self.text, self.cell, self.token, torch.ones_like(self.text))
        gain = torch.log_softmax(self.decoder.logits(state).float(), 1)  # [R, V]
        gain.index_fill_(1, self.never, NOTHING)
        if depth == self.longest:  # only the end may follow
            ends = gain[:, self.end].clone()
            gain.fill_(NOTHING)[:, self.end] = ends
        value, row, token = self._ranked(self.score[:, None] + gain)
        kept: list[tuple[int, int, float]] = []
        for text, (values, rows, tokens) in enumerate(
            zip(value.tolist(), row.tolist(), token.tolist(), strict=True)
        ):
            going = 0
            for place, (v, r, t) in enumerate(zip(values, rows, tokens, strict=True)):
                if v == NOTHING or going == self.beams:
                    break
                if t == self.end:
                    if place < self.beams:
                        self._finish(text, Written(self.past[r], v / (depth + 1) ** self.penalty))
                    continue
                going += 1
                if self._useful(text, v, depth):
                    kept.append((r, t, v))
        return self._go_on(kept, cells)

    def _ranked(self, total: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The best 2·beams continuations of each text [B, 2K]: value, row and token."""
        width = min(2 * self.beams, total.shape[1])
        best, token = total.topk(width, dim=1)  # [R, 2K] no text takes more of one row
        block = Block(self.text, len(self.finished))
        each = block.spread(best, NOTHING).flatten(1)  # [B, M·2K]
        value, at = each.topk(min(2 * self.beams, each.shape[1]), dim=1)
        row = block.numbers().gather(1, at // width)
        return value, row, token[row, at % width]

    def _finish(self, text: int, one: Written) -> None:
        done = self.finished[text]
        done.append(one)
        done.sort(key=lambda written: (-written.score, written.tokens))
        del done[self.beams :]

    def _useful(self, text: int, score: float, depth: int) -> bool:
        """Whether a row can still rank among the best: its present score at the most favourable length."""
        done = self.finished[text]
        if len(done) < self.beams:
            return True
        length = self.longest + 1 if self.penalty > 0 else depth + 2
        return bool(score / length**self.penalty >= done[-1].score)

    def _go_on(self, kept: list[tuple[int, int, float]], cells: Tensor) -> bool:
        device = self.text.device
        rows = torch.tensor([row for row, _, _ in kept], dtype=torch.long, device=device)
        self.text, self.cell = self.text[rows], cells[rows]
        self.token = torch.tensor([token for _, token, _ in kept], dtype=torch.long, device=device)
        self.score = torch.tensor([score for _, _, score in kept], dtype=torch.float32, device=device)
        self.past = [(*self.past[row], token) for row, token, _ in kept]
        return bool(kept)
