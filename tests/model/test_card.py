"""The model card: metadata that the hub reads, figures that were measured, and loading by a hub's name."""

import hashlib
import json
import os
import shutil

import pytest
import yaml
from helpers import tiny
from huggingface_hub import ModelCard

from gr2.model.card import card
from gr2.model.gr2 import GR2
from gr2.model.hub import located
from gr2.store import verify
from gr2.systems.config import GenerativeConfig
from gr2.workflows.index import IndexJob, index

FACTS = {"documents": 3, "scheme": "title", "mean": 2.0, "longest": 3, "family": "encoder", "weights": 9}
FACTS |= {"prior_weights": 0, "prior_bytes": 0, "normaliser": "trie", "cut": 64, "look_ahead": {}}
ODD = 'shop: "new"\n---\nä # {x} | 5%'


@pytest.fixture(scope="module")
def indexed(tmp_path_factory):
    """The folder of a model that was measured."""
    place = tmp_path_factory.mktemp("card")
    backbone = str(tiny.save_checkpoint(place / "checkpoint", "encoder"))
    config = GenerativeConfig(backbone=backbone)
    index(IndexJob(collection=tiny.graded(), out=place / "shop-model", config=config))
    return place / "shop-model"


@pytest.fixture
def copy(indexed, tmp_path):
    return shutil.copytree(indexed, tmp_path / "shop-model")


def metadata(folder):
    """As the hub's own library reads it."""
    return ModelCard.load(folder / "README.md").data


def test_the_hub_reads_the_metadata_and_the_measured_figures(indexed):
    found, measured = metadata(indexed), json.loads((indexed / "measures.json").read_text())
    assert (found.library_name, found.pipeline_tag, found.license) == ("gr2", "text-ranking", "unknown")
    assert "generative-retrieval" in found.tags
    results = {one.metric_name: one for one in found.eval_results}
    assert {name: one.metric_value for name, one in results.items()} == pytest.approx(
        measured["means"], abs=5e-5
    )
    one = results["nDCG@20"]
    assert (one.metric_type, one.dataset_split, one.task_type) == ("ndcg_at_20", "test", "text-retrieval")
    assert (one.dataset_name, one.dataset_revision) == (tiny.graded().name, tiny.graded().fingerprint)
    assert set(found.metrics) == {one.metric_type for one in results.values()}


def test_the_figures_are_those_of_the_report(indexed):
    means = json.loads((indexed / "measures.json").read_text())["means"]
    rows = [line for line in (indexed / "report.md").read_text().splitlines() if "GR²" in line]
    assert any(all(f"{value:.4f}" in row for value in means.values()) for row in rows)
    (row,) = (indexed / "README.md").read_text().splitlines()[-1:]
    assert row == f"| {' | '.join(f'{value:.4f}' for value in means.values())} |"


def test_a_model_that_was_not_measured_claims_nothing():
    found = ModelCard(card(FACTS, {}))
    assert found.data.eval_results is None and "metrics" not in found.data.to_dict()
    assert "Measures" not in found.text


def test_any_name_of_a_collection_is_valid_yaml():
    measured = {"collection": ODD, "fingerprint": "f", "split": "test", "queries": 1, "convention": "c"}
    text = card(FACTS, {"collection": "c", "card": {"license": "mit"}}, measured | {"means": {"nDCG@5": 0.5}})
    found = yaml.safe_load(text.split("\n---\n")[0].removeprefix("---\n"))
    assert found["model-index"][0]["results"][0]["dataset"]["name"] == ODD
    assert ModelCard(text).data.license == "mit"


def test_the_owner_s_words_are_kept_and_the_folder_still_loads(gr2, copy):
    before = GR2.from_pretrained(copy).search("baka", 3)
    gr2("card", copy, "--license", "cc-by-4.0", "--datasets", "someone/shop")
    gr2("card", copy, "--language", "en", "de")
    found = metadata(copy)
    assert (found.license, found.language, found.datasets) == ("cc-by-4.0", ["en", "de"], ["someone/shop"])
    assert found.eval_results, "the figures stay"
    assert GR2.from_pretrained(copy).search("baka", 3) == before
    GR2.from_pretrained(copy).save_pretrained(copy.with_name("again"))
    assert metadata(copy.with_name("again")).license == "cc-by-4.0"
    assert metadata(copy.with_name("again")).eval_results is None, "nobody has measured it there"


def test_the_card_is_in_the_manifest_and_a_changed_one_is_refused(copy):
    assert "README.md" in json.loads((copy / "manifest.json").read_text())["files"]
    with (copy / "README.md").open("a") as stream:
        stream.write("edited by hand")
    with pytest.raises(ValueError, match=r"README\.md: changed since it was written"):
        GR2.from_pretrained(copy)


def test_a_model_loads_by_its_name_on_the_hub(indexed, tmp_path, monkeypatch, gr2):
    """From the hub's own cache, without a network: links to blobs, beside the hub's hidden files."""
    cache = tmp_path / "hub" / "models--someone--shop"
    snapshot = cache / "snapshots" / ("a" * 40)
    for path in [path for path in indexed.rglob("*") if path.is_file()]:
        blob = cache / "blobs" / hashlib.sha256(path.read_bytes()).hexdigest()
        blob.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, blob)
        link = snapshot / path.relative_to(indexed)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    (snapshot / ".gitattributes").write_text("*.safetensors filter=lfs")
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("a" * 40)
    verify(snapshot, "config.json")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    found = GR2.from_pretrained("someone/shop").search("baka", 3)
    assert found == GR2.from_pretrained(indexed).search("baka", 3) and len(found) == 3
    assert gr2("search", "someone/shop", "baka") == gr2("search", indexed, "baka")
    missing = "someone/else: no such folder, and no such model on the hub either"
    with pytest.raises(SystemExit, match=missing):
        gr2("search", "someone/else", "baka")


def test_names_of_folders_never_ask_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda name: pytest.fail(f"asked for {name}"))
    (tmp_path / "models").mkdir()
    for name in ("shop", "models/shop", "../shop/model", "a/b/c", "/no/where", "~/shop"):
        assert str(located(name)) == name
