"""From the settings of a training to its loss: L_total of real batches against losses called by hand.

GR²S starts from a checkpoint, GR²P from a backbone that was pre-trained from it. The log-likelihoods, the
representations and A_q are computed by `helpers.by_hand`; only the losses are the package's own, and these
have oracles elsewhere.
"""

from dataclasses import replace

import pytest
import torch
from helpers import tiny
from helpers.by_hand import ByHand

from gr2.training import losses
from gr2.training.augment import texts_of
from gr2.training.batches import Batches
from gr2.training.config import BatchConfig, ObjectiveConfig, TrainingConfig, with_settings
from gr2.training.fit import Stage, fit, prepare, stages, with_self_negatives
from gr2.training.loop import encoded
from gr2.training.variants import VARIANTS
from gr2.workflows.config import PretrainConfig
from gr2.workflows.pretrain import pretrain

SETTINGS = {
    "prior.vectors_per_document": 0.0,
    "network.representation": 16,
    "batches.queries": 7,
    "batches.texts": 5,
    "batches.self_negatives": 1,
    "augment.pieces": 2,
    "augment.words": 4,
    "objective.smoothing": 0.3,
}
MGCC = {"penalty": "prose", "constraint": "pair", "against": "all"}
"""What `losses.mgcc` is called with by default; the variants that have it, and how they call it."""
CONTRASTS = {
    "gr2": MGCC,
    "no-fusion": MGCC,
    "no-lambda": MGCC | {"penalty": "uniform"},
    "no-max": MGCC | {"constraint": "off"},
    "decoupled": MGCC | {"against": "lower", "constraint": "off"},
}


@pytest.fixture(scope="module")
def data():
    """Three grades, and two documents whose titles begin alike, so that the trie branches late too."""
    found = tiny.graded()
    one, two, *others = found.documents
    alike = two._replace(title=f"{one.title} {two.title.split()[0]}")
    return replace(found, documents=(one, alike, *others))


@pytest.fixture(scope="module", params=["GR2S", "GR2P"])
def backbone(request, t5, tmp_path_factory):
    """The checkpoint, or the backbone that pre-training makes of it."""
    if request.param == "GR2S":
        return t5
    out = tmp_path_factory.mktemp("pretrained") / "backbone"
    fast = {**SETTINGS, "schedule.steps": 3, "optimiser.learning_rate": 1e-2}
    plan = with_settings(TrainingConfig(), fast)
    pretrain(tiny.graded(), out, PretrainConfig(backbone=str(t5), training=plan))
    return out


def read(data, backbone, settings, *, self_negatives=True):
    """The terms of the loss of a batch as training computes them, and what they are made of, by hand."""
    plan = with_settings(TrainingConfig(), {**SETTINGS, **settings})
    start = prepare(data, tiny.titles(data, backbone), str(backbone), plan, vectors=None)
    examples = start.examples
    if self_negatives:
        examples = with_self_negatives(start.model, data, examples)
    batch = Batches(examples, plan.batches, seed=plan.seed)[0]
    network = start.model.network.eval()
    terms = start.objective(network, batch, *encoded(network, batch))
    return terms, ByHand(start.model, data, batch, plan.objective.normaliser), batch


def contrast(hand, how=MGCC, *, kind="cosine", temperature=0.1):
    near = losses.similarity(hand.f_q(), hand.f_id(), kind=kind, temperature=temperature)
    return losses.mgcc(near, hand.grades, hand.negatives, levels=3, **how).mean()


def query_loss(variant, hand, smoothing=0.3):
    """The loss of query-docid pairs that a variant has."""
    smoothed, true, grades = hand.of_queries(smoothing), hand.of_queries(0.0), hand.grades
    if variant == "CE":
        return losses.weighted_ce(smoothed, grades).mean()
    if variant == "LR":
        return losses.lambda_rank(true, grades).mean()
    mle = losses.mle_q(smoothed, grades, levels=3).mean()
    if variant == "LR-MLE":
        return mle + losses.lambda_rank(true, grades).mean()
    if variant == "listwise":
        return losses.listwise(smoothed, grades).mean()
    if variant == "soft":
        return losses.soft_ce(smoothed, losses.grade_weights(grades, 3)).mean()
    return mle


@pytest.mark.parametrize("normaliser", ["vocabulary", "trie"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_total_of_a_variant_is_its_losses_called_by_hand(data, backbone, variant, normaliser):
    terms, hand, batch = read(data, backbone, {"variant": variant, "objective.normaliser": normaliser})
    assert set(hand.grades.unique().tolist()) == {0, 1, 2, 3}
    assert (hand.negatives & (hand.grades == 0)).any()
    wanted = {"mle_q": query_loss(variant, hand), "mle_d": losses.mle_d(hand.of_texts(0.3)).mean()}
    if variant in CONTRASTS:
        wanted["mgcc"] = contrast(hand, CONTRASTS[variant])
    wanted["total"] = sum(wanted.values())
    assert terms.keys() == wanted.keys()
    for name, value in wanted.items():
        torch.testing.assert_close(
            terms[name], value, rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}"
        )


def test_the_losses_of_variants_differ(data, t5):
    found = {}
    for variant in VARIANTS:
        terms, *_ = read(data, t5, {"variant": variant})
        found[variant] = round(float(terms["total"].detach()), 4)
    same = [{"gr2", "no-fusion"}, {"listwise", "soft"}]  # docids of their own; the same with integer grades
    for one in VARIANTS:
        for two in VARIANTS:
            alike = one == two or any({one, two} == pair for pair in same)
            assert (found[one] == found[two]) == alike, (one, two)


@pytest.mark.parametrize(
    ("setting", "value", "how", "similarity"),
    [
        ("temperature", 0.5, {}, {"temperature": 0.5}),
        ("similarity", "dot", {}, {"kind": "dot"}),
        ("penalty", "literal", {"penalty": "literal"}, {}),
        ("constraint", "next", {"constraint": "next"}, {}),
        ("against", "lower", {"against": "lower"}, {}),
    ],
)
def test_a_setting_of_l_mgcc_is_what_the_loss_is_called_with(data, t5, setting, value, how, similarity):
    terms, hand, _ = read(data, t5, {f"objective.{setting}": value})
    wanted = contrast(hand, MGCC | how, **similarity)
    torch.testing.assert_close(terms["mgcc"], wanted, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(wanted, contrast(hand), rtol=3e-4)


def test_gamma_weighs_l_mgcc(data, t5):
    terms, hand, _ = read(data, t5, {"objective.gamma": 0.25})
    torch.testing.assert_close(terms["mgcc"], contrast(hand), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(terms["total"], 0.25 * terms["mgcc"] + terms["mle_q"] + terms["mle_d"])


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_smoothing_is_of_queries_and_texts(data, t5, smoothing):
    terms, hand, _ = read(data, t5, {"objective.smoothing": smoothing})
    torch.testing.assert_close(terms["mle_q"], query_loss("MLE", hand, smoothing), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(terms["mle_d"], -hand.of_texts(smoothing).mean(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("variant", ["gr2", "LR"])
def test_the_node_prior_is_in_the_likelihoods_of_queries_and_texts(data, t5, variant):
    settings = {"variant": variant, "prior.vectors_per_document": 1.0}
    terms, hand, _ = read(data, t5, settings)
    torch.testing.assert_close(terms["mle_q"], query_loss(variant, hand), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(terms["mle_d"], -hand.of_texts(0.3).mean(), rtol=1e-4, atol=1e-5)
    hand.model.network.prior = None
    for name, without in (("mle_q", query_loss(variant, hand)), ("mle_d", -hand.of_texts(0.3).mean())):
        assert not torch.allclose(terms[name], without, rtol=1e-3), name


def test_self_negatives_are_in_the_batch_and_in_the_denominator(data, t5):
    terms, hand, batch = read(data, t5, {})
    own = batch.grades[batch.owner, torch.arange(len(batch.docids))]
    rows = torch.nonzero(own == 0)[:, 0]
    assert len(rows) == len(batch.queries), "one for each query"
    assert bool(hand.negatives[batch.owner[rows], rows].all())
    torch.testing.assert_close(terms["mgcc"], contrast(hand), rtol=1e-4, atol=1e-5)
    # Without their terms in the denominators of Eq. 4 the loss is smaller.
    near, keep = losses.similarity(hand.f_q(), hand.f_id()), torch.ones(len(batch.docids), dtype=torch.bool)
    keep[rows] = False
    without = losses.mgcc(near, hand.grades, hand.negatives & keep, levels=3).mean()
    assert float(without.detach()) < float(terms["mgcc"].detach()) - 1e-3


def test_both_projections_are_one_if_they_are_shared(data, t5):
    terms, hand, _ = read(data, t5, {"network.shared": True})
    network = hand.model.network
    assert network.xi_docid is network.xi_query
    torch.testing.assert_close(terms["mgcc"], contrast(hand), rtol=1e-4, atol=1e-5)


def test_texts_and_queries_of_documents_are_those_of_the_settings(data, t5):
    settings = {"augment.document": True, "augment.as_queries": True, "augment.paragraphs": 1}
    settings |= {"augment.pieces": 3, "augment.words": 2, "augment.max_words": 6, "max_tokens": 5}
    plan = with_settings(TrainingConfig(), {**SETTINGS, **settings})
    start = prepare(data, tiny.titles(data, t5), str(t5), plan, vectors=None)
    known, read = len(data.split("train")), start.model.read
    texts, queries = [], []
    for document in data.documents:
        found = texts_of(document, plan.augment, lambda _: [])
        assert found[0] == " ".join(document.contents.split()[:6]) and len(found) == 1 + 3
        texts += found
        queries.append(" ".join(document.text.split()[:6]))
    assert list(start.examples.texts) == read(texts)
    assert list(start.examples.queries[known:]) == read(queries)
    lengths = {len(row) for row in (*start.examples.texts, *start.examples.queries)}
    assert max(lengths) == 5 < 6, "cut at max_tokens"


# What `fit` hands to the loop


STAGES = {
    "schedule.frozen_steps": 3,
    "schedule.steps": 5,
    "schedule.self_negative_steps": 4,
    "schedule.dev": "dev",
    "schedule.validate_every": 2,
    "schedule.patience": 9,
    "schedule.checkpoint_minutes": 7.0,
    "schedule.log_every": 1,
    "optimiser.learning_rate": 2e-3,
    "optimiser.pretrained_rate": 0.25,
    "optimiser.warmup": 0.2,
    "optimiser.clip": 0.5,
    "batches.per_grade": 1,
    "seed": 3,
}


@pytest.fixture
def handed_over(monkeypatch):
    """What each stage's loop is called with; nothing is trained."""
    seen = []

    def record(network, objective, batches, config, folder, **options):
        seen.append((objective, batches, config, options))

    monkeypatch.setattr("gr2.training.fit.train", record)
    return seen


def test_every_stage_has_the_settings_of_the_run(data, t5, tmp_path, handed_over):
    plan = with_settings(TrainingConfig(), {**SETTINGS, **STAGES, "variant": "no-lambda"})
    fit(data, tiny.titles(data, t5), str(t5), tmp_path / "m", plan)
    assert [stage for stage, _ in stages(plan)] == [Stage.FROZEN, Stage.JOINT, Stage.SELF_NEGATIVES]
    assert [config.steps for _, _, config, _ in handed_over] == [3, 5, 4]
    for place, (objective, batches, config, options) in enumerate(handed_over):
        assert config.freeze_encoder == (place == 0)
        assert (options["read"] is not None) == (place == 0), "cached states, for the frozen encoder alone"
        assert config.optimiser == plan.optimiser and config.seed == batches.seed == 3
        assert (config.validate_every, config.patience, config.checkpoint_minutes) == (2, 9, 7.0)
        assert objective.config == replace(plan.objective, penalty="uniform") and objective.levels == 3
        assert batches.config == plan.batches
        assert any(batches.examples.self_negatives) == (place == 2)
        assert callable(options["validate"])


def test_without_dev_nothing_is_validated(data, t5, tmp_path, handed_over):
    fit(data, tiny.titles(data, t5), str(t5), tmp_path / "m", with_settings(TrainingConfig(), SETTINGS))
    ((_, _, config, options),) = handed_over
    assert config.validate_every == 0 and options["validate"] is None


def test_validation_measures_the_queries_of_its_split(data, t5, tmp_path, handed_over):
    from gr2.evaluate.measures import evaluate

    settings = {"schedule.dev": "dev", "schedule.measure": "ERR@20"}
    plan = with_settings(TrainingConfig(), {**SETTINGS, **settings})
    model = fit(data, tiny.titles(data, t5), str(t5), tmp_path / "m", plan)
    ((*_, options),) = handed_over
    qrels = data.split("dev")
    run = model.search_many({qid: data.queries[qid] for qid in qrels}, 20)
    assert options["validate"]() == pytest.approx(evaluate(run, qrels, ["ERR@20"]).means["ERR@20"])


def test_pre_training_freezes_the_rows_of_docids_and_keeps_all_other_settings(
    data, t5, tmp_path, handed_over
):
    settings = {"optimiser.learning_rate": 2e-3, "objective.gamma": 0.5, "schedule.steps": 3}
    plan = with_settings(TrainingConfig(), {**SETTINGS, **settings})
    pretrain(data, tmp_path / "own", PretrainConfig(backbone=str(t5), training=plan))
    ((objective, batches, config, _),) = handed_over
    assert config.freeze_embeddings and config.steps == 3
    assert objective.config == plan.objective == ObjectiveConfig(smoothing=0.3, gamma=0.5)
    assert batches.config == plan.batches == BatchConfig(queries=7, texts=5, self_negatives=1)
    assert config.optimiser == plan.optimiser
