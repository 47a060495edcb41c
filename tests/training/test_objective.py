"""L_total of a real batch against losses that are called by hand."""

from dataclasses import replace

import pytest
import torch
from helpers import tiny

from gr2.docids.trie import Trie
from gr2.training import losses
from gr2.training.batches import Batches, Examples
from gr2.training.config import BatchConfig, ObjectiveConfig, TrainingConfig, with_settings
from gr2.training.fit import prepare
from gr2.training.loop import encoded
from gr2.training.objective import Objective
from gr2.training.variants import VARIANTS, register_variant, variant_objective


@pytest.fixture(scope="module", params=["vocabulary", "trie"])
def batch(request, t5):
    """A model, a batch of three grades, and log P of its docids: true, and with the smoothing of training."""
    _, model, *_ = tiny.prepared(t5, normaliser=request.param)
    examples = replace(tiny.graded_examples(), queries=[[9 + i % 5] * (3 + i % 5) for i in range(23)])
    drawn = Batches(examples, BatchConfig(queries=9, texts=11))[0]
    states, texts = encoded(model.network.eval(), drawn)
    read = (model.network, drawn, states, texts)
    config = ObjectiveConfig(normaliser=request.param, smoothing=0.3)

    def objective(variant):
        return Objective(model.tokens, model.trie, 3, variant_objective(variant, config))

    forced = objective("MLE").forced
    known = (model.network, states, drawn.query_mask, drawn.owner, drawn.docids)
    likelihoods = {smoothing: forced(*known, smoothing=smoothing)[1] for smoothing in (0.0, 0.3)}
    assert not torch.allclose(likelihoods[0.0], likelihoods[0.3])
    return read, objective, likelihoods


def test_lr_is_lambda_rank_of_the_true_likelihoods_whatever_the_smoothing(batch):
    (network, drawn, states, texts), objective, likelihoods = batch
    parts = objective("LR")(network, drawn, states, texts)
    ranked = losses.lambda_rank(likelihoods[0.0], drawn.grades).mean()
    assert float(ranked.detach()) > 0
    torch.testing.assert_close(parts["mle_q"], ranked)
    torch.testing.assert_close(parts["total"], ranked + parts["mle_d"])
    smoothed = losses.lambda_rank(likelihoods[0.3], drawn.grades).mean()
    assert not torch.allclose(ranked, smoothed, rtol=1e-3)


def test_lr_mle_adds_it_to_the_smoothed_mle(batch):
    (network, drawn, states, texts), objective, likelihoods = batch
    parts = objective("LR-MLE")(network, drawn, states, texts)
    wanted = losses.lambda_rank(likelihoods[0.0], drawn.grades)
    wanted = wanted + losses.mle_q(likelihoods[0.3], drawn.grades, levels=3)
    torch.testing.assert_close(parts["mle_q"], wanted.mean())
    assert set(parts) == {"mle_q", "mle_d", "total"}


def test_the_sum_of_losses_is_named_with_a_plus(monkeypatch):
    monkeypatch.setattr("gr2.training.variants.VARIANTS", dict(VARIANTS))
    with pytest.raises(ValueError, match="no loss is called 'nothing'; there are: mle, weighted"):
        Objective([[2], [3]], None, 1, ObjectiveConfig(query_loss="mle+nothing"))
    with pytest.raises(ValueError, match="must not have a +"):
        register_variant("one+two", "two losses", query_loss=lambda *_: torch.zeros(1))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda likelihood, grades, levels: 0.0, r"value per query \[9\], not float"),
        (lambda likelihood, grades, levels: likelihood.sum(), r"value per query \[9\], not \[\]"),
        (lambda likelihood, grades, levels: torch.zeros(9, 2), r"value per query \[9\], not \[9, 2\]"),
        (lambda likelihood, grades, levels: torch.zeros(9), "does not depend on the log-likelihoods"),
    ],
)
def test_a_loss_of_ones_own_is_checked(batch, wrong, message):
    (network, drawn, states, texts), objective, _ = batch
    own = objective("MLE")
    own.query_losses = {"custom": wrong}
    with pytest.raises(ValueError, match=message):
        own(network, drawn, states, texts)


def test_a_loss_of_ones_own_replaces_the_configured_one(batch):
    (network, drawn, states, texts), objective, likelihoods = batch
    usual = objective("CE")

    def double(likelihood, grades, levels):
        return 2 * losses.mle_q(likelihood, grades, levels=levels)

    own = Objective([[2], [3]], Trie.from_sequences([[2], [3]], end=1), 3, usual.config, query_loss=double)
    own.forced = usual.forced
    found = own(network, drawn, states, texts)["mle_q"]
    torch.testing.assert_close(found, 2 * losses.mle_q(likelihoods[0.3], drawn.grades, levels=3).mean())


def test_nothing_costs_nothing(batch):
    _, objective, _ = batch
    assert float(objective("gr2").total({})) == 0.0


def test_l_is_the_highest_grade_of_the_training_judgements(t5):
    data = tiny.collection()
    higher = {**data.qrels, "test": {"q00": {"d00": 4}}}
    data = replace(data, qrels=higher)
    plan = with_settings(TrainingConfig(), {"prior.vectors_per_document": 0.0})
    assert data.grades == 4
    assert prepare(data, tiny.titles(data, t5), str(t5), plan, vectors=None).objective.levels == 2
    assert Examples([], [], [[1]], [0]).levels == 1


def test_a_variant_that_was_called_lr_in_finished_trials_is_lr_mle():
    from gr2.experiments.trial import training_config

    assert training_config({"recipe": "LR"}).variant == "LR-MLE"
    assert training_config({"recipe": "LambdaRank"}).variant == "LR"
    assert VARIANTS["LR"].switches == {"gamma": 0.0, "query_loss": "lambda_rank"}
