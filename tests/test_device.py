"""Training and search on a second device: every tensor is made where the model is."""

import json
from dataclasses import replace

import pytest
import torch
from helpers import tiny
from helpers.second_device import second_device

from gr2.experiments.trial import training_config
from gr2.model.config import SearchConfig
from gr2.model.device import device_of
from gr2.model.gr2 import GR2
from gr2.schemes.config import FusionConfig, GeneratorConfig, SchemeConfig
from gr2.schemes.registry import SchemeContext, build
from gr2.training.fit import fit

CASES = {  # family: settings
    "encoder": {"frozen_steps": 2, "steps": 2, "self_negative_steps": 2, "accumulate": 2},
    "t5": {"steps": 3, "normaliser": "vocabulary", "prior": 0.0, "smoothing": 0.1},
    "bart": {"steps": 3, "recipe": "LR"},
}
SEARCHES = (SearchConfig(), SearchConfig(mode="exact"), SearchConfig(similarity_weight=1.0))


def losses(folder):
    stages = sorted(folder.rglob("metrics.jsonl"))
    return [json.loads(line)["total"] for path in stages for line in path.read_text().splitlines()]


def test_a_mixture_of_devices_is_noticed():
    with second_device() as device:
        there = torch.ones(3, device=device)
        assert (there + 1).cpu().tolist() == [2, 2, 2]
        with pytest.raises(RuntimeError, match="two devices"):
            there + torch.ones(3)
        with pytest.raises(RuntimeError):
            there.numpy()


@pytest.mark.parametrize("family", CASES)
def test_a_whole_training_and_search_runs_on_a_second_device(family, tmp_path):
    backbone = tiny.save_checkpoint(tmp_path / "backbone", family)
    data = tiny.collection(20)
    docids = tiny.titles(data, backbone)
    config = training_config(
        {"queries": 5, "texts": 5, "bf16": False, "learning_rate": 1e-3, **CASES[family]}
    )
    config = replace(config, schedule=replace(config.schedule, log_every=1))
    here = fit(data, docids, str(backbone), tmp_path / "cpu", replace(config, device="cpu"))
    expected = [here.search_many(data.queries, 5, how) for how in SEARCHES]
    filtered = here.searcher().search(data.queries["q00"], 3, allowed=["d01", "d07"])
    with second_device() as device:
        trained = fit(data, docids, str(backbone), tmp_path / "there", replace(config, device=str(device)))
        assert trained.network.device == device
        moved = GR2.from_pretrained(tmp_path / "cpu", device=str(device))
        found = [moved.search_many(data.queries, 5, how) for how in SEARCHES]
        few = moved.searcher().search(data.queries["q00"], 3, allowed=["d01", "d07"])
    assert [result.docno for result in few] == [result.docno for result in filtered]
    first, second = losses(tmp_path / "cpu.training"), losses(tmp_path / "there.training")
    assert len(first) == len(second) and second == pytest.approx(first, rel=2e-2)
    assert second[0] == pytest.approx(first[0], rel=1e-5)
    for one, two in zip(expected, found, strict=True):
        for qid, ranking in one.rankings.items():
            assert [score for _, score in two.rankings[qid]] == pytest.approx(
                [score for _, score in ranking], abs=1e-4
            )


def test_docids_are_generated_on_a_second_device(tmp_path):
    backbone = tiny.save_checkpoint(tmp_path / "backbone", "t5")
    data = tiny.collection(12)
    small = GeneratorConfig(steps=2, batch=4, beams=2, fusion=FusionConfig(width=8, slots=2), device="cpu")

    def made(folder, device):
        how = SchemeConfig(scheme="fusion", generation=replace(small, device=device))
        context = SchemeContext(collection=data, backbone=str(backbone), folder=folder, config=how)
        return build(context)

    assert len(made(tmp_path / "cpu", "cpu")) == 12
    with second_device() as device:
        assert len(made(tmp_path / "there", str(device))) == 12


def test_auto_takes_what_there_is():
    usual = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    assert device_of("auto").type == usual
    with pytest.raises(ValueError, match="expected a device such as auto"):
        device_of("warp drive")
