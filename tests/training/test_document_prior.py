"""What documents have in common, whatever a query asks, counts if judgements show that it does."""

from dataclasses import replace

import numpy as np
import pytest

from gr2.data.collection import Document
from gr2.model.config import LookAheadConfig
from gr2.model.document_features import FEATURES, document_features
from gr2.model.look_ahead_io import load_look_ahead, save_look_ahead
from gr2.training.document_prior import choose_prior
from gr2.training.fit_look_ahead import learn_look_ahead
from gr2.training.judged import TrainingSet
from gr2.training.learner import Learner
from gr2.training.plain_views import PlainViews, Weights


def setting(*, shallow: bool, queries: int = 60) -> tuple[PlainViews, TrainingSet]:
    """Pairs of documents that queries cannot tell apart; the relevant one is always shallow, or either."""
    draw = np.random.default_rng(2)
    names = [f"part{i}" for i in range(queries)]
    documents = [Document(f"{name}{end}", text="some words") for name in names for end in ("", ".deep.er")]
    rows = draw.standard_normal((queries, 8)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    wanted = ["" if shallow or draw.random() < 0.5 else ".deep.er" for _ in names]
    judged = [{f"{name}{end}": 2} for name, end in zip(names, wanted, strict=True)]
    config = LookAheadConfig(words=0.0)
    vectors = {"lead": (np.repeat(rows, 2, 0), None)}
    return PlainViews(documents, vectors, config), TrainingSet(names, rows, judged)


def prior_of(views, queries, variant="gr2"):
    return choose_prior(Learner(views.at(views.usual)), views.features, queries, variant)


def test_what_all_judges_prefer_is_learned_and_carries_over():
    views, queries = setting(shallow=True)
    known, later = queries.only(range(40)), queries.only(range(40, 60))
    prior = prior_of(views, known)
    assert prior[FEATURES.index("depth")] < -0.1
    assert prior[FEATURES.index("text length")] == 0, "all texts have the same length"
    learner = Learner(views.at(views.usual))
    after = views.at(replace(views.usual, prior=prior)).scores(later.texts, later.vectors)
    before = learner.plain.scores(later.texts, later.vectors)
    assert np.mean(learner.ndcg(after, later.judged)) > np.mean(learner.ndcg(before, later.judged)) + 0.1
    np.testing.assert_allclose(
        after - before, np.tile(views.features @ np.float32(prior), (20, 1)), atol=1e-5
    )


def test_nothing_is_learned_where_judges_prefer_nothing_or_are_too_few():
    views, queries = setting(shallow=False)
    assert prior_of(views, queries) == ()
    views, queries = setting(shallow=True)
    assert prior_of(views, queries.only(range(7))) == ()


@pytest.mark.parametrize("variant", ["MLE", "listwise"])
def test_the_loss_is_that_of_the_variant(variant):
    views, queries = setting(shallow=True)
    graded = replace(queries, judged=[row | {"part0": 1} for row in queries.judged])
    assert prior_of(views, graded, variant) != prior_of(views, graded)


def test_a_model_keeps_its_prior_says_so_and_shows_it(tmp_path):
    views, queries = setting(shallow=True)
    found, selection = learn_look_ahead(views, {"train": queries})
    assert found.config.prior == selection.weights.prior != ()
    assert "depth -" in str(selection.weights) and str(Weights("lead", 1.0)) == "lead vectors, words 1"
    save_look_ahead(found, tmp_path / "model")
    again = load_look_ahead(tmp_path / "model")
    assert again.config == found.config and again.nbytes["prior"] == 4 * len(views.documents)
    np.testing.assert_array_equal(again.prior, views.features @ np.array(found.config.prior, np.float32))
    (ranked,) = again.rank(queries.texts[:1], queries.vectors[:1], [1], [None])
    assert ranked[2][0]["prior"] == pytest.approx(float(again.prior[ranked[0][0]]))
    empty = again.rank([""], np.zeros((1, 8), np.float32), [5], [None])
    assert empty == [((), (), ())], "a prior alone answers no query"


def test_features_are_scaled_and_do_not_depend_on_the_order():
    documents = [
        Document("a", "one", "some text"),
        Document("b.c", "two words", "text", url="http://x/y/z"),
        Document("c/d/e", "", "a longer text than the others"),
    ]
    rows = document_features(documents)
    np.testing.assert_allclose(rows.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(rows.std(0), 1, atol=1e-6)
    np.testing.assert_allclose(document_features(documents[::-1]), rows[::-1], atol=1e-6)
    assert rows[:, FEATURES.index("depth")].argmin() == 0
    assert rows[:, FEATURES.index("text length")].argmax() == 2
