"""The graded regression: every loss as hand-called, its optimum, and what is selected."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.optimize import minimize

from gr2.bm25 import BM25, BM25Config
from gr2.data.collection import Document
from gr2.data.runs import Run
from gr2.evaluate.measures import Convention, evaluate
from gr2.model.config import LookAheadConfig
from gr2.model.look_ahead import LookAhead
from gr2.training import losses, regression
from gr2.training.candidates import GATES, Candidate, candidates
from gr2.training.features import prefix_features, term_features
from gr2.training.judged import TrainingSet, Unencoded
from gr2.training.learner import Learner, ndcg
from gr2.training.plain_views import PlainViews, Weights, choose_weights
from gr2.training.regression import RegressionConfig, fit_offsets
from gr2.training.regression_loss import Judged, loss_of
from gr2.training.selection import select

DOCNOS = {f"d{i}": i for i in range(12)}


def problem(seed=0, queries=8, width=5):
    draw = np.random.default_rng(seed)
    vectors = draw.standard_normal((queries, width)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    judged = [
        {f"d{d}": int(draw.integers(1, 4)) for d in draw.choice(9, 3, replace=False)} for _ in range(queries)
    ]
    base = draw.standard_normal((queries, 12)).astype(np.float32)
    return torch.from_numpy(vectors), torch.from_numpy(base), judged


def by_hand(variant, phi, judged):
    """The loss of each query from its whole row of scores, by the functions of `losses`."""
    total = 0.0
    for scores, row in zip(phi, judged, strict=True):
        grades = torch.zeros(1, 12, dtype=torch.long)
        for docno, grade in row.items():
            grades[0, DOCNOS[docno]] = grade
        log_p = torch.log_softmax(scores, 0)
        if variant == "LR":
            total += losses.lambda_rank(scores[grades[0] > 0], grades[:, grades[0] > 0])[0]
        elif variant == "MLE":
            total += losses.mle_q(log_p, grades, levels=3)[0]
        elif variant == "CE":
            total += losses.weighted_ce(log_p, grades)[0]
        elif variant in ("listwise", "soft"):
            total += losses.listwise(log_p, grades)[0]
        else:
            switch = {
                "no-lambda": {"penalty": "uniform"},
                "no-max": {"constraint": "off"},
                "decoupled": {"constraint": "off", "against": "lower"},
            }.get(variant, {})
            total += losses.mgcc(scores[None], grades, grades == 0, levels=3, **switch)[0]
    return total


EACH = ["gr2", "no-lambda", "no-max", "MLE", "CE", "listwise", "decoupled", "soft"]


@pytest.mark.parametrize("variant", EACH)
def test_each_loss_is_the_one_of_its_name(variant):
    _, base, rows = problem()
    judged = Judged.of(rows, DOCNOS)
    found = loss_of(variant)(base, judged).sum()
    assert float(found) == pytest.approx(float(by_hand(variant, base, rows)), rel=1e-5)


def test_the_losses_of_lr_mle_are_added_up():
    _, base, rows = problem()
    found = loss_of("LR-MLE")(base, Judged.of(rows, DOCNOS)).sum()
    both = by_hand("LR", base, rows) + by_hand("MLE", base, rows)
    assert float(found) == pytest.approx(float(both), rel=1e-4)


def test_lr_is_lambda_rank_alone():
    _, base, rows = problem()
    judged = Judged.of(rows, DOCNOS)
    found = loss_of("LR")(base, judged).sum()
    assert float(found) == pytest.approx(float(by_hand("LR", base, rows)), rel=1e-4)


@pytest.mark.parametrize("negatives", ["all", "judged"])
def test_the_offsets_are_the_minimum(negatives):
    """scipy finds nothing better from the same start, with the objective written out."""
    vectors, base, rows = problem()
    judged = Judged.of(rows, DOCNOS)
    config = RegressionConfig(decay=0.5, negatives=negatives, iterations=200)
    found = fit_offsets(vectors, base, judged, scale=3.0, config=config)
    members = judged.relevant(12) if negatives == "judged" else torch.ones(12, dtype=torch.bool)
    assert (found[~members] == 0).all()

    def objective(flat):
        delta = torch.tensor(flat.reshape(12, 5), dtype=torch.float64)
        phi = (base.double() + 3 * vectors.double() @ delta.T).masked_fill(~members, -torch.inf)
        return float(loss_of("gr2")(phi, judged).sum() + 0.5 * delta.square().sum())

    best = minimize(objective, found.double().numpy().ravel(), method="L-BFGS-B", options={"maxiter": 20})
    assert objective(found.double().numpy().ravel()) <= best.fun + 1e-3
    assert objective(found.double().numpy().ravel()) < objective(np.zeros(60))


def test_it_is_deterministic_and_lambda_pulls_to_zero():
    vectors, base, rows = problem()
    judged = Judged.of(rows, DOCNOS)
    one, two = (fit_offsets(vectors, base, judged, scale=3.0) for _ in range(2))
    assert torch.equal(one, two)
    strong = fit_offsets(vectors, base, judged, scale=3.0, config=RegressionConfig(decay=100.0))
    assert strong.norm() < 0.1 * one.norm()


def test_ndcg_is_that_of_the_measures():
    draw = np.random.default_rng(1)
    scores = draw.standard_normal(12).astype(np.float32)
    row = {"d1": 3, "d5": 1, "d7": 2, "gone": 0}
    run = Run.from_dict({"q": {docno: float(scores[i]) for docno, i in DOCNOS.items()}})
    expected = evaluate(run, {"q": row}, ["nDCG@20"], Convention(gain="exponential")).means["nDCG@20"]
    assert ndcg(scores[None], [row], DOCNOS)[0] == pytest.approx(expected)


def setting(recur: bool, queries=40, width=16):
    """Queries of four topics, whose documents are those of the topic, or nearby ones of their own."""
    draw = np.random.default_rng(3)

    def unit(rows):
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)

    topics = np.eye(4, width)[np.arange(queries) % 4]
    vectors = unit(topics + 0.3 * draw.standard_normal((queries, width)))
    own = np.array([[3 * (i % 4 if recur else i) + j for j in range(3)] for i in range(queries)])
    matrix = draw.standard_normal((3 * queries, width))
    if not recur:
        matrix[own.ravel()] = np.repeat(vectors, 3, 0) + 0.1 * matrix[own.ravel()]
    documents = [Document(f"d{i:03}", text=f"word{i}") for i in range(len(matrix))]
    judged = [{f"d{d:03}": 1 + place for place, d in enumerate(row)} for row in own]
    plain = LookAhead.build(documents, unit(matrix), LookAheadConfig(bm25=BM25Config(language="none")))
    return plain, TrainingSet([f"text {i}" for i in range(queries)], vectors, judged)


def views_of(plain, **kinds):
    """The parts of a look-ahead, with other vectors by kind."""
    documents = [Document(docno, text=f"word{i}") for i, docno in enumerate(plain.docnos)]
    vectors = kinds or {"lead": plain.vectors.rows}
    return PlainViews(documents, {kind: (rows, None) for kind, rows in vectors.items()}, plain.config)


def test_what_carries_over_is_learned_and_nothing_else():
    plain, queries = setting(recur=True)
    found = select(views_of(plain), {"train": queries})
    assert found.chosen.learns and found.measured == "train"
    better = Learner(plain).learn(queries, found.chosen)
    places = {docno: i for i, docno in enumerate(plain.docnos)}
    means = []
    for one in (plain, better):
        scores = one.scores(queries.texts, queries.vectors)
        means.append(np.mean(ndcg(scores, queries.judged, places)))
    assert means[1] > means[0] + 0.1
    apart, queries = setting(recur=False)
    one, two = (select(views_of(apart), {"train": queries}) for _ in range(2))
    assert one.chosen == Candidate()
    assert one == two, "the same seed, the same choice"


def test_nothing_is_the_first_candidate_and_each_is_different():
    found = candidates(("train", "dev"), variant="CE")
    assert found[0] == Candidate() and len(set(found)) == len(found)
    assert len({str(one) for one in found}) == len(found)
    assert {one.regression.variant for one in found if one.regression} == {"CE"}
    assert {one.split for one in found[1:]} == {"train", "dev"}
    assert not any(one.regression and one.regression.shared for one in candidates(words=False))
    coded = candidates(codes=True)
    ways = {(one.regression.shared, one.regression.own) for one in coded if one.regression}
    assert ways == {("codes", False)} and not any(one.memory for one in coded)
    assert len(coded) == 1 + 2 * len(GATES), "nothing, and each kind of negatives with each gate"


@pytest.mark.parametrize("own", [True, False])
def test_offsets_along_features_are_the_minimum(own):
    """Documents 9 to 11 are never judged and move with the features that they share with others."""
    vectors, base, rows = problem()
    judged = Judged.of(rows, DOCNOS)
    features = sparse.csr_matrix(np.random.default_rng(5).random((12, 4)).astype(np.float32))
    config = RegressionConfig(decay=0.5, iterations=200, own=own, shared="terms")
    found = fit_offsets(vectors, base, judged, scale=3.0, config=config, features=features)
    members = judged.relevant(12)
    assert not members[9:].any() and (found[9:].norm(dim=1) > 0.01).all()
    matrix = torch.tensor(features.toarray(), dtype=torch.float64)

    def objective(shared, each):
        delta = matrix @ shared + each * members[:, None]
        phi = (base.double() + 3 * vectors.double() @ delta.T).masked_fill(~members, -torch.inf)
        penalty = shared.square().sum() + (each * members[:, None]).square().sum()
        return loss_of("gr2")(phi, judged).sum() + 0.5 * penalty

    shared = torch.zeros(4, 5, dtype=torch.float64, requires_grad=True)
    each = torch.zeros(12, 5, dtype=torch.float64, requires_grad=own)
    optimiser = torch.optim.LBFGS(
        [shared, each] if own else [shared], max_iter=400, line_search_fn="strong_wolfe"
    )

    def closure():
        optimiser.zero_grad()
        value = objective(shared, each)
        value.backward()
        return value

    optimiser.step(closure)
    expected = (matrix @ shared + each * members[:, None]).detach()
    np.testing.assert_allclose(found.numpy(), expected.numpy(), atol=0.02)


def test_shared_offsets_need_features():
    vectors, base, rows = problem()
    with pytest.raises(ValueError, match="terms are needed"):
        fit_offsets(
            vectors, base, Judged.of(rows, DOCNOS), scale=1.0, config=RegressionConfig(shared="terms")
        )


def test_terms_are_those_that_documents_share():
    texts = ["sour fruit yellow", "sour fruit green", "sweet fruit", "hot fruit pepper", "hot fruit"]
    documents = [Document(f"d{i}", text=text) for i, text in enumerate(texts)]
    bm25 = BM25.index(documents, BM25Config(language="none"))
    found = term_features(bm25).toarray()
    assert found.shape == (5, 2), "sour and hot: fruit is everywhere, the others in one document"
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), [1, 1, 0, 1, 1], atol=1e-6)
    query = bm25.scores(["sour pepper"])[0]
    column = bm25.weights().toarray() @ np.isin(
        sorted(bm25._retriever.vocab_dict, key=bm25._retriever.vocab_dict.get)[:-1], ["sour", "pepper"]
    )
    np.testing.assert_allclose(query, column, rtol=1e-5)
    assert prefix_features([(1, 2, 3), (1, 2, 4), (1, 5), (6,)]).shape == (4, 2)


def test_what_all_queries_have_in_common_is_not_learned():
    """A direction that every query has teaches popularity; offsets do not depend on it."""
    plain, queries = setting(recur=True)
    found = Learner(plain).learn(queries, Candidate(RegressionConfig(negatives="all")))
    centre = queries.vectors.mean(0)
    np.testing.assert_allclose(found.centre, centre, rtol=1e-6)
    expected = fit_offsets(
        torch.from_numpy(queries.vectors - centre),
        torch.from_numpy(plain.scores(queries.texts, queries.vectors)),
        Judged.of(queries.judged, {docno: i for i, docno in enumerate(plain.docnos)}),
        scale=20.0,
        config=RegressionConfig(negatives="all"),
    )
    np.testing.assert_array_equal(found.offsets.rows, expected.numpy())
    learned = found.learned_views(queries.vectors)["learned"]
    np.testing.assert_allclose(
        learned, 20 * (queries.vectors - centre) @ found.offsets.rows.T, rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("own", [True, False])
def test_fewer_queries_than_dimensions_are_fitted_in_their_span_with_the_same_result(monkeypatch, own):
    """An oracle: the same regression over all dimensions."""
    draw = np.random.default_rng(0)
    queries = torch.from_numpy(draw.standard_normal((6, 40)).astype(np.float32))
    base = torch.from_numpy(draw.standard_normal((6, 25)).astype(np.float32))
    judged = Judged.of([{f"d{i}": 2, f"d{i + 5}": 1} for i in range(6)], {f"d{i}": i for i in range(25)})
    features = sparse.csr_matrix(draw.random((25, 7)).astype(np.float32))
    config = RegressionConfig(own=own, shared="terms", negatives="all", iterations=300)
    shapes = []
    real = torch.optim.LBFGS

    def noting(weights, **options):
        shapes.append([tuple(weight.shape) for weight in weights])
        return real(weights, **options)

    monkeypatch.setattr(torch.optim, "LBFGS", noting)
    found = fit_offsets(queries, base, judged, scale=5.0, config=config, features=features)
    of_features = fit_offsets(
        queries, base, judged, scale=5.0, config=config, features=features, of_features=True
    )
    monkeypatch.setattr(regression, "_in_basis", lambda queries: (queries, None))
    expected = fit_offsets(queries, base, judged, scale=5.0, config=config, features=features)
    assert shapes == [[(25 * own, 6), (7, 6)]] * 2 + [[(25 * own, 40), (7, 40)]]
    np.testing.assert_allclose(found, expected, atol=2e-3)
    assert found.abs().max() > 0.01 and of_features.shape == (7, 40)
    if not own:
        np.testing.assert_allclose(features @ of_features.numpy(), found, atol=1e-5)


def test_dev_is_where_candidates_are_measured_and_may_teach():
    """Questions of `dev` share topics; those of `train` are about other documents and teach nothing."""
    plain, questions = setting(recur=True, queries=80)
    order = np.random.default_rng(0).permutation(80)
    sentences = TrainingSet(
        ["nothing"] * 80, questions.vectors[order], [{f"d{200 + i % 40}": 1} for i in range(80)]
    )
    found = select(views_of(plain), {"train": sentences, "dev": questions})
    assert found.measured == "dev" and found.chosen.split == "dev" and "from dev" in str(found.chosen)
    few = select(views_of(plain), {"train": questions, "dev": questions.only(range(10))})
    assert few.measured == "train" and few.chosen.split == "train"
    alone = select(views_of(plain), {"dev": questions.only(range(10))})
    assert alone.measured == "dev"


def test_only_a_sample_is_encoded():
    class Counting:
        count = 0

        def encode(self, texts):
            self.count += len(texts)
            return np.ones((len(texts), 2), np.float32)

    encoder = Counting()
    queries = Unencoded([str(i) for i in range(50)], [{"d": 1}] * 50, encoder)
    some = queries.sample(10, 0)
    assert len(some) == 10 and encoder.count == 10 and len(set(some.texts)) == 10
    assert list(some.texts) == list(queries.encoded().sample(10, 0).texts) and encoder.count == 60


def test_other_weights_are_taken_only_if_they_are_clearly_better():
    plain, queries = setting(recur=False, queries=80)
    right = plain.vectors.rows
    wrong = np.roll(right, 1, 0)
    assert choose_weights(views_of(plain, lead=wrong, mean=right), queries)[0].vectors == "mean"
    assert choose_weights(views_of(plain, lead=right, mean=wrong), queries)[0].vectors == "lead"
    same, compared = choose_weights(views_of(plain, lead=right, mean=right), queries)
    assert same == Weights("lead", 1.0, 1) and len(compared) == 4


@pytest.mark.parametrize(
    ("count", "errors", "chosen"),
    [(74, 1.5, "lead"), (74, 2.5, "mean"), (75, 1.5, "mean"), (75, 0.5, "lead"), (10, 1.9, "lead")],
)
def test_few_queries_must_be_surer_of_other_weights(monkeypatch, count, errors, chosen):
    noise = np.random.default_rng(0).standard_normal(count)
    noise -= noise.mean()
    better = 0.5 + 0.01 * (noise + errors * noise.std(ddof=1) / np.sqrt(count))
    rows = np.eye(2, dtype=np.float32)
    kinds = {kind: (rows + shift, None) for shift, kind in enumerate(("lead", "mean"))}
    documents = [Document("a", text="apple"), Document("b", text="berry")]
    views = PlainViews(documents, kinds, LookAheadConfig(words=0.0))
    queries = TrainingSet(["apple"] * count, np.tile(rows[:1], (count, 1)), [{"a": 1}] * count)
    found = iter([np.full(count, 0.5), better])
    monkeypatch.setattr(Learner, "ndcg", lambda self, scores, judged: next(found))
    assert choose_weights(views, queries)[0].vectors == chosen


def test_titles_that_gain_nothing_are_counted_once():
    """Words mislead here, so half their weight is better; titles add nothing to it."""
    draw = np.random.default_rng(5)
    vectors = draw.standard_normal((40, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    documents = [Document(f"d{i:02}", title=f"t{i}", text=f"w{(i + 1) % 40}") for i in range(40)]
    queries = TrainingSet([f"w{i}" for i in range(40)], vectors, [{f"d{i:02}": 1} for i in range(40)])
    config = LookAheadConfig(scale=2.5, bm25=BM25Config(language="none"))
    kinds = {"lead": (vectors, None), "mean": (vectors.copy(), None)}
    found, compared = choose_weights(PlainViews(documents, kinds, config), queries)
    assert found == Weights("lead", 0.5, 1) and len(compared) == 8


def test_titles_that_prove_nothing_hide_no_better_combination(monkeypatch):
    """The best mean is of titles counted four times, by noise; another combination is surely better."""
    draw = np.random.default_rng(0)
    noise = 0.2 * draw.standard_normal(100)
    noise -= noise.mean()
    values = {("mean", 0.5, 4): 0.56 + noise, ("mean", 0.5, 1): 0.545 - noise}
    values |= {("pieces", 1.0, 1): np.full(100, 0.55)}
    documents = [Document("a", title="one", text="apple"), Document("b", title="two", text="berry")]
    rows = np.eye(2, dtype=np.float32)
    kinds = {kind: (rows + shift, None) for shift, kind in enumerate(("lead", "mean", "pieces"))}
    views = PlainViews(documents, kinds, LookAheadConfig())
    queries = TrainingSet(["apple"] * 100, np.tile(rows[:1], (100, 1)), [{"a": 1}] * 100)
    monkeypatch.setattr(Learner, "ndcg", lambda self, scores, judged: next(found))
    found = iter([values.get(one, np.full(100, 0.5)) for one in _asked_order(views)])
    assert choose_weights(views, queries)[0] == Weights("pieces", 1.0, 1)


def _asked_order(views):
    """The combinations in the order in which they are measured."""
    for kind in views.vectors:
        for titles in {1, 4}:
            for words in {views.usual.words, 0.5, 1.0}:
                yield kind, words, titles


def test_titles_count_more_where_queries_ask_for_them():
    """Each query names the title of its document; another document has the same words in its text."""
    names = [f"name{i}" for i in range(30)]
    documents = [Document(f"a{i:02}", title=name, text="common words") for i, name in enumerate(names)]
    documents += [Document(f"b{i:02}", title="other", text=f"{name} {name}") for i, name in enumerate(names)]
    queries = TrainingSet(names, np.zeros((30, 2), np.float32), [{f"a{i:02}": 1} for i in range(30)])
    vectors = {"lead": (np.zeros((60, 2), np.float32), None)}
    views = PlainViews(documents, vectors, LookAheadConfig(bm25=BM25Config(b=0.0)))
    found, compared = choose_weights(views, queries)
    assert found.titles == 4 and {weights.titles for weights, _ in compared} == {1, 4}
    assert views.at(found).config.bm25.title_weight == 4
    expected = BM25.index(documents, BM25Config(b=0.0, title_weight=4)).scores(names)
    np.testing.assert_array_equal(
        views.at(replace(found, words=1.0)).scores(names, queries.vectors), expected
    )
    none = PlainViews([one._replace(title="") for one in documents], vectors, LookAheadConfig())
    assert {weights.titles for weights, _ in choose_weights(none, queries)[1]} == {1}


def test_the_gain_is_expected_over_both_kinds_of_folds():
    plain, queries = setting(recur=True)
    rows = select(views_of(plain), {"train": queries}).rows
    nothing = rows[0]
    assert not nothing.candidate.learns and any(row.gain for row in rows)
    for row in rows:
        mixed = 0.75 * (row.random - nothing.random) + 0.25 * (row.disjoint - nothing.disjoint)
        assert row.gain == pytest.approx(mixed, abs=1e-9)
