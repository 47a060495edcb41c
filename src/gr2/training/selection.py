"""What look-ahead should learn from judgements, if anything: chosen by cross-validation.

Candidates differ in what is learned (nothing, memory, offsets of documents or of terms, or both), in the
split they learn from, in the negatives and the decay of the regression, and in the gate. Each is measured on
held-out queries twice: as they come (`random`), and without the judgements of the documents that are relevant
to them (`disjoint`), because a later query may ask for documents that nobody asked for before. Held-out
queries are those of the split `dev` if it has enough, else of `train`. The candidate with the largest gain
over learning nothing is taken, if the gain is beyond twice its standard error; so a collection where nothing
carries over keeps φ₀. The gain is the expected one if `SHIFT` of the later queries are of the second kind.
Documents that consist of codes learn offsets of codes alone, and keep neither memory nor prior.
The vectors, the weights of words (`plain_views`) and the prior of documents (`document_prior`) are chosen
before, on the same queries.

Shapes: Q queries, N documents, W width.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gr2.bm25 import BM25
from gr2.model.look_ahead import LookAhead, Memory
from gr2.model.vector_storage import CodeVectors
from gr2.training.candidates import DECAYS, Candidate, candidates
from gr2.training.document_prior import choose_prior
from gr2.training.judged import TrainingSet, Unencoded
from gr2.training.learner import Learner
from gr2.training.plain_views import PlainViews, Weights, choose_weights, standard_error
from gr2.training.regression import RegressionConfig

Floats = NDArray[np.float32]
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
SHIFT = 0.25
"""Share of later queries that are expected to ask for documents that no judged query asks for."""


@dataclass(frozen=True)
class Row:
    """A candidate's mean nDCG@20 on held-out queries."""

    candidate: Candidate
    random: float
    disjoint: float
    gain: float
    """Expected over learning nothing: of random and disjoint folds, weighted by `SHIFT`."""
    error: float
    """Standard error of the gain."""


@dataclass(frozen=True)
class Selection:
    """What was chosen, and the table it was chosen from."""

    weights: Weights
    chosen: Candidate
    rows: tuple[Row, ...]
    compared: tuple[tuple[Weights, float], ...] = ()
    """Weights and the nDCG@20 of φ₀ with them."""
    measured: str = "train"
    """The split whose queries were held out."""


def select(
    views: PlainViews,
    splits: Mapping[str, TrainingSet | Unencoded],
    *,
    options: Sequence[Candidate] | None = None,
    variant: str = "gr2",
    seed: int = 0,
    with_prior: bool = True,
    progress: Callable[[str], None] = lambda line: None,
) -> Selection:
    """Choose the vectors, the weights of words and the candidate.

    Args:
        views: φ with nothing learned.
        splits: the judged queries, `train` and maybe `dev`.
        options: the candidates, learning nothing first; None is all of `candidates`.
        variant: the loss of these.
        seed: of the samples and the folds.
        with_prior: also try what documents have in common whatever a query asks (`document_prior`).
        progress: called with a line for each step.
    """
    measured = "dev" if len(splits.get("dev", ())) >= ENOUGH or "train" not in splits else "train"
    some = {name: queries.sample(QUERIES, seed) for name, queries in splits.items()}
    held = some[measured]
    progress(f"weights of words and vectors, on {len(held)} queries of {measured}")
    weights, compared = choose_weights(views, held)
    codes = isinstance(views.at(weights).vectors, CodeVectors)  # then nothing else is kept of a document
    if with_prior and not codes and not weights.prior:
        progress("which kinds of documents are preferred")
        prior = choose_prior(Learner(views.at(weights)), views.features, held, variant)
        weights = replace(weights, prior=prior)
    plain = views.at(weights)
    if options is None:
        sources = [name for name in splits if name == "train" or name == measured]
        words = isinstance(plain.bm25, BM25)
        options = candidates(sources, words=words, codes=codes, variant=variant)
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
    return Selection(weights, best.candidate, tuple(rows), compared, measured)


def _best(rows: Sequence[Row]) -> Row:
    good = [row for row in rows if row.gain > ERRORS * row.error]
    return max(good, key=lambda row: row.gain, default=rows[0])


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
        expected = (1 - SHIFT) * values["random"] + SHIFT * values["disjoint"]
        gains = expected - expected[:, :1]
        columns = values["random"].mean(0), values["disjoint"].mean(0), gains.mean(0), standard_error(gains)
        return [
            Row(option, *(float(column[place]) for column in columns)) for place, option in enumerate(options)
        ]

    def _measured(
        self, held: NDArray[np.int64], options: Sequence[Candidate], *, disjoint: bool
    ) -> NDArray[np.float64]:
        """nDCG@20 of each held-out query for each candidate; every regression is fitted once."""
        own = self.splits[self.measured]
        asked, base = own.only(held.tolist()), self.base[self.measured][held]
        hidden = {d for row in asked.judged for d, g in row.items() if g > 0} if disjoint else set()
        fitted: dict[tuple[str, RegressionConfig | None], LookAhead] = {} if disjoint else dict(self.others)
        views: dict[tuple[str, RegressionConfig | None], dict[str, Floats]] = {}
        columns = []
        for option in options:
            if not option.learns:
                columns.append(self.learner.ndcg(base, asked.judged))
                continue
            key = option.split, option.regression
            if key not in fitted:
                fitted[key] = self._fitted(option, held, hidden)
            if key not in views:  # without a gate and with weight 1; both are applied below
                whole = replace(self.learner.plain.config, gate=None, memory=1.0)
                views[key] = fitted[key].with_config(whole).learned_views(asked.vectors)
            gated = fitted[key].with_config(replace(self.learner.plain.config, gate=option.gate))
            none = np.zeros((), np.float32)
            learned = views[key].get("learned", none) + option.memory * views[key].get("memory", none)
            scores = base + gated.trust(asked.vectors)[:, None] * learned
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
