"""The gain that is reported, and the learning curve: nothing is measured on what it was learned from."""

import numpy as np
import pytest
from scipy import stats

from gr2.data.collection import Document
from gr2.model.config import LookAheadConfig
from gr2.training import curve
from gr2.training.curve import learning_curve, sizes_of
from gr2.training.estimate import Gain
from gr2.training.judged import TrainingSet
from gr2.training.plain_views import PlainViews


def test_the_band_and_p_are_those_of_a_paired_t_test():
    draw = np.random.default_rng(0)
    before, after = draw.random(30), draw.random(30) + 0.2
    found, test = Gain.of(before, after), stats.ttest_rel(after, before)
    assert found.p == pytest.approx(test.pvalue)
    assert (found.low, found.high) == pytest.approx(tuple(test.confidence_interval(0.95)))
    assert found.gain == pytest.approx(found.after - found.before) and found.queries == 30
    assert found.error == pytest.approx(stats.sem(after - before))


@pytest.mark.parametrize(
    ("mean", "clear", "sure"),
    [(2.5, True, True), (1.5, True, False), (0.5, False, False), (-3, False, False)],
)
def test_a_gain_is_clear_beyond_one_standard_error_and_sure_beyond_its_band(mean, clear, sure):
    noise = np.random.default_rng(0).standard_normal(50)
    noise -= noise.mean()
    found = Gain.of(np.zeros(50), noise + mean * stats.sem(noise))
    assert (found.is_clear, found.is_sure) == (clear, sure)


def test_no_difference_is_no_gain():
    found = Gain.of([0.5, 0.2], [0.5, 0.2])
    assert (found.low, found.high, found.p) == (0, 0, 1) and not found.is_clear


@pytest.mark.parametrize(
    ("count", "sizes"),
    [(10, [7]), (14, [10]), (30, [10, 20]), (31, [10, 20, 21]), (150, [10, 20, 40, 80, 100])],
)
def test_sizes_double_up_to_two_thirds_of_the_queries(count, sizes):
    assert sizes_of(count) == sizes


@pytest.mark.parametrize("count", [0, 1, 9])
def test_a_curve_says_how_many_queries_it_needs(count):
    with pytest.raises(ValueError, match=f"needs at least 10 judged queries, found {count}"):
        sizes_of(count)


def test_a_draw_learns_from_growing_sets_and_measures_all_of_them_on_the_same_other_queries(monkeypatch):
    count = 30
    documents = [Document(f"d{i}", text=f"word{i}") for i in range(count)]
    views = PlainViews(
        documents, {"lead": (np.eye(count, dtype=np.float32), None)}, LookAheadConfig(words=0.0)
    )
    texts = [f"query {i}" for i in range(count)]
    queries = TrainingSet(texts, np.eye(count, dtype=np.float32), [{f"d{i}": 1} for i in range(count)])
    learned, measured = [], []

    class Noting:
        def scores(self, texts, vectors):
            measured.append(set(texts))
            return np.tile(np.arange(count, dtype=np.float32) * len(learned[-1]), (len(texts), 1))

    def noting(views, splits, **options):
        learned.append(set(splits["train"].texts) if splits else set())
        return Noting(), None

    monkeypatch.setattr(curve, "learn_look_ahead", noting)
    points = learning_curve(views, queries, draws=3)
    assert [point.queries for point in points] == [10, 20]
    assert [len(some) for some in learned] == [0, 10, 20] * 3
    for draw in range(3):
        _, few, many = learned[3 * draw : 3 * draw + 3]
        held = measured[3 * draw]
        assert few < many and len(held) == 10 and measured[3 * draw : 3 * draw + 3] == [held] * 3
        assert not many & held
    assert len({frozenset(some) for some in measured}) == 3, "each draw holds out others"
    assert points[0].over_nothing.queries == len(set().union(*measured))
    assert points[1].over_previous.before == points[0].over_nothing.after
    assert points[1].over_nothing.before == points[0].over_nothing.before
