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
from torch.nn.utils.rnn import pad_sequence

from gr2.evaluate.measures import evaluate
from gr2.training.batches import Batch, Batches
from gr2.training.checkpoints import newest_checkpoint
from gr2.training.config import BatchConfig, with_settings
from gr2.training.loop import train


@pytest.fixture(scope="module")
def backbone(tmp_path_factory) -> Path:
    """A T5: it has no biases, so no gradient is zero but for rounding (AdamW would make a step of that)."""
    return tiny.save_checkpoint(tmp_path_factory.mktemp("t5"), "t5", seed=2)


def weights(network) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in network.weights().items()}


def same(one, two) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


class Joined(Batches):
    """Two batches as one."""

    def __getitem__(self, step: int) -> Batch:
        one, two = super().__getitem__(2 * step), super().__getitem__(2 * step + 1)
        both = {
            name: pad_sequence([*getattr(one, name), *getattr(two, name)], batch_first=True)
            for name in ("queries", "query_mask", "texts", "text_mask")
        }
        both |= {
            name: torch.cat([getattr(one, name), getattr(two, name)]) for name in ("docids", "text_docids")
        }
        both |= {
            name: torch.block_diag(getattr(one, name), getattr(two, name)) for name in ("grades", "negatives")
        }
        both["owner"] = torch.cat([one.owner, two.owner + len(one.queries)])
        return replace(one, **both, elsewhere=torch.zeros(len(both["queries"]), 0, dtype=torch.bool))


def test_two_accumulated_batches_move_the_weights_as_one_of_twice_the_size(backbone, tmp_path):
    ends, logged = [], []
    for kind, accumulate in ((Batches, 2), (Joined, 1)):
        _, model, objective, batches, config = tiny.prepared(backbone, "MLE", steps=5)
        sizes = BatchConfig(queries=10, texts=10)
        assert len(batches.examples.texts) % sizes.texts == len(batches.examples.queries) % sizes.queries == 0
        before = weights(model.network)
        config = with_settings(config, {"optimiser.accumulate": accumulate, "log_every": 1})
        folder = tmp_path / kind.__name__
        run = tiny.trained(model.network, objective, kind(batches.examples, sizes), config, folder)
        ends.append(weights(model.network))
        logged.append([now.parts["total"] for now in run])
    assert max(float((ends[0][name] - before[name]).abs().max()) for name in before) > 1e-2
    for name in ends[0]:
        assert torch.allclose(ends[0][name], ends[1][name], atol=1e-5), name
    assert logged[0] == pytest.approx(logged[1], abs=1e-5)


def test_a_step_counts_every_accumulated_batch(backbone, tmp_path):
    _, model, objective, batches, config = tiny.prepared(backbone, steps=2)
    asked = []

    class Watched(Batches):
        def __getitem__(self, step):
            asked.append(step)
            return super().__getitem__(step)

    watched = Watched(batches.examples, batches.config)
    tiny.trained(
        model.network, objective, watched, with_settings(config, {"optimiser.accumulate": 3}), tmp_path
    )
    assert asked == [0, 1, 2, 3, 4, 5]


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
        ({"optimiser.average": 1.5}, "average"),
        ({"validate_every": 1}, "validate"),
    ],
)
def test_what_cannot_be_meant_is_refused(backbone, tmp_path, change, why):
    _, model, objective, batches, config = tiny.prepared(backbone, steps=2)
    with pytest.raises(ValueError, match=why):
        tiny.trained(model.network, objective, batches, with_settings(config, change), tmp_path)
