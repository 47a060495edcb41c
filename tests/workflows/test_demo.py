"""The demo, on a small collection with a small backbone: what it says, and that it goes on."""

import re

import pytest
from helpers import tiny
from helpers.paths import ROOT

from gr2.evaluate.measures import evaluate
from gr2.model.gr2 import GR2
from gr2.report.evidence import DEPTH
from gr2.store import verify
from gr2.systems.config import GenerativeConfig
from gr2.workflows import demo as module


@pytest.fixture
def small(monkeypatch, tmp_path):
    """The demo with everything in it made small; the names of the collections that it opens."""
    backbone = str(tiny.save_checkpoint(tmp_path / "backbone", "encoder"))
    monkeypatch.setattr(module, "GenerativeConfig", lambda: GenerativeConfig(backbone=backbone))
    opened = []

    def open_small(name):
        opened.append(name)
        return tiny.graded()

    monkeypatch.setattr(module, "open_collection", open_small)
    return opened


def told(out, **options) -> str:
    """Everything that the demo says."""
    lines = []
    module.demo(out, say=lines.append, **options)
    return "\n".join(lines)


def interrupted_at(start: str, out, **options) -> None:
    """Run the demo until a line begins like this."""

    def say(line):
        if line.startswith(start):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        module.demo(out, say=say, **options)


def heads(text: str) -> list[str]:
    """What the lines of the stages begin with."""
    return [word for word in re.findall(r"^([A-Za-z]+): ", text, re.MULTILINE) if word != "Next"]


def shown_in_the_readme() -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```text\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return shown


def test_the_whole_walk_is_told_and_leaves_a_model_with_a_report(small, tmp_path):
    out = tmp_path / "engine"
    said = told(out)
    assert small == ["pydocs"]
    for part in ("docids:", "encoding:", "look-ahead:", "learned:", "model:", "measures:", "BM25", "hybrid"):
        assert part in said, part
    assert heads(said) == heads(shown_in_the_readme())
    assert "Questions it has never seen" in said and "“" in said and "grade " in said
    assert f"gr2 serve {out}" in said and "fast" not in said
    verify(out)
    assert (out / "report.html").is_file()
    model = GR2.from_pretrained(out)
    assert model.search(tiny.graded().queries["q003"], 2)[0].views
    figures_are_those_of(model, said)


def figures_are_those_of(model: GR2, said: str) -> None:
    """What is printed about the model is what it has and what it finds, measured here."""
    data = tiny.graded()
    assert f"docids: {len(model.docids)} by title" in said and len(model.docids) == 30
    assert f"learned: {model.provenance['look_ahead']['chosen']};" in said
    qrels = data.split("test")
    assert f"measures: {len(qrels)} queries of test" in said
    (names,) = re.findall(r"^ +system +(.*)", said, re.MULTILINE)
    (row,) = re.findall(r"^\w  GR² +(.*)", said, re.MULTILINE)
    shown = dict(zip(names.split(), re.findall(r"\d\.\d+", row), strict=True))
    run = model.search_many({qid: data.queries[qid] for qid in qrels}, DEPTH)
    found = evaluate(run, qrels, list(shown)).means
    assert shown == {name: f"{found[name]:.4f}" for name in shown}


def test_the_fast_one_reads_less(small, tmp_path):
    said = told(tmp_path / "engine", fast=True)
    assert f"the first {module.FAST} tokens" in said and "pieces" not in said


def test_a_demo_goes_on_and_a_finished_one_is_shown_again_without_encoding(small, tmp_path, monkeypatch):
    out = tmp_path / "engine"
    interrupted_at("look-ahead:", out, fast=True)
    assert not out.exists()

    def no_encoding(*more, **named):
        raise AssertionError("documents were encoded again")

    monkeypatch.setattr("gr2.workflows.index.Dense.index", no_encoding)
    assert "measures:" in told(out, fast=True)
    first = (out / "look_ahead" / "look_ahead.safetensors").read_bytes()
    assert "measures:" in told(out, fast=True)
    assert (out / "look_ahead" / "look_ahead.safetensors").read_bytes() == first


def test_what_was_begun_differently_does_not_go_on(small, tmp_path):
    out = tmp_path / "engine"
    interrupted_at("look-ahead:", out, fast=True)
    with pytest.raises(ValueError, match="begun with another configuration; remove it"):
        module.demo(out)
