"""What look-ahead should learn from judgements, if anything: chosen by cross-validation on training queries.

Candidates differ in what is learned (nothing, memory, offsets, both), in the negatives of the regression and
in the gate. Each is measured on held-out training queries twice: as they come (`random`), and without the
judgements of the documents that are relevant to them (`disjoint`), because a test query may ask for documents
of either kind. The candidate with the largest mean gain over learning nothing is taken, if the gain is beyond
twice its standard error and neither kind of fold loses more than `TOLERANCE`; so a collection where nothing
carries over keeps φ₀. The weight of words is chosen before, on the same queries: one number cannot overfit.

Shapes: Q queries, N documents, W width.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from gr2.model.look_ahead import LookAhead, Memory
from gr2.training.regression import Judged, RegressionConfig, fit_offsets

Floats = NDArray[np.float32]
DEPTH = 20
GATES: tuple[tuple[float, float] | None, ...] = (None, (0.4, 0.8), (0.5, 0.9))
WORDS = (0.5, 1.0)
MEMORY = (0.0, 0.2, 0.5)
FOLDS = 2
QUERIES = 600
"""Training queries that take part in the cross-validation, at most: a seeded sample."""
ERRORS = 2.0
"""Standard errors by which a gain must differ from 0: some twenty candidates are compared."""
TOLERANCE = 0.005
"""Loss of nDCG@20 in one kind of fold that counts as noise."""


@dataclass(frozen=True)
class Candidate:
    """A way to learn; `regression` None learns no offsets."""

    regression: RegressionConfig | None = None
    gate: tuple[float, float] | None = None
    memory: float = 0.0

    def __str__(self) -> str:
        """As a row of the selection table."""
        if self == Candidate():
            return "nothing"
        parts = [] if self.regression is None else [f"offsets ({self.regression.negatives} negatives)"]
        parts += [f"memory {self.memory:g}"] if self.memory else []
        parts += [] if self.gate is None else [f"gate {self.gate[0]:g} to {self.gate[1]:g}"]
        return ", ".join(parts)


@dataclass(frozen=True)
class Row:
    """A candidate's mean nDCG@20 on held-out training queries."""

    candidate: Candidate
    random: float
    disjoint: float
    gain: float
    """Over learning nothing, mean of both kinds of folds."""
    error: float
    """Standard error of the gain."""


@dataclass(frozen=True)
class Selection:
    """What was chosen, and the table it was chosen from."""

    words: float
    chosen: Candidate
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class TrainingSet:
    """Judged training queries: texts, unit vectors and judgements, row by row."""

    texts: Sequence[str]
    vectors: Floats
    judged: Sequence[Mapping[str, int]]

    def __len__(self) -> int:
        """The number of queries."""
        return len(self.texts)

    def only(self, rows: Sequence[int]) -> "TrainingSet":
        """Some of the queries."""
        picked = list(rows)
        return TrainingSet(
            [self.texts[i] for i in picked], self.vectors[picked], [self.judged[i] for i in picked]
        )


def learn(
    plain: LookAhead, queries: TrainingSet, candidate: Candidate, *, base: Floats | None = None
) -> LookAhead:
    """Look-ahead with what a candidate learns from judged queries; `base` is their φ₀, where it is known."""
    places = {docno: place for place, docno in enumerate(plain.docnos)}
    config = replace(plain.config, gate=candidate.gate, memory=candidate.memory)
    offsets = None
    if candidate.regression is not None:
        known = plain.scores(queries.texts, queries.vectors) if base is None else base
        offsets = fit_offsets(
            torch.from_numpy(queries.vectors),
            torch.from_numpy(known),
            Judged.of(queries.judged, places),
            scale=config.scale,
            config=candidate.regression,
        ).numpy()
    memory = Memory.of(queries.vectors, queries.judged, places)
    return replace(plain, config=config, offsets=offsets, memory=memory)


def ndcg(scores: Floats, judged: Mapping[str, int], docnos: Mapping[str, int], depth: int = DEPTH) -> float:
    """The nDCG (gain 2^g − 1) of documents ranked by score [N]; unjudged documents gain nothing."""
    gains = {docnos[d]: 2.0**g - 1 for d, g in judged.items() if g > 0 and d in docnos}
    if not gains:
        return 0.0
    top = np.argpartition(-scores, min(depth, len(scores) - 1))[:depth]
    top = top[np.argsort(-scores[top], kind="stable")]
    discount = 1 / np.log2(np.arange(2, depth + 2))
    ideal = np.sort(list(gains.values()))[::-1][:depth]
    found = np.array([gains.get(int(place), 0.0) for place in top])
    return float(found @ discount[: len(found)] / (ideal @ discount[: len(ideal)]))


def choose_words(plain: LookAhead, queries: TrainingSet) -> float:
    """The weight of BM25 with the best nDCG@20 on the training queries."""
    if plain.bm25 is None:
        return plain.config.words
    places = {docno: place for place, docno in enumerate(plain.docnos)}
    dense = plain.config.scale * (queries.vectors @ plain.vectors.T)
    words = plain.bm25.scores(queries.texts)
    means = {
        weight: np.mean(
            [
                ndcg(row, judged, places)
                for row, judged in zip(dense + np.float32(weight) * words, queries.judged, strict=True)
            ]
        )
        for weight in WORDS
    }
    return max(WORDS, key=lambda weight: (round(float(means[weight]), 4), -abs(weight - 1.0)))


def candidates() -> list[Candidate]:
    """Learning nothing first, then every combination of offsets, memory and gate."""
    ways = (None, RegressionConfig(negatives="judged"), RegressionConfig(negatives="all"))
    every = (Candidate(way, gate, memory) for way in ways for gate in GATES for memory in MEMORY)
    return [Candidate(), *(one for one in every if one.regression is not None or one.memory)]


def select(
    plain: LookAhead,
    queries: TrainingSet,
    *,
    options: Sequence[Candidate] | None = None,
    seed: int = 0,
    progress: Callable[[str], None] = lambda line: None,
) -> Selection:
    """Choose the weight of words and the candidate.

    Args:
        plain: φ with nothing learned.
        queries: the judged training queries.
        options: the candidates, learning nothing first; None is all of `candidates`.
        seed: of the sample and the folds.
        progress: called with a line for each fold.
    """
    order = np.random.default_rng([seed, len(queries)]).permutation(len(queries))[:QUERIES].tolist()
    sample = queries.only(order)
    words = choose_words(plain, sample)
    plain = plain.with_config(replace(plain.config, words=words))
    options = candidates() if options is None else options
    values: dict[str, list[list[float]]] = {"random": [], "disjoint": []}  # kind → query → candidate
    base = plain.scores(sample.texts, sample.vectors)
    for fold in range(FOLDS):
        held = list(range(fold, len(sample), FOLDS))
        rest = [place for place in range(len(sample)) if place % FOLDS != fold]
        for kind in values:
            progress(f"{kind} fold {fold + 1} of {FOLDS}")
            known, kept = _learned_from(sample, rest, held, disjoint=kind == "disjoint")
            values[kind] += _measured(plain, known, base[kept], sample.only(held), base[held], options)
    rows = _rows(options, {kind: np.array(found) for kind, found in values.items()})
    good = [row for row in rows if row.gain > ERRORS * row.error and _safe(row, rows[0])]
    best = max(good, key=lambda row: row.gain, default=rows[0])
    return Selection(words, best.candidate, tuple(rows))


def _safe(row: Row, nothing: Row) -> bool:
    losses = (nothing.random - row.random, nothing.disjoint - row.disjoint)
    return max(losses) <= TOLERANCE


def _learned_from(
    sample: TrainingSet, rest: Sequence[int], held: Sequence[int], *, disjoint: bool
) -> tuple[TrainingSet, list[int]]:
    """The queries to learn from, and their places; disjoint: without documents relevant to held-out ones."""
    hidden = {d for i in held for d, g in sample.judged[i].items() if g > 0} if disjoint else set()
    judged = {i: {d: g for d, g in sample.judged[i].items() if g > 0 and d not in hidden} for i in rest}
    kept = [i for i in rest if judged[i]]
    return replace(sample.only(kept), judged=[judged[i] for i in kept]), kept


def _measured(
    plain: LookAhead,
    known: TrainingSet,
    known_base: Floats,
    held: TrainingSet,
    held_base: Floats,
    options: Sequence[Candidate],
) -> list[list[float]]:
    """nDCG@20 of each held-out query for each candidate; every regression is fitted once."""
    places = {docno: place for place, docno in enumerate(plain.docnos)}
    if not len(known):
        return [[ndcg(row, j, places)] * len(options) for row, j in zip(held_base, held.judged, strict=True)]
    fitted: dict[RegressionConfig | None, LookAhead] = {}
    for option in options:
        if option.regression not in fitted:
            alone = Candidate(option.regression)
            fitted[option.regression] = learn(plain, known, alone, base=known_base)
    found = []
    for option in options:
        config = replace(plain.config, gate=option.gate, memory=option.memory, words=0.0)
        learned = fitted[option.regression].with_config(config).views(held.texts, held.vectors)
        scores = held_base + sum((learned[name] for name in ("learned", "memory") if name in learned), 0.0)
        found.append([ndcg(row, judged, places) for row, judged in zip(scores, held.judged, strict=True)])
    return [list(row) for row in zip(*found, strict=True)]


def _rows(options: Sequence[Candidate], values: Mapping[str, NDArray[np.float64]]) -> list[Row]:
    gains = (values["random"] - values["random"][:, :1] + values["disjoint"] - values["disjoint"][:, :1]) / 2
    return [
        Row(
            option,
            float(values["random"][:, place].mean()),
            float(values["disjoint"][:, place].mean()),
            float(gains[:, place].mean()),
            float(gains[:, place].std(ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else np.inf,
        )
        for place, option in enumerate(options)
    ]
