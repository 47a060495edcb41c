"""A batch in parts has the gradient of the whole batch and needs less memory; so do recomputed layers."""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from helpers import tiny

from gr2.model.config import GR2Config
from gr2.model.gr2 import GR2
from gr2.model.network import recompute_activations
from gr2.schemes.config import FusionConfig
from gr2.schemes.fusion.network import Fusion, FusionObjective
from gr2.schemes.fusion.pairs import PairBatches, PairRows
from gr2.training import losses
from gr2.training.batches import Batches
from gr2.training.config import BatchConfig, ObjectiveConfig, OptimiserConfig, with_settings
from gr2.training.gradients import Gradients
from gr2.training.loop import encoded
from gr2.training.objective import Objective
from gr2.training.variants import variant_objective

CPU = OptimiserConfig(bf16=False)


@pytest.fixture(scope="module", params=tiny.FAMILIES)
def backbone(request, tmp_path_factory) -> Path:
    return tiny.save_checkpoint(tmp_path_factory.mktemp(request.param), request.param)


def setting(backbone: Path, variant: str = "gr2", *, normaliser: str = "vocabulary", dropout: bool = False):
    """A network, its objective, and a batch of queries with several docids, texts and self-negatives."""
    data, model, *_ = tiny.prepared(backbone, variant, normaliser)
    if dropout:
        shape = replace(tiny.TINY, dropout=True)
        about = GR2Config(network=shape, normaliser=normaliser, max_tokens=64)
        model = GR2.fresh(backbone, model.docids, about)
    examples = replace(tiny.graded_examples(), queries=[[9] * (3 + i % 5) for i in range(23)])
    config = variant_objective(variant, ObjectiveConfig(normaliser=normaliser, smoothing=0.1))
    objective = Objective(model.tokens, model.trie, 3, config)
    batch = Batches(examples, BatchConfig(queries=9, texts=11))[0]
    assert len(batch.queries) == 9 and len(batch.texts) == 11
    return model.network.train(), objective, batch


def gradient(network, objective, batch, read=encoded, **changes):
    """The gradient of a step's batch, by name, and the terms of the loss."""
    network.zero_grad()
    parts = Gradients(network, objective, read, replace(CPU, **changes), (0, 0))(batch, 3)
    found = {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}
    return found, {name: float(value) for name, value in parts.items()}


def alike(one, two) -> None:
    assert one[0].keys() == two[0].keys() and len(one[0]) > 5
    for name, value in one[0].items():
        torch.testing.assert_close(two[0][name], value, rtol=2e-4, atol=2e-6, msg=name)
    assert two[1] == pytest.approx(one[1], rel=1e-5)


@pytest.mark.parametrize("variant", ["gr2", "decoupled", "MLE", "CE", "LR", "LR-MLE"])
def test_the_gradient_of_parts_is_that_of_the_whole_batch(backbone, variant):
    network, objective, batch = setting(backbone, variant)
    whole = gradient(network, objective, batch)
    assert any(bool(value.abs().max() > 1e-4) for value in whole[0].values())
    for count in (2, 4, 40):
        alike(whole, gradient(network, objective, batch, accumulate=count))
    alike(whole, gradient(network, objective, batch, accumulate=3, gradient_checkpointing=True))


def test_with_a_trie_and_a_prior_too(backbone):
    network, objective, batch = setting(backbone, normaliser="trie")
    alike(gradient(network, objective, batch), gradient(network, objective, batch, accumulate=4))


def test_representations_are_contrasted_across_parts(backbone):
    network, objective, batch = setting(backbone)
    whole, parts = gradient(network, objective, batch), batch.parts(3)
    apart: dict[str, torch.Tensor] = defaultdict(lambda: torch.zeros(()))
    for part in parts:
        for name, value in gradient(network, objective, part)[0].items():
            apart[name] = apart[name] + value / len(parts)
    assert float((apart["xi_query.weight"] - whole[0]["xi_query.weight"]).abs().max()) > 1e-4


def test_recomputed_layers_give_the_same_gradient_with_dropout(backbone):
    network, objective, batch = setting(backbone, dropout=True)
    recompute_activations(network.modules(), enabled=False)
    plain = gradient(network, objective, batch)
    recompute_activations(network.modules(), enabled=True)
    alike(plain, gradient(network, objective, batch))


def test_both_passes_over_a_part_have_the_same_dropout(backbone):
    network, objective, batch = setting(backbone, dropout=True)
    found = gradient(network, objective, batch, accumulate=3)
    again = gradient(network, objective, batch, accumulate=3)
    assert all(torch.equal(found[0][name], again[0][name]) for name in found[0]), "of the seed alone"
    network.zero_grad()
    of = Gradients(network, objective, encoded, replace(CPU, accumulate=3), (0, 0))
    each = [of._run(objective.each, part, 3, place) for place, part in enumerate(batch.parts(3))]
    pairs, texts = (torch.cat([one.terms[name] for one in each]) for name in ("mle_q", "mle_d"))
    f_q, f_id = (torch.cat([one.representations[i] for one in each]) for i in (0, 1))
    mgcc = losses.mgcc(losses.similarity(f_q, f_id), batch.grades, batch.negatives, levels=3)
    (mgcc.mean() + pairs.mean() + texts.mean()).backward()
    for name, parameter in network.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(found[0][name], parameter.grad, rtol=2e-4, atol=2e-6, msg=name)
    assert found[1]["mgcc"] == pytest.approx(float(mgcc.detach().mean()), rel=1e-5)


def test_dropout_differs_from_step_to_step_and_leaves_other_random_numbers_alone(backbone):
    network, objective, batch = setting(backbone, dropout=True)
    before = torch.random.get_rng_state()
    totals = [
        float(Gradients(network, objective, encoded, CPU, (seed, 0))(batch, step)["total"])
        for seed, step in ((0, 0), (0, 1), (1, 0), (0, 0))
    ]
    assert len(set(totals[:3])) == 3 and totals[0] == totals[3]
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("regularised", [True, False])
def test_the_docid_model_too(backbone, regularised):
    tokens = list(range(len(tiny.SPECIAL), tiny.SIZE))
    fusion = Fusion.build(backbone, tokens, FusionConfig(width=8, slots=2, regularised=regularised)).train()
    rows = PairRows(
        [[5 + i] * (4 + i % 7) for i in range(12)],
        [[7 + i] * (2 + i % 3) for i in range(12)],
        [[2 + i] * (1 + i % 4) for i in range(12)],
        [f"d{i}" for i in range(12)],
    )
    batch, objective = PairBatches(rows, 12)[0], FusionObjective(fusion.config)
    whole = gradient(fusion, objective, batch, read=lambda *_: ())
    alike(whole, gradient(fusion, objective, batch, read=lambda *_: (), accumulate=5))


def saved_bytes(network, objective, batch, **changes) -> int:
    """The largest sum of tensors that were kept for the backward pass at any moment."""
    held = {"now": 0, "most": 0}

    class Held:
        def __init__(self, tensor):
            self.tensor, self.size = tensor, tensor.numel() * tensor.element_size()
            held["now"] += self.size
            held["most"] = max(held["most"], held["now"])

        def __del__(self):
            held["now"] -= self.size

    with torch.autograd.graph.saved_tensors_hooks(Held, lambda one: one.tensor):
        gradient(network, objective, batch, **changes)
    return held["most"]


def test_parts_and_recomputation_need_less_memory(tmp_path):
    deep = tiny.save_checkpoint(tmp_path / "deep", "t5", num_layers=6)
    network, objective, batch = setting(deep)
    whole = saved_bytes(network, objective, batch)
    assert saved_bytes(network, objective, batch, accumulate=9) < whole / 4
    recompute_activations(network.modules(), enabled=True)
    assert saved_bytes(network, objective, batch) < whole / 2


def test_a_training_in_parts_ends_with_the_same_weights(tmp_path):
    ends = []
    backbone = tiny.save_checkpoint(tmp_path / "t5", "t5")
    for count in (1, 3):
        _, model, objective, batches, config = tiny.prepared(backbone, steps=5)
        changed = {"optimiser.accumulate": count, "optimiser.gradient_checkpointing": count > 1}
        config = with_settings(config, {**changed, "optimiser.learning_rate": 1e-3})
        tiny.trained(model.network, objective, batches, config, tmp_path / str(count))
        assert any(getattr(one, "gradient_checkpointing", False) for one in model.network.modules()) == (
            count > 1
        )
        ends.append(model.network.weights())
    for name, value in ends[0].items():
        torch.testing.assert_close(ends[1][name], value, atol=1e-4, rtol=1e-3, msg=name)


def test_a_loss_of_ones_own_cannot_be_computed_in_parts(tmp_path, t5):
    _, model, _, batches, config = tiny.prepared(t5, steps=2)
    config = with_settings(config, {"optimiser.accumulate": 2})
    with pytest.raises(ValueError, match="cannot be computed in parts: set 1"):
        tiny.trained(model.network, lambda *_: {}, batches, config, tmp_path)


@pytest.mark.parametrize("count", [1, 2, 4, 40])
def test_parts_have_every_query_row_and_text_once_in_order(t5, count):
    batch = setting(t5)[2]
    parts = batch.parts(count)
    assert len(parts) == min(count, 11)
    assert torch.cat([part.query_index for part in parts]).equal(batch.query_index)
    assert torch.cat([part.text_index for part in parts]).equal(batch.text_index)
    assert torch.cat([part.docids for part in parts]).equal(batch.docids)
    assert torch.block_diag(*[part.grades for part in parts]).long().equal(batch.grades)
    for part in parts:
        for ids, mask in ((part.queries, part.query_mask), (part.texts, part.text_mask)):
            assert not len(ids) or mask.any(0).all(), "no column of padding alone"
    owners = torch.cat(
        [part.owner + sum(len(one.queries) for one in parts[:i]) for i, part in enumerate(parts)]
    )
    assert owners.equal(batch.owner)
