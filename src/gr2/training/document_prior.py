"""Judged queries → β, how much the features of documents count, or nothing if that gains nothing.

b_d = βᵀz_d is added to φ of every query. β minimises the same graded loss as offsets do, over all documents,
so it says which kind of document people judge relevant before they ask. It has three numbers, so it carries
over to documents without judgements; cross-validation must still show a gain beyond two standard errors.

Shapes: Q queries, N documents, F features.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from gr2.training.judged import TrainingSet
from gr2.training.learner import Learner
from gr2.training.plain_views import standard_error
from gr2.training.regression import RegressionConfig, fit_offsets
from gr2.training.regression_loss import Judged

Floats = NDArray[np.float32]
FOLDS = 4
ERRORS = 2.0
"""Standard errors by which the gain must differ from 0."""


def choose_prior(learner: Learner, features: Floats, queries: TrainingSet, variant: str) -> tuple[float, ...]:
    """β of all queries if held-out queries gain from the β of the others; else empty.

    Args:
        learner: φ₀ without a prior.
        features: [N, F].
        queries: the judged queries.
        variant: the loss.
    """
    if len(queries) < 2 * FOLDS:
        return ()
    base = learner.plain.scores(queries.texts, queries.vectors)
    before = np.array(learner.ndcg(base, queries.judged))
    after = np.zeros(len(queries))
    for fold in range(FOLDS):
        held = np.arange(fold, len(queries), FOLDS)
        rest = np.setdiff1d(np.arange(len(queries)), held)
        prior = features @ fitted(learner, features, queries.only(rest.tolist()), base[rest], variant)
        after[held] = learner.ndcg(base[held] + prior, queries.only(held.tolist()).judged)
    gains = after - before
    if not gains.mean() > ERRORS * standard_error(gains[:, None])[0]:
        return ()
    return tuple(round(float(weight), 4) for weight in fitted(learner, features, queries, base, variant))


def fitted(learner: Learner, features: Floats, queries: TrainingSet, base: Floats, variant: str) -> Floats:
    """β [F] that minimises the loss on these queries, given their φ₀ `base` [Q, N]."""
    found: Floats = fit_offsets(
        torch.ones(len(queries), 1),  # in place of a query's vector: the same for every query
        torch.from_numpy(base),
        Judged.of(queries.judged, learner.places),
        scale=1.0,
        config=RegressionConfig(variant=variant, own=False, shared="features", negatives="all"),
        features=sparse.csr_matrix(features),
        of_features=True,
    ).numpy()
    return found[:, 0]
