"""Queries → docids, as `GR2.search` finds them, with a filter and the path of each docid through the trie.

This file knows no HTTP.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gr2.batches import padded
from gr2.decode import Ranked, beam
from gr2.model import GR2
from gr2.network import FIRST

BEAMS = 20  # as `GR2.search` has them


@dataclass(frozen=True)
class Asked:
    """One query, how many documents it wants, and which it may get."""

    text: str
    k: int = 10
    allowed: tuple[int, ...] | None = None
    """Docid indices; None: all."""


@dataclass(frozen=True)
class Found:
    """The answer to a query: docid indices and scores, best first."""

    docids: tuple[int, ...]
    scores: tuple[float, ...]
    proven: bool
    """No allowed document outside the list has a better score; False: not known."""
    cut: bool
    """The query is longer than the model reads, so only its beginning was."""


@dataclass(frozen=True)
class Step:
    """One token of a docid."""

    text: str
    """With a space before it where a word begins."""
    choices: int
    """How many tokens the trie allows there; 1: there was nothing to decide."""


class Engine:
    """A model made ready for many short calls; not for several threads at a time."""

    def __init__(self, model: GR2) -> None:
        """Prepare what `GR2.search` prepares for each call."""
        self.model = model
        self.model.network.eval()
        self._decoder = model.network.decoder_for_search()
        self._pieces = _pieces(model)

    @torch.inference_mode()
    def search(self, asked: Sequence[Asked]) -> list[Found]:
        """Answer a batch; queries with as many beams and the same filter go through the decoder together."""
        rows = self.model.read([one.text for one in asked])
        cut = [self._is_cut(one.text, row) for one, row in zip(asked, rows, strict=True)]
        found = [Found((), (), proven=True, cut=False)] * len(asked)
        groups: dict[tuple[int, tuple[int, ...] | None], list[int]] = {}
        for place, (one, row) in enumerate(zip(asked, rows, strict=True)):
            if row and one.allowed != ():  # a text without a token asks for nothing
                groups.setdefault((max(BEAMS, one.k), one.allowed), []).append(place)
        for (beams, allowed), places in groups.items():
            most = max(asked[place].k for place in places)
            ranked = self._decode([rows[place] for place in places], beams, most, allowed)
            for at, place in enumerate(places):
                docids, scores = (part[: asked[place].k].tolist() for part in ranked[at])
                proven = bool(ranked.proven[at])
                found[place] = Found(tuple(docids), tuple(scores), proven=proven, cut=cut[place])
        return found

    def path(self, docid: int) -> tuple[Step, ...]:
        """The tokens of a docid as steps from the root, without its end."""
        trie, steps = self.model.trie, []
        node = _parent(trie.first, int(trie.leaf_of([docid])[0]))  # the leaf itself is the end
        while node:
            parent = _parent(trie.first, node)
            steps.append((int(trie.token[node - 1]), int(trie.first[parent + 1] - trie.first[parent])))
            node = parent
        labels = self._labels(docid, [token for token, _ in reversed(steps)])
        return tuple(Step(text, count) for text, (_, count) in zip(labels, reversed(steps), strict=True))

    def _decode(self, rows: list[list[int]], beams: int, k: int, allowed: tuple[int, ...] | None) -> Ranked:
        network = self.model.network
        ids, mask = padded(rows)
        states = network.encode(ids, mask)
        prior = network.prefer(ids, states, mask)
        how: dict[str, Any] = {"k": k, "normaliser": self.model.config.normaliser, "prior": prior}
        return beam(self._decoder, self.model.trie, states, mask, beams=beams, allowed=allowed, **how)

    def _is_cut(self, text: str, row: list[int]) -> bool:
        longest = self.model.config.longest
        return len(row) >= longest and len(self.model.tokenizer(text)["input_ids"]) > longest

    def _labels(self, docid: int, tokens: list[int]) -> list[str]:
        if self._pieces is not None:
            return [self._pieces[token - FIRST] for token in tokens]
        codes, _, number = self.model.docids.texts[docid].partition(" ")
        labels = [f" {code}" for code in codes.split("-")] + list(number)
        return labels if len(labels) == len(tokens) else [f" {token - FIRST}" for token in tokens]


def _parent(first: np.ndarray[Any, np.dtype[np.int32]], node: int) -> int:
    return int(np.searchsorted(first, np.int32(node - 1), side="right")) - 1


def _pieces(model: GR2) -> list[str] | None:
    """The text of each token of the alphabet, a space before those that begin a word; None for codes.

    Made once, here: a fast tokenizer must not be asked by two threads at a time.
    """
    if "codes" in model.docids.about:
        return None
    tokens = model.alphabet.tolist()
    raw = [str(token) for token in model.tokenizer.convert_ids_to_tokens(tokens)]
    texts = model.tokenizer.batch_decode([[token] for token in tokens])
    begins = [token[:1] in ("▁", "Ġ") for token in raw]
    if not any(begins):  # WordPiece marks the pieces that do not begin a word instead
        begins = [not token.startswith("##") for token in raw]
    clean = [text.strip().removeprefix("##") for text in texts]
    return [f" {text}" if begin else text for text, begin in zip(clean, begins, strict=True)]
