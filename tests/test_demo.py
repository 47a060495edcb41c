"""The demo, on a small collection with a small backbone: what it says, and that it goes on."""

import re
from pathlib import Path

import checkpoints as tiny
import pytest
from test_report import graded

from gr2 import demo as module
from gr2.model import GR2
from gr2.store import verify


@pytest.fixture
def backbone(tmp_path):
    return str(tiny.save_checkpoint(tmp_path / "backbone", "bert"))


@pytest.fixture
def small(monkeypatch):
    """The demo with everything in it made small."""
    monkeypatch.setattr(module, "SECONDS", 5.0)
    monkeypatch.setattr(module, "FAST", 2.0)
    opened = []

    def open_small(name):
        opened.append(name)
        return graded()

    monkeypatch.setattr(module, "open_collection", open_small)
    return opened


def heads(text: str) -> list[str]:
    """What the lines of the stages begin with."""
    return [word for word in re.findall(r"^([A-Za-z]+): ", text, re.MULTILINE) if word != "Next"]


def shown_in_the_readme() -> str:
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```text\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return shown


def test_the_whole_walk_is_told_and_leaves_a_model_with_a_report(small, backbone, tmp_path):
    out = tmp_path / "engine"
    said = "\n".join(module.demo(out, backbone))
    assert small == ["pydocs"]
    for part in ("docids:", "vectors:", "plan:", "model:", "MLE:", "measures:", "BM25", "popularity"):
        assert part in said, part
    assert heads(said) == heads(shown_in_the_readme())
    assert "Questions it has never seen" in said and "“" in said and "grade " in said
    assert f"gr2 serve {out}" in said and "fast" not in said
    verify(out)
    assert (out / "report.html").is_file()
    model = GR2.from_pretrained(out)
    assert model.search("anything", 2) and model.provenance["plan"]["learning_rate"] == module.RATE
    kept = {path.name for path in (tmp_path / "engine.training").iterdir()}
    assert "MLE.trec" in kept and not any(name.startswith("MLE.model") for name in kept)


def test_the_fast_one_says_what_it_costs_and_trains_once(small, backbone, tmp_path):
    said = "\n".join(module.demo(tmp_path / "engine", backbone, fast=True))
    assert "fewer steps" in said and "MLE:" not in said


def test_a_demo_goes_on_and_a_finished_one_is_shown_again_without_training(
    small, backbone, tmp_path, monkeypatch
):
    out = tmp_path / "engine"
    telling = module.demo(out, backbone, fast=True)
    while not next(telling).startswith("plan:"):
        pass
    telling.close()
    assert not out.exists()
    again = "\n".join(module.demo(out, backbone, fast=True))
    assert "as planned before" in again
    first = (out / "network.safetensors").read_bytes()

    def no_step(*more, **named):
        raise AssertionError("a finished demo trained again")

    monkeypatch.setattr("gr2.train._move", no_step)
    assert "measures:" in "\n".join(module.demo(out, backbone, fast=True))
    assert (out / "network.safetensors").read_bytes() == first


def test_what_was_begun_differently_does_not_go_on(small, backbone, tmp_path):
    out = tmp_path / "engine"
    next(telling := module.demo(out, backbone, fast=True))
    next(telling), next(telling)
    telling.close()
    with pytest.raises(ValueError, match="begun with another comparison; remove it"):
        list(module.demo(out, backbone))
