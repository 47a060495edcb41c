"""Encoder states become the likeliest token sequences: beam search without a trie, for docids yet to be.

The search is the one of transformers' `generate` with `early_stopping="never"`: at each step the best 2·beams
continuations of each text are ranked; those that end among the first `beams` are finished, and the best
`beams` others go on, until no one that goes on can overtake the worst that is kept. This file knows no text.

Shapes: B texts, K beams, R rows (those that go on), V tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gr2.decode.cells import Cells
from gr2.decode.weights import Decoder

NOTHING = -torch.inf


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
        decoder: the weights.
        states: [B, S, width] what it attends to, padded.
        mask: [B, S] nonzero where there is a token.
        end: the token that ends a sequence.
        beams: how many prefixes of a text go on.
        longest: tokens of a sequence at most, without the end, which is all that may follow them.
        length_penalty: a score is the sum of log-probabilities divided by the length, end included, to this
            power.
        never: tokens that are not written; their probability is lost, not shared out.
    """
    if beams < 1 or longest < 1:
        raise ValueError(f"expected at least 1 beam and 1 token, found {beams} and {longest}")
    search = _Free(decoder, states, mask, end, beams, longest, length_penalty, list(never))
    for depth in range(longest + 1):
        if not search.step(depth):
            break
    return search.finished


class _Free:
    """One batch under way: the rows that go on, their tokens, and what is finished."""

    def __init__(
        self,
        decoder: Decoder,
        states: Tensor,
        mask: Tensor,
        end: int,
        beams: int,
        longest: int,
        penalty: float,
        never: list[int],
    ) -> None:
        self.decoder, self.end, self.beams, self.longest, self.penalty = decoder, end, beams, longest, penalty
        self.never = never
        self.cells = Cells(decoder, states.to(decoder.embedding), mask, longest + 1, keep=False)
        batch = len(states)
        self.text = torch.arange(batch)  # [R]
        self.score = torch.zeros(batch)  # [R] sums of log-probabilities
        self.cell = torch.full((batch,), -1)  # [R] the last one read
        self.token = torch.full((batch,), decoder.start)  # [R] the next one to read
        self.past: list[tuple[int, ...]] = [()] * batch  # of each row, `token` included but for the start
        self.finished: list[list[Written]] = [[] for _ in range(batch)]

    def step(self, depth: int) -> bool:
        """Read one token in each row; whether any goes on."""
        cells, state = self.cells.extend(self.text, self.cell, self.token, torch.ones_like(self.text))
        gain = torch.log_softmax(self.decoder.logits(state).float(), 1)  # [R, V]
        gain[:, self.never] = NOTHING
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
        batch = len(self.finished)
        count = torch.bincount(self.text, minlength=batch)
        place = torch.arange(len(self.text)) - (count.cumsum(0) - count)[self.text]
        most = int(count.max())
        block = torch.full((batch, most, width), NOTHING)
        block[self.text, place] = best
        value, at = block.flatten(1).topk(min(2 * self.beams, most * width), dim=1)
        row = (count.cumsum(0) - count)[:, None] + at // width
        row = row.clamp_max(len(self.text) - 1)
        return value, row, token[row, at % width]

    def _finish(self, text: int, one: Written) -> None:
        done = self.finished[text]
        done.append(one)
        done.sort(key=lambda written: (-written.score, written.tokens))
        del done[self.beams :]

    def _useful(self, text: int, score: float, depth: int) -> bool:
        """Whether a row can still be among the best: at its present score, ended as late as helps it."""
        done = self.finished[text]
        if len(done) < self.beams:
            return True
        length = self.longest + 1 if self.penalty > 0 else depth + 2
        return bool(score / length**self.penalty >= done[-1].score)

    def _go_on(self, kept: list[tuple[int, int, float]], cells: Tensor) -> bool:
        rows = torch.tensor([row for row, _, _ in kept], dtype=torch.long)
        self.text, self.cell = self.text[rows], cells[rows]
        self.token = torch.tensor([token for _, token, _ in kept], dtype=torch.long)
        self.score = torch.tensor([score for _, _, score in kept], dtype=torch.float32)
        self.past = [(*self.past[row], token) for row, token, _ in kept]
        return bool(kept)
