"""Loading a checkpoint prints nothing that our loaders handle, and all that they do not."""

import logging

import pytest
import torch
from helpers import tiny
from safetensors.torch import load_file, save_file

from gr2.model.encoder import Encoder
from gr2.model.network import Network
from gr2.model.quiet import SPEAKER, is_news, quiet


@pytest.fixture
def untied(tmp_path):
    """A T5 whose stored head differs from its embeddings, and which has a weight that nobody reads."""
    folder = tiny.save_checkpoint(tmp_path / "t5", "t5")
    file = folder / "model.safetensors"
    stored = load_file(file)
    stored["lm_head.weight"] = torch.randn(stored["shared.weight"].shape)
    stored["stray.weight"] = torch.zeros(2)
    save_file(stored, file, metadata={"format": "pt"})
    return folder


@pytest.fixture
def printed(capfd, caplog):
    """Loads something, and gives all that was printed or logged by it."""

    def during(load) -> str:
        capfd.readouterr()
        caplog.clear()
        load()
        return "".join(capfd.readouterr()) + caplog.text

    return during


@pytest.mark.parametrize("load", [Encoder.load, lambda folder: Network.build(folder, [7, 9])])
def test_an_untied_head_and_unread_weights_are_loaded_in_silence(load, untied, printed):
    assert printed(lambda: load(untied)) == ""


def test_a_missing_weight_is_still_reported_and_other_messages_pass(untied, printed):
    file = untied / "model.safetensors"
    stored = load_file(file)
    name = next(name for name in stored if name.startswith("decoder.") and "SelfAttention" in name)
    del stored[name]
    save_file(stored, file, metadata={"format": "pt"})
    said = printed(lambda: Network.build(untied, [7, 9]))
    assert name in said and "MISSING" in said and "tied weights" not in said

    def other() -> None:
        with quiet():
            logging.getLogger(SPEAKER).warning("something else")

    assert "something else" in printed(other)


def test_outside_everything_is_as_before(capfd):
    from transformers.utils import logging as settings

    with pytest.raises(ZeroDivisionError), quiet():
        raise ZeroDivisionError
    assert settings.set_tqdm_hook(None) is None
    assert is_news not in logging.getLogger(SPEAKER).filters
    list(settings.tqdm(range(3), desc="a bar of others"))
    assert "a bar of others" in capfd.readouterr().err
