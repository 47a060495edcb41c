"""Whatever fails inside a training leaves a clear error and the last checkpoint."""

import json

import pytest
import torch
from helpers import tiny
from safetensors.torch import load_file

from gr2.store import AlreadyWriting, writer_lock
from gr2.training.checkpoints import newest_checkpoint
from gr2.training.loop import TrainingError, train


class Failing:
    """An objective that fails at one step."""

    def __init__(self, objective, step, error):
        self.objective, self.left, self.error = objective, step, error

    def __call__(self, *arguments):
        self.left -= 1
        if not self.left:
            raise self.error
        return self.objective(*arguments)


@pytest.mark.parametrize("error", [ValueError("a bad loss"), RuntimeError("out of memory")])
def test_a_failure_says_where_and_can_be_resumed_to_the_same_bytes(error, checkpoints, tmp_path):
    _, whole, objective, batches, config = tiny.prepared(checkpoints["encoder"], steps=6)
    train(whole.network, objective, batches, config, tmp_path / "whole")
    _, model, objective, batches, config = tiny.prepared(checkpoints["encoder"], steps=6)
    failing = Failing(objective, 4, error)
    with pytest.raises(TrainingError, match=f"training failed at step 4: {error}"):
        train(model.network, failing, batches, config, tmp_path / "failed")
    assert json.loads((newest_checkpoint(tmp_path / "failed") / "state.json").read_text())["step"] == 3
    _, model, objective, batches, config = tiny.prepared(checkpoints["encoder"], steps=6)
    train(model.network, objective, batches, config, tmp_path / "failed", resume=True)
    one, two = (
        load_file(newest_checkpoint(tmp_path / name) / "network.safetensors") for name in ("whole", "failed")
    )
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_weights_that_are_no_numbers_are_never_saved(checkpoints, tmp_path):
    """The loss is finite and its gradient is not: the checkpoint before it stays, and can be resumed."""
    _, model, objective, batches, config = tiny.prepared(checkpoints["encoder"], steps=6)
    steps = []

    def poisoned(*arguments):
        parts = objective(*arguments)
        steps.append(1)
        if len(steps) == 4:
            parts["total"] = parts["total"] + (model.network.head.weight.sum() * 0).sqrt()
        return parts

    with pytest.raises(TrainingError, match="step 4: the norm of the gradient is nan"):
        train(model.network, poisoned, batches, config, tmp_path)
    kept = load_file(newest_checkpoint(tmp_path) / "network.safetensors")
    assert all(value.isfinite().all() for value in kept.values() if value.is_floating_point())
    _, model, objective, batches, config = tiny.prepared(checkpoints["encoder"], steps=6)
    train(model.network, objective, batches, config, tmp_path, resume=True)


def test_an_interruption_keeps_what_was_done(checkpoints, tmp_path):
    _, model, objective, batches, config = tiny.prepared(checkpoints["encoder"], steps=6)
    with pytest.raises(KeyboardInterrupt):
        train(model.network, Failing(objective, 3, KeyboardInterrupt()), batches, config, tmp_path)
    assert json.loads((newest_checkpoint(tmp_path) / "state.json").read_text())["step"] == 2


def test_a_loss_that_is_no_number_stops_the_training(checkpoints, tmp_path):
    _, model, objective, batches, config = tiny.prepared(checkpoints["encoder"], steps=3)

    def broken(*arguments):
        return {name: value * float("nan") for name, value in objective(*arguments).items()}

    with pytest.raises(TrainingError, match="the loss is nan, not a finite number"):
        train(model.network, broken, batches, config, tmp_path)
    assert newest_checkpoint(tmp_path) is None, "nothing was done, so there is nothing to resume"


def test_a_second_training_into_the_same_folder_is_refused(checkpoints, tmp_path):
    """It would remove the checkpoints of the first."""
    _, model, objective, batches, config = tiny.prepared(checkpoints["encoder"], steps=2)
    with writer_lock(tmp_path / "run"), pytest.raises(AlreadyWriting, match="another process is writing it"):
        train(model.network, objective, batches, config, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    train(model.network, objective, batches, config, tmp_path / "run")
    assert newest_checkpoint(tmp_path / "run") is not None
