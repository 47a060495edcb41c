"""Queries, judgements, texts and docids → batches in which every query has docids of several grades.

A batch is a pure function of the seed and the step: resuming needs no stored state, and the ranks of a
distributed run take every n-th batch without overlap. The judged documents of a grade take turns (`per_grade`
at a time), so that every pair is seen over the epochs. Texts of similar length share a batch. Batches are
made on the CPU; the loop moves them to the device.

Shapes: B queries, D docid rows (a docid of two queries is two rows), T tokens, S source tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gr2.model.padding import padded
from gr2.training.config import BatchConfig

Ints = NDArray[np.int64]
BUCKET = 32
"""Batches whose texts are sorted by length together; with more, batches would vary too little."""


@dataclass(frozen=True)
class Examples:
    """The training data, as token ids and docid indices."""

    queries: Sequence[Sequence[int]]
    """Source tokens of each training query."""
    judged: Sequence[Mapping[int, Sequence[int]]]
    """For each query: grade → docid indices, grades of at least 1."""
    texts: Sequence[Sequence[int]]
    """Source tokens of each document text."""
    text_docids: Sequence[int]
    """The docid index of each text."""
    self_negatives: Sequence[Sequence[int]] = field(default=())
    """For each query: irrelevant docids that the model ranked high; empty before the self-negative stage."""

    @property
    def levels(self) -> int:
        """L, the highest grade of a training judgement; 1 without any."""
        return max((grade for grades in self.judged for grade in grades), default=1)


@dataclass(frozen=True)
class Batch:
    """The input of one step. Docid rows are sorted by query; document texts are separate."""

    queries: Tensor  # [B, S] source tokens, padded with 0
    query_mask: Tensor  # [B, S]
    owner: Tensor  # [D] the query of each row
    docids: Tensor  # [D] the docid of each row
    grades: Tensor  # [B, D] grade where the row is the query's own, else 0
    negatives: Tensor  # [B, D]
    elsewhere: Tensor  # [B, R·M] negatives among the rows of all R ranks, M per rank; [B, 0] for one rank
    texts: Tensor  # [N, S]
    text_mask: Tensor  # [N, S]
    text_docids: Tensor  # [N]
    query_index: Tensor  # [B] index into the queries of the examples
    text_index: Tensor  # [N] index into the texts of the examples

    @property
    def examples(self) -> int:
        """Number of query-docid pairs and texts."""
        return len(self.docids) + len(self.text_docids)

    @property
    def sizes(self) -> dict[str, int]:
        """The number of examples of each term of the loss."""
        return {"mle_q": len(self.queries), "mle_d": len(self.texts)}

    def parts(self, count: int) -> list["Batch"]:
        """The batch in at most so many parts, in order, each padded to its own longest source."""
        queries, texts = (
            torch.arange(len(ids), device=ids.device).tensor_split(count)
            for ids in (self.queries, self.texts)
        )
        parts = zip(queries, texts, strict=True)
        return [self._part(some, others) for some, others in parts if len(some) + len(others)]

    def _part(self, queries: Tensor, texts: Tensor) -> "Batch":
        """The part with these queries and their docid rows, and with these texts."""
        rows = torch.nonzero(torch.isin(self.owner, queries))[:, 0]
        source, text = (
            int(mask.sum(1).max()) if len(mask) else 0
            for mask in (self.query_mask[queries], self.text_mask[texts])
        )
        return Batch(
            self.queries[queries, :source],
            self.query_mask[queries, :source],
            self.owner[rows] - (queries[0] if len(queries) else 0),
            self.docids[rows],
            self.grades[queries][:, rows],
            self.negatives[queries][:, rows],
            self.elsewhere[queries],
            self.texts[texts, :text],
            self.text_mask[texts, :text],
            self.text_docids[texts],
            self.query_index[queries],
            self.text_index[texts],
        )


class Batches:
    """The batches of a training run, by step."""

    def __init__(
        self, examples: Examples, config: BatchConfig, *, seed: int = 0, rank: int = 0, ranks: int = 1
    ) -> None:
        """Batches of these examples; `rank` of `ranks` gets its own."""
        if not examples.texts and not examples.queries:
            raise ValueError("there is nothing to train on: no query and no document text")
        self.examples, self.config, self.seed, self.rank, self.ranks = examples, config, seed, rank, ranks
        self.relevant = [{d for docids in grades.values() for d in docids} for grades in examples.judged]
        self._query_order = lru_cache(2)(
            lambda epoch: self._order(examples.queries, config.queries, 0, epoch)
        )
        self._text_order = lru_cache(2)(lambda epoch: self._order(examples.texts, config.texts, 1, epoch))

    def __getitem__(self, step: int) -> Batch:
        """The batch of a step: the same for the same seed, whichever batches were read before."""
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

    def _rows(self, queries: Sequence[int], epoch: int) -> tuple[list[int], list[int], list[int]]:
        """The query, docid and grade of each row; self-negatives have grade 0."""
        rows: list[tuple[int, int, int]] = []
        for place, query in enumerate(queries):
            for grade, candidates in sorted(self.examples.judged[query].items(), reverse=True):
                rows += [(place, docid, grade) for docid in self._turn(candidates, query, grade, epoch)]
            negatives = self.examples.self_negatives[query] if self.examples.self_negatives else ()
            rows += [(place, docid, 0) for docid in negatives[: self.config.self_negatives]]
        return [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]

    def _turn(self, candidates: Sequence[int], query: int, grade: int, epoch: int) -> list[int]:
        """The docids of a grade whose turn it is: a shuffled cycle, `per_grade` per epoch."""
        count, most = len(candidates), self.config.per_grade
        if count <= most:
            return list(candidates)
        circle = np.random.default_rng([self.seed, 2, query, grade]).permutation(count)
        return [candidates[circle[(epoch * most + i) % count]] for i in range(most)]

    def _negatives(self, queries: Sequence[int], docids: Sequence[int]) -> Tensor:
        """[B, D] True if the row's docid is not judged relevant to the query."""
        rows = [[docid not in self.relevant[query] for docid in docids] for query in queries]
        return torch.tensor(rows, dtype=torch.bool).view(len(queries), len(docids))

    def _elsewhere(self, queries: Sequence[int], step: int) -> Tensor:
        """The same for the rows of other ranks at this step, which every rank can compute itself."""
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
