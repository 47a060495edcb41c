"""What look-ahead should learn from judgements, if anything: chosen by cross-validation.

Candidates differ in what is learned (nothing, memory, offsets of documents or of terms, or both), in the
split they learn from, in the negatives and the decay of the regression, and in the gate. Each is measured on
held-out queries twice: as they come (`random`), and without the judgements of the documents that are relevant
to them (`disjoint`), because a later query may ask for documents that nobody asked for before. Held-out
queries are those of the split `dev` if it has enough, else of `train`. The candidate with the largest gain
over learning nothing is taken, if the gain is beyond twice its standard error and the disjoint folds do not
lose more than `TOLERANCE` beyond their standard error; so a collection where nothing carries over keeps φ₀.
Which vectors are used (of the leading text, the mean over pieces, or that and the best piece) and the weight
of words are chosen before, on the same queries; the usual ones are kept unless others are better by more than
a standard error.

Shapes: Q queries, N documents, W width.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gr2.model.look_ahead import LookAhead, Memory
from gr2.training.candidates import DECAYS, Candidate, candidates
from gr2.training.judged import TrainingSet, Unencoded
from gr2.training.learner import Learner
from gr2.training.regression import RegressionConfig

Floats = NDArray[np.float32]
WORDS = (0.5, 1.0)
ENOUGH = 50
"""Judged queries of `dev` from which on candidates are measured there instead of on `train`."""
FOLDS, FEW = (2, 4), 300
"""Folds, and folds for fewer queries than `FEW`, where a half is too little to learn from."""
ITERATIONS = 15
"""Iterations of a regression in the cross-validation: it is compared, not kept."""
QUERIES = 600
"""Queries that take part in the cross-validation, at most: a seeded sample of each split."""
ERRORS = 2.0
"""Standard errors by which a gain must differ from 0: dozens of candidates are compared."""
TOLERANCE = 0.005
"""Loss of nDCG@20 in disjoint folds that counts as noise."""


@dataclass(frozen=True)
class Row:
    """A candidate's mean nDCG@20 on held-out queries."""

    candidate: Candidate
    random: float
    disjoint: float
    gain: float
    """Over learning nothing, in random folds."""
    error: float
    """Standard error of the gain."""
    loss: float
    """Of disjoint folds against learning nothing, less its standard error."""


@dataclass(frozen=True)
class Selection:
    """What was chosen, and the table it was chosen from."""

    vectors: str
    """The kind of vectors."""
    words: float
    chosen: Candidate
    rows: tuple[Row, ...]
    weights: tuple[tuple[str, float, float], ...] = ()
    """Kind of vectors, weight of words and nDCG@20 of φ₀, as compared."""
    measured: str = "train"
    """The split whose queries were held out."""


def choose_weights(
    views: Mapping[str, LookAhead], queries: TrainingSet
) -> tuple[str, float, tuple[tuple[str, float, float], ...]]:
    """The kind of vectors and the weight of BM25 with the best nDCG@20 of φ₀, and all that were compared.

    The first kind with the configured weight is kept unless another is better by more than a standard error.
    """
    usual = next(iter(views)), next(iter(views.values())).config.words
    values: dict[tuple[str, float], list[float]] = {}
    for kind, plain in views.items():
        dense = plain.with_config(replace(plain.config, words=0.0)).scores(queries.texts, queries.vectors)
        words = None if plain.bm25 is None else plain.bm25.scores(queries.texts)
        for weight in {usual[1], *WORDS} if words is not None else (usual[1],):
            scores = dense if words is None else dense + np.float32(weight) * words
            values[kind, weight] = Learner(plain).ndcg(scores, queries.judged)
    compared = {way: float(np.mean(found)) for way, found in values.items()}
    best = max(sorted(compared), key=lambda way: round(compared[way], 4))
    gains = np.array(values[best]) - np.array(values[usual])
    if gains.mean() <= _error(gains[:, None])[0]:
        best = usual
    return *best, tuple((*way, mean) for way, mean in compared.items())


def select(
    views: Mapping[str, LookAhead],
    splits: Mapping[str, TrainingSet | Unencoded],
    *,
    options: Sequence[Candidate] | None = None,
    variant: str = "gr2",
    seed: int = 0,
    progress: Callable[[str], None] = lambda line: None,
) -> Selection:
    """Choose the vectors, the weight of words and the candidate.

    Args:
        views: φ with nothing learned, by kind of vectors.
        splits: the judged queries, `train` and maybe `dev`.
        options: the candidates, learning nothing first; None is all of `candidates`.
        variant: the loss of these.
        seed: of the samples and the folds.
        progress: called with a line for each step.
    """
    measured = "dev" if len(splits.get("dev", ())) >= ENOUGH or "train" not in splits else "train"
    some = {name: queries.sample(QUERIES, seed) for name, queries in splits.items()}
    held = some[measured]
    progress(f"weights of words and vectors, on {len(held)} queries of {measured}")
    kind, words, compared = choose_weights(views, held)
    plain = views[kind].with_config(replace(views[kind].config, words=words))
    if options is None:
        sources = [name for name in splits if name == "train" or name == measured]
        options = candidates(sources, words=plain.bm25 is not None, variant=variant)
    folds = _Folds(Learner(plain), some, measured, progress)
    rows = folds.rows(options)
    best = _best(rows)
    if best.candidate.regression is not None:
        usual = best.candidate.regression
        others = [
            replace(best.candidate, regression=replace(usual, decay=decay))
            for decay in DECAYS
            if decay != usual.decay
        ]
        rows += folds.rows([options[0], *others])[1:]
        best = _best(rows)
    return Selection(kind, words, best.candidate, tuple(rows), compared, measured)


def _best(rows: Sequence[Row]) -> Row:
    good = [row for row in rows if row.gain > ERRORS * row.error and row.loss <= TOLERANCE]
    return max(good, key=lambda row: row.gain, default=rows[0])


def _error(gains: NDArray[np.float64]) -> NDArray[np.float64]:
    """The standard error of the mean of each column; infinite for a single query."""
    count, columns = gains.shape
    if count < 2:
        return np.full(columns, np.inf)
    error: NDArray[np.float64] = gains.std(0, ddof=1) / np.sqrt(count)
    return error


@dataclass(frozen=True)
class _Folds:
    """Candidates measured on held-out queries."""

    learner: Learner
    splits: Mapping[str, TrainingSet]
    measured: str
    progress: Callable[[str], None]
    others: dict[tuple[str, RegressionConfig | None], LookAhead] = field(default_factory=dict)
    """What was learned from a split that is not measured, which is the same in every random fold."""

    @cached_property
    def base(self) -> dict[str, Floats]:
        """φ₀ of the queries of each split."""
        plain = self.learner.plain
        return {name: plain.scores(queries.texts, queries.vectors) for name, queries in self.splits.items()}

    def rows(self, options: Sequence[Candidate]) -> list[Row]:
        """A row for each candidate; the first learns nothing."""
        count = len(self.splits[self.measured])
        folds = FOLDS[1] if count < FEW else FOLDS[0]
        values = {kind: np.zeros((count, len(options))) for kind in ("random", "disjoint")}
        for fold in range(folds):
            held = np.arange(fold, count, folds)
            for kind, found in values.items():
                self.progress(f"{kind} fold {fold + 1} of {folds}")
                found[held] = self._measured(held, options, disjoint=kind == "disjoint")
        gains = {kind: found - found[:, :1] for kind, found in values.items()}
        errors = {kind: _error(found) for kind, found in gains.items()}
        means = {kind: found.mean(0) for kind, found in values.items()}
        return [
            Row(
                option,
                float(means["random"][place]),
                float(means["disjoint"][place]),
                float(gains["random"][:, place].mean()),
                float(errors["random"][place]),
                float(-gains["disjoint"][:, place].mean() - errors["disjoint"][place]),
            )
            for place, option in enumerate(options)
        ]

    def _measured(
        self, held: NDArray[np.int64], options: Sequence[Candidate], *, disjoint: bool
    ) -> NDArray[np.float64]:
        """nDCG@20 of each held-out query for each candidate; every regression is fitted once."""
        own = self.splits[self.measured]
        asked, base = own.only(held.tolist()), self.base[self.measured][held]
        hidden = {d for row in asked.judged for d, g in row.items() if g > 0} if disjoint else set()
        fitted: dict[tuple[str, RegressionConfig | None], LookAhead] = {} if disjoint else dict(self.others)
        columns = []
        for option in options:
            if not option.learns:
                columns.append(self.learner.ndcg(base, asked.judged))
                continue
            if (option.split, option.regression) not in fitted:
                fitted[option.split, option.regression] = self._fitted(option, held, hidden)
            config = replace(self.learner.plain.config, gate=option.gate, memory=option.memory)
            learned = fitted[option.split, option.regression].with_config(config)
            scores = base + sum(learned.learned_views(asked.vectors).values(), np.float32(0.0))
            columns.append(self.learner.ndcg(scores, asked.judged))
        if not disjoint:
            self.others.update({key: one for key, one in fitted.items() if key[0] != self.measured})
        return np.array(columns).T

    def _fitted(self, option: Candidate, held: NDArray[np.int64], hidden: set[str]) -> LookAhead:
        """What a candidate's regression learns without the held-out queries, with a memory of the rest."""
        queries, rest = self.splits[option.split], list(range(len(self.splits[option.split])))
        if option.split == self.measured:
            rest = sorted(set(rest) - set(held.tolist()))
        known, kept = queries.only(rest).without(hidden)
        learner = self.learner
        if not len(known):
            return learner.plain
        offsets = None
        if option.regression is not None:
            base = self.base[option.split][np.array(rest)[kept]]
            short = replace(option.regression, iterations=ITERATIONS)
            offsets = learner.offsets(known, short, base=base)
        memory = Memory.of(known.vectors, known.judged, learner.places)
        centre = known.vectors.mean(0)
        return replace(learner.plain, offsets=offsets, centre=centre, memory=memory)
