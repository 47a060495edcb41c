"""Queries, judgements, texts and docids → batches in which every query brings docids of several grades.

A batch is a pure function of the seed and the step: nothing has to be remembered to go on after an
interruption, and ranks of a distributed run take every n-th batch without overlap. Judged documents of a
grade take turns (`per_grade` at a time), so that over the epochs every pair is seen. Texts of similar
length share a batch. This file knows no model and no loss.

Shapes: B queries, D docid rows (a docid of two queries is two rows), T tokens, S source tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Ints = NDArray[np.int64]
BUCKET = 32
"""Batches whose texts are sorted by length together; more would make batches too much alike."""


@dataclass(frozen=True)
class Examples:
    """Everything training reads, as token ids and docid indices."""

    queries: Sequence[Sequence[int]]
    """Source tokens of each training query."""
    judged: Sequence[Mapping[int, Sequence[int]]]
    """For each query: grade → docid indices, grades of at least 1."""
    texts: Sequence[Sequence[int]]
    """Source tokens of each text that stands for a document."""
    text_docids: Sequence[int]
    """The docid index of each text."""
    hard: Sequence[Sequence[int]] = field(default=())
    """For each query: docids the model itself wrote wrongly (self-negatives); empty at first."""


@dataclass(frozen=True, kw_only=True)
class BatchConfig:
    """How much a step reads."""

    queries: int = 16
    """Queries of a batch."""
    per_grade: int = 2
    """Docids of each grade that a query brings at a time."""
    texts: int = 44
    """Document texts of a batch."""
    hard: int = 2
    """Self-negatives of each query, where there are some."""


@dataclass(frozen=True)
class Batch:
    """One step's input. Rows are sorted by query, documents' rows are apart."""

    queries: Tensor  # [B, S] source tokens, 0 behind the end
    query_mask: Tensor  # [B, S]
    owner: Tensor  # [D] the query of each row
    docids: Tensor  # [D] the docid of each row
    grades: Tensor  # [B, D] grade where the row is the query's own, else 0
    negatives: Tensor  # [B, D]
    elsewhere: Tensor  # [B, R·M] negatives among the rows of R ranks, M the most of a rank; [B, 0] for one
    texts: Tensor  # [N, S]
    text_mask: Tensor  # [N, S]
    text_docids: Tensor  # [N]
    query_index: Tensor  # [B] which of the examples' queries they are
    text_index: Tensor  # [N]

    @property
    def examples(self) -> int:
        """Query-docid pairs and texts."""
        return len(self.docids) + len(self.text_docids)


class Batches:
    """The batches of a training run, by step."""

    def __init__(
        self, examples: Examples, config: BatchConfig, *, seed: int = 0, rank: int = 0, ranks: int = 1
    ) -> None:
        """Look at lengths once; `rank` of `ranks` gets the batches that are its own."""
        if not examples.texts and not examples.queries:
            raise ValueError("there is nothing to train on: no query and no document text")
        self.examples, self.config, self.seed, self.rank, self.ranks = examples, config, seed, rank, ranks
        self.relevant = [{d for docids in grades.values() for d in docids} for grades in examples.judged]
        self._query_order = lru_cache(2)(
            lambda epoch: self._order(examples.queries, config.queries, 0, epoch)
        )
        self._text_order = lru_cache(2)(lambda epoch: self._order(examples.texts, config.texts, 1, epoch))

    def __getitem__(self, step: int) -> Batch:
        """The batch of a step: the same for the same seed, whatever was asked for before."""
        turn = step * self.ranks + self.rank
        queries, epoch = self._take(self._query_order, len(self.examples.queries), self.config.queries, turn)
        texts, _ = self._take(self._text_order, len(self.examples.texts), self.config.texts, turn)
        owner, docids, row_grades = self._rows(queries, epoch)
        grades = torch.zeros(len(queries), len(docids), dtype=torch.long)
        grades[owner, torch.arange(len(docids))] = torch.tensor(row_grades, dtype=torch.long)
        source, mask = padded([self.examples.queries[q] for q in queries])
        text_source, text_mask = padded([self.examples.texts[t] for t in texts])
        return Batch(
            source,
            mask,
            torch.tensor(owner, dtype=torch.long),
            torch.tensor(docids, dtype=torch.long),
            grades,
            self._negatives(queries, docids),
            self._elsewhere(queries, step),
            text_source,
            text_mask,
            torch.tensor([self.examples.text_docids[t] for t in texts], dtype=torch.long),
            torch.tensor(queries, dtype=torch.long),
            torch.tensor(texts, dtype=torch.long),
        )

    def steps_per_epoch(self) -> int:
        """Steps in which each text is read once and each query at least once."""
        sizes = (
            -(-len(self.examples.queries) // self.config.queries),
            -(-len(self.examples.texts) // self.config.texts),
        )
        return -(-max(sizes) // self.ranks)

    def _rows(self, queries: Sequence[int], epoch: int) -> tuple[list[int], list[int], list[int]]:
        """Owner, docid and grade of each row; self-negatives have grade 0."""
        rows: list[tuple[int, int, int]] = []
        for place, query in enumerate(queries):
            for grade, candidates in sorted(self.examples.judged[query].items(), reverse=True):
                rows += [(place, docid, grade) for docid in self._turn(candidates, query, grade, epoch)]
            hard = self.examples.hard[query] if self.examples.hard else ()
            rows += [(place, docid, 0) for docid in hard[: self.config.hard]]
        return [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]

    def _turn(self, candidates: Sequence[int], query: int, grade: int, epoch: int) -> list[int]:
        """The docids of a grade whose turn it is: a shuffled circle, `per_grade` on each epoch."""
        count, most = len(candidates), self.config.per_grade
        if count <= most:
            return list(candidates)
        circle = np.random.default_rng([self.seed, 2, query, grade]).permutation(count)
        return [candidates[circle[(epoch * most + i) % count]] for i in range(most)]

    def _negatives(self, queries: Sequence[int], docids: Sequence[int]) -> Tensor:
        """Every row whose docid is not judged relevant to the query, whoever brought it."""
        rows = [[docid not in self.relevant[query] for docid in docids] for query in queries]
        return torch.tensor(rows, dtype=torch.bool).view(len(queries), len(docids))

    def _elsewhere(self, queries: Sequence[int], step: int) -> Tensor:
        """The same for the rows that other ranks bring at this step: every rank can draw them all itself."""
        if self.ranks == 1:
            return torch.zeros(len(queries), 0, dtype=torch.bool)
        count, size = len(self.examples.queries), self.config.queries
        turns = range(step * self.ranks, (step + 1) * self.ranks)
        drawn = [self._rows(*self._take(self._query_order, count, size, turn))[1] for turn in turns]
        found = torch.zeros(len(queries), self.ranks, max(map(len, drawn)), dtype=torch.bool)
        for rank, docids in enumerate(drawn):
            if rank != self.rank:
                found[:, rank, : len(docids)] = self._negatives(queries, docids)
        return found.flatten(1)

    def _take(self, order: object, count: int, size: int, turn: int) -> tuple[list[int], int]:
        if not count:
            return [], 0
        per_epoch = -(-count // size)
        epoch, place = divmod(turn, per_epoch)
        batches: list[Ints] = order(epoch)  # type: ignore[operator]
        return [int(i) for i in batches[place]], epoch

    def _order(self, sources: Sequence[Sequence[int]], size: int, kind: int, epoch: int) -> list[Ints]:
        """An epoch's batches: shuffled, sorted by length within buckets, and shuffled again as batches."""
        generator = np.random.default_rng([self.seed, 3 + kind, epoch])
        shuffled = generator.permutation(len(sources))
        lengths = np.array([len(source) for source in sources])
        buckets = [shuffled[i : i + size * BUCKET] for i in range(0, len(shuffled), size * BUCKET)]
        ordered = np.concatenate([bucket[np.argsort(lengths[bucket], kind="stable")] for bucket in buckets])
        batches = [ordered[i : i + size] for i in range(0, len(ordered), size)]
        return [batches[i] for i in generator.permutation(len(batches))]


def padded(sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Token ids of unequal length → ids and mask [B, S], 0 behind each end."""
    ids = torch.zeros(len(sources), max(map(len, sources), default=0), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, source in enumerate(sources):
        ids[row, : len(source)] = torch.tensor(source, dtype=torch.long)
        mask[row, : len(source)] = 1
    return ids, mask
