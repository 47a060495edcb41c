"""The training loop's means: accumulated gradients, averaged weights, a judge that decodes, all resumed."""

import json
import multiprocessing
import os
import random
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from helpers import tiny

from gr2.evaluate.measures import evaluate
from gr2.training.checkpoints import newest_checkpoint
from gr2.training.config import with_settings
from gr2.training.loop import encoded, schedule, train


@pytest.fixture(scope="module")
def backbone(tmp_path_factory) -> Path:
    """A T5: it has no biases, so no gradient is zero but for rounding (AdamW would make a step of that)."""
    return tiny.save_checkpoint(tmp_path_factory.mktemp("t5"), "t5", seed=2)


def weights(network) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in network.weights().items()}


def same(one, two) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize(
    ("steps", "warmup", "decay_from"), [(20, 0.1, 0.1), (50, 0.3, 0.3), (20, 0.1, 0.5), (7, 0.0, 1.0)]
)
def test_the_rate_of_every_step_is_that_of_the_schedule(
    backbone, tmp_path, monkeypatch, steps, warmup, decay_from
):
    _, model, objective, batches, config = tiny.prepared(backbone, steps=steps)
    changed = {"warmup": warmup, "decay_from": decay_from, "learning_rate": 1e-3, "pretrained_rate": 0.5}
    config = with_settings(config, {f"optimiser.{name}": value for name, value in changed.items()})
    rates, step = [], torch.optim.AdamW.step
    keep = lambda self, *rest: rates.append([g["lr"] for g in self.param_groups]) or step(self, *rest)  # noqa: E731
    monkeypatch.setattr(torch.optim.AdamW, "step", keep)
    tiny.trained(model.network, objective, batches, config, tmp_path)
    warm = max(1, round(warmup * steps))
    wanted = [
        (i + 1) / warm if i < warm else min(1.0, (steps - i) / max(1, steps - decay_from * steps))
        for i in range(steps)
    ]
    assert [each[0] for each in rates] == pytest.approx([1e-3 * factor for factor in wanted])
    assert [each[1] for each in rates] == pytest.approx([5e-4 * factor for factor in wanted])


def test_a_decay_right_after_the_warm_up_is_the_linear_schedule_of_transformers():
    from transformers import get_linear_schedule_with_warmup

    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = get_linear_schedule_with_warmup(optimiser, num_warmup_steps=10, num_training_steps=100)
    factors = [theirs.lr_lambdas[0](step) for step in range(100)]
    assert [schedule(step, 100, 0.1, 0.1) for step in range(10, 100)] == pytest.approx(factors[10:])
    # Their warm-up begins at 0, which wastes the first step; ours reaches the full rate one step earlier.
    assert [schedule(step, 100, 0.1, 0.1) for step in range(9)] == pytest.approx(factors[1:10])


@pytest.mark.parametrize(("clip", "decay"), [(0.05, 0.0), (1e9, 0.5), (0.05, 0.5)])
def test_a_step_is_adamw_s_with_clipped_gradients_and_decayed_weights(backbone, tmp_path, clip, decay):
    """The first step by hand: m̂ / √v̂ is the sign of the gradient where that is not small against ε."""
    _, model, objective, batches, config = tiny.prepared(backbone, steps=1)
    changed = {"clip": clip, "weight_decay": decay, "learning_rate": 1e-2, "pretrained_rate": 1.0}
    config = with_settings(config, {f"optimiser.{name}": value for name, value in changed.items()})
    network = model.network
    network.freeze(encoder=False)
    before, batch = weights(network), batches[0]
    network.train()
    objective(network, batch, *encoded(network, batch))["total"].backward()
    slopes = {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}
    norm = torch.sqrt(sum(slope.square().sum() for slope in slopes.values()))
    assert 0.05 < float(norm) < 1e9
    network.zero_grad(set_to_none=True)
    tiny.trained(network, objective, batches, config, tmp_path)
    for name, slope in slopes.items():
        clipped = slope * min(1.0, clip / float(norm))
        moved = before[name] * (1 - 1e-2 * decay) - 1e-2 * clipped / (clipped.abs() + 1e-8)
        torch.testing.assert_close(network.get_parameter(name), moved, rtol=1e-4, atol=2e-5)


def test_the_result_is_the_mean_of_the_last_weights(backbone, tmp_path):
    _, model, objective, batches, config = tiny.prepared(backbone, steps=10)
    config = with_settings(config, {"optimiser.average": 0.4, "log_every": 1})
    seen = []
    keep = lambda _: seen.append(weights(model.network))  # noqa: E731
    train(model.network, objective, batches, config, tmp_path, progress=keep)
    assert len(seen) == 10
    for name, value in model.network.weights().items():
        assert torch.allclose(value, torch.stack([row[name] for row in seen[-4:]]).mean(0), atol=1e-6), name
    assert not same(weights(model.network), seen[-1])
    _, again, objective, batches, _ = tiny.prepared(backbone, steps=10)
    assert not tiny.trained(again.network, objective, batches, config, tmp_path, resume=True)
    assert same(weights(again.network), weights(model.network)), "a run that is over gives its result again"


@pytest.mark.parametrize(
    ("plan", "averaged"),
    [
        ({0: 10}, range(7, 11)),
        ({0: 20, 5: 10}, range(7, 11)),  # shorter, before averaging begins
        ({0: 10, 8: 20}, range(13, 21)),  # longer, after averaging had begun: it begins anew
        ({0: 50, 9: 9}, range(9, 10)),  # over at once
    ],
)
def test_a_plan_may_change_on_the_way(backbone, tmp_path, plan, averaged):
    """The rate, the mean and the end follow the number of steps that is planned by then."""
    _, model, objective, batches, config = tiny.prepared(backbone, steps=30)
    config = with_settings(config, {"optimiser.average": 0.4, "log_every": 1})
    seen, asked = [], []

    def planned(done: int) -> int:
        asked.append(done)
        return plan[max(since for since in plan if since <= done)]

    def keep(now) -> None:
        seen.append(weights(model.network))
        assert now.steps == planned(now.step)

    taken = train(model.network, objective, batches, config, tmp_path, plan=planned, progress=keep)
    assert taken == len(seen) == list(plan.values())[-1] and sorted({*asked}) == list(range(taken + 1))
    for name, value in model.network.weights().items():
        mean = torch.stack([seen[step - 1][name] for step in averaged]).mean(0)
        assert torch.allclose(value, mean, atol=1e-6), name


def test_a_frozen_encoder_is_not_averaged(backbone, tmp_path):
    _, model, objective, batches, config = tiny.prepared(backbone, steps=3)
    tiny.trained(
        model.network,
        objective,
        batches,
        with_settings(config, {"optimiser.average": 1.0, "freeze_encoder": True}),
        tmp_path,
    )
    from safetensors.torch import load_file

    mean = load_file(newest_checkpoint(tmp_path) / "mean.safetensors")
    assert mean and not any(name.startswith("encoder.") for name in mean)


def test_the_best_weights_are_kept_and_patience_ends_the_run(backbone, tmp_path):
    _, model, objective, batches, config = tiny.prepared(backbone, steps=30)
    config = replace(config, validate_every=3, patience=2)
    values, judged = iter([0.1, 0.5, 0.5, 0.4]), []

    def validate() -> float:
        assert not model.network.training
        judged.append(weights(model.network))
        return next(values)

    run = tiny.trained(model.network, objective, batches, config, tmp_path, validate=validate)
    assert [(now.step, now.validation) for now in run] == [
        (3, 0.1), (5, None), (6, 0.5), (9, 0.5), (10, None), (12, 0.4)
    ]  # fmt: skip
    assert run[0].seconds_left > 0 and run[-1].seconds_left == 0
    assert same(weights(model.network), judged[1]), "a tie is no gain"
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(line["step"], line.get("validation")) for line in lines] == [
        (now.step, now.validation) for now in run
    ]
    _, again, objective, batches, _ = tiny.prepared(backbone, steps=30)
    assert not tiny.trained(
        again.network, objective, batches, config, tmp_path, resume=True, validate=validate
    )
    assert same(weights(again.network), judged[1])


def test_without_patience_the_run_goes_on_and_judging_changes_nothing(backbone, tmp_path):
    ends = []
    for name, every in (("judged", 2), ("not", 0)):
        data, model, objective, batches, config = tiny.prepared(backbone, steps=7)
        config, seen = with_settings(config, {"validate_every": every, "optimiser.average": 0.5}), []

        def validate(model=model, queries=data.queries, seen=seen) -> float:
            model.search_many(queries, k=3)
            seen.append(weights(model.network))
            return float(len(seen))

        run = tiny.trained(model.network, objective, batches, config, tmp_path / name, validate=validate)
        ends += [(now.step, now.parts) for now in run if now.step in (5, 7)]
        assert len(seen) == (4 if every else 0), "steps 2, 4, 6 and the last one"
        if seen:
            assert same(weights(model.network), seen[-1])
        ends.append(weights(model.network))
    assert ends[:2] == ends[3:5]
    assert same(ends[2], ends[5]), "the last judgement was of the averaged weights, and the best"


def judged_run(backbone: Path, folder: Path, sign: int) -> None:
    data, model, objective, batches, config = tiny.prepared(backbone, steps=24)
    config = with_settings(
        config,
        {"optimiser.accumulate": 2, "optimiser.average": 0.5, "validate_every": 3, "patience": 3},
    )
    some = dict(list(data.queries.items())[:20])

    def validate() -> float:
        run = model.search_many(some, k=5)
        return (
            sign * evaluate(run, {qid: data.split("train")[qid] for qid in some}, ["nDCG@5"]).means["nDCG@5"]
        )

    tiny.trained(model.network, objective, batches, config, folder, resume=True, validate=validate)
    (folder / "result.txt").write_text(
        str(torch.cat([w.flatten() for w in model.network.weights().values()]).tolist())
    )


@pytest.mark.parametrize(("sign", "last"), [(1, 24), (-1, None)])
def test_killed_while_averaging_and_judging_it_ends_with_the_same_bytes(backbone, tmp_path, sign, last):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    judged_run(backbone, whole, sign)
    end = tiny.step_of(whole)
    assert end == last if last else 12 <= end < 24, "a judge that wants the worst ends the run early"
    draw = random.Random(sign)
    for target in sorted(draw.sample(range(1, end - 2), 3)):
        child = multiprocessing.get_context("fork").Process(target=judged_run, args=(backbone, killed, sign))
        child.start()
        while child.is_alive() and tiny.step_of(killed) < target:
            time.sleep(0.001)
        time.sleep(draw.uniform(0, 0.02))
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        assert 0 < tiny.step_of(killed) < end, "killed too late to show anything"
    judged_run(backbone, killed, sign)
    files = {path.relative_to(whole) for path in whole.rglob("*")}
    assert files == {path.relative_to(killed) for path in killed.rglob("*")}
    for name in files:
        assert (whole / name).is_dir() or (whole / name).read_bytes() == (killed / name).read_bytes(), name


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"optimiser.accumulate": 0}, "accumulate"),
        ({"optimiser.decay_from": 1.5}, "decay_from"),
        ({"optimiser.average": 1.5}, "average"),
        ({"validate_every": 1}, "validate"),
    ],
)
def test_what_cannot_be_meant_is_refused(backbone, tmp_path, change, why):
    _, model, objective, batches, config = tiny.prepared(backbone, steps=2)
    with pytest.raises(ValueError, match=why):
        tiny.trained(model.network, objective, batches, with_settings(config, change), tmp_path)
