"""The cost that a dry run tells, against counts of the real thing."""

from dataclasses import replace

import pytest
import torch
from helpers import tiny
from torch.utils.flop_counter import FlopCounterMode

from gr2.schemes.config import GeneratorConfig, SchemeConfig
from gr2.systems.config import GenerativeConfig
from gr2.training.batches import Batches
from gr2.training.config import TrainingConfig, with_settings
from gr2.training.fit import prepare
from gr2.training.gradients import Gradients
from gr2.training.loop import encoded
from gr2.workflows.cost import costs

PLAIN = {
    "prior.vectors_per_document": 0.0,
    "objective.normaliser": "vocabulary",
    "schedule.steps": 3,
    "batches.queries": 10,
    "batches.texts": 25,
    "optimiser.average": 0.0,
    "optimiser.bf16": False,
    "augment.pieces": 0,
}


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    """A T5 of four layers whose matrices are large beside its tables."""
    return tiny.save_checkpoint(tmp_path_factory.mktemp("deep"), "t5", width=64, num_layers=4, d_ff=256)


def configured(backbone, scheme="title", **settings) -> GenerativeConfig:
    return GenerativeConfig(
        backbone=str(backbone),
        docids=SchemeConfig(scheme=scheme, words=3, generation=GeneratorConfig(steps=5, batch=8)),
        training=with_settings(TrainingConfig(), {**PLAIN, **settings}),
    )


def of(name, backbone, **settings):
    stages = costs(tiny.collection(), configured(backbone, **settings))[1]
    return next(stage for stage in stages if stage.name == name)


def test_flops_are_those_of_real_batches(deep):
    data, config = tiny.collection(), configured(deep)
    ready = prepare(data, tiny.titles(data, deep), str(deep), config.training, vectors=None)
    ready.model.network.freeze(encoder=False)
    batches = Batches(ready.examples, config.training.batches)
    of_step = Gradients(ready.model.network, ready.objective, encoded, config.training.optimiser, (0,))
    with FlopCounterMode(display=False) as counter:
        for step in range(3):
            of_step(batches[step], step)
    assert of("training", deep).flops == pytest.approx(counter.get_total_flops(), rel=0.1)


def test_flops_are_six_per_weight_and_token(deep):
    """The rule of thumb for a network whose matrices are far larger than its attention over short texts."""
    work, (stage,) = costs(tiny.collection(), configured(deep))
    assert (work.documents, work.judged, work.rows) == (50, 50, 2.0)
    encoder = 4 * (4 * 64 * 32 + 2 * 64 * 256)  # weights of the layers; heads have 2 × 16 dimensions
    decoder = 4 * (8 * 64 * 32 + 2 * 64 * 256) + 64 * work.vocabulary
    read = 3 * (10 * work.query_tokens + 25 * work.text_tokens)
    written = 3 * (10 * 2 + 25) * (work.docid_tokens + 1)
    assert stage.flops == pytest.approx(6 * (encoder * read + decoder * written), rel=0.3)
    assert stage.tokens == pytest.approx(read + written - 3 * (10 * 2 + 25))


def test_parts_cost_a_third_more_with_mgcc_alone_and_recomputation_too(deep):
    whole = of("training", deep).flops
    assert of("training", deep, **{"optimiser.accumulate": 5}).flops == pytest.approx(4 / 3 * whole, rel=0.03)
    apart = {"optimiser.accumulate": 5, "objective.gamma": 0.0}
    assert of("training", deep, **apart).flops == pytest.approx(whole, rel=0.03)
    again = {"optimiser.gradient_checkpointing": True}
    assert of("training", deep, **again).flops == pytest.approx(4 / 3 * whole, rel=0.1)


def test_memory_is_weights_optimiser_and_what_is_kept_for_the_backward_pass(deep):
    data, config = tiny.collection(), configured(deep)
    ready = prepare(data, tiny.titles(data, deep), str(deep), config.training, vectors=None)
    network = ready.model.network
    network.freeze(encoder=False)
    weights = {weight.untyped_storage().data_ptr() for weight in network.parameters()}
    kept = {}

    def keep(tensor):
        if (place := tensor.untyped_storage().data_ptr()) not in weights:
            kept[place] = tensor
        return tensor

    batch = Batches(ready.examples, config.training.batches)[0]
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        ready.objective(network.train(), batch, *encoded(network, batch))
    saved = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    fixed = sum(4 * p.numel() * (4 if p.requires_grad else 1) for p in network.parameters())
    assert 1e9 * of("training", deep).gigabytes == pytest.approx(fixed + saved, rel=0.25)
    sizes = [
        of("training", deep, **changed).gigabytes * 1e9 - fixed
        for changed in (
            {},
            {"optimiser.accumulate": 5},
            {"optimiser.gradient_checkpointing": True},
        )
    ]
    assert sizes[1] < sizes[0] / 4 and sizes[2] < sizes[0] / 2
    averaged = of("training", deep, **{"optimiser.average": 0.3}).gigabytes * 1e9
    moving = sum(4 * p.numel() for p in network.parameters() if p.requires_grad)
    assert averaged - of("training", deep).gigabytes * 1e9 == pytest.approx(moving, rel=0.1)


def test_every_stage_has_a_row(deep):
    config = configured(deep, "fusion", **{"schedule.frozen_steps": 2, "schedule.self_negative_steps": 1})
    stages = {one.name: one for one in costs(tiny.collection(), config)[1]}
    assert list(stages) == [
        *("docid generator", "docids", "training, frozen encoder", "training"),
        *("self-negatives", "training with them"),
    ]
    assert {name: one.steps for name, one in stages.items() if one.steps} == {
        "docid generator": 5,
        "training, frozen encoder": 2,
        "training": 3,
        "training with them": 1,
    }
    per_step = {name: one.flops / one.steps for name, one in stages.items() if one.steps}
    encoder = 4 * (4 * 64 * 32 + 2 * 64 * 256)
    work = costs(tiny.collection(), config)[0]
    saved = 6 * encoder * (10 * work.query_tokens + 25 * work.text_tokens)
    assert per_step["training"] - per_step["training, frozen encoder"] == pytest.approx(saved, rel=0.3)
    assert per_step["training with them"] == per_step["training"]


def test_fewer_docids_are_written_with_fewer_beams(deep):
    config = configured(deep, "query")
    fewer = replace(config, docids=replace(config.docids, generation=GeneratorConfig(beams=5)))
    flops = [
        next(one.flops for one in costs(tiny.collection(), each)[1] if one.name == "docids")
        for each in (config, fewer)
    ]
    assert 1.6 < flops[0] / flops[1] <= 2


def test_texts_as_queries_are_counted(deep):
    more = {"augment.as_queries": True, "augment.sentences": 1}
    work = costs(tiny.collection(), configured(deep, **more))[0]
    assert (work.queries, work.judged, work.rows) == (100, 50, 1.5)
