"""`gr2 index` and the same steps by hand give the same weights, bit for bit."""

from dataclasses import replace

import pytest
from helpers import tiny

from gr2.data.collection import Collection
from gr2.data.formats import write_folder
from gr2.data.runs import Run

SETTINGS = {
    "encoder": ("--preset", "decoder", "--schedule.steps", "3", "--batches.queries", "5", "--seed", "3"),
    "t5": (
        "--preset",
        "decoder",
        "--schedule.steps",
        "2",
        "--schedule.frozen-steps",
        "2",
        "--variant",
        "CE",
        "--augment.sentences",
        "1",
    ),
}


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Collection:
    data = tiny.with_dev(20)
    folder = tmp_path_factory.mktemp("data") / "shop"
    write_folder(replace(data, name="shop"), folder)
    return folder


@pytest.mark.parametrize("family", SETTINGS)
def test_index_and_the_steps_by_hand_give_the_same_bytes(family, shop, gr2, tmp_path, checkpoints):
    same = ("--backbone", checkpoints[family], *SETTINGS[family])
    gr2("index", shop, "--out", tmp_path / "index", "--docids.words", "4", *same)
    gr2(
        "docids",
        "build",
        shop,
        "--backbone",
        checkpoints[family],
        "--out",
        tmp_path / "docids",
        "--words",
        "4",
    )
    gr2("train", shop, "--docids", tmp_path / "docids", "--out", tmp_path / "hand", *same)
    for name in ("network.safetensors", "docids/docids.jsonl", "trie/token.npy", "config.json"):
        assert (tmp_path / "index" / name).read_bytes() == (tmp_path / "hand" / name).read_bytes(), name


def test_the_row_gr2_is_the_same_system(shop, gr2, tmp_path, checkpoints):
    same = ("--backbone", checkpoints["encoder"], "--docids.words", "4")
    same += ("--preset", "decoder", "--schedule.steps", "3")
    gr2("run", "gr2", shop, "--output", tmp_path / "a.run", "--k", "5", "--work", tmp_path / "model", *same)
    gr2("run", "model", shop, "--output", tmp_path / "b.run", "--k", "5", "--folder", tmp_path / "model")
    gr2("index", shop, "--out", tmp_path / "index", *same)
    gr2("run", "model", shop, "--output", tmp_path / "c.run", "--k", "5", "--folder", tmp_path / "index")
    rankings = [Run.read(tmp_path / f"{letter}.run").rankings for letter in "abc"]
    assert rankings[0] == rankings[1] == rankings[2] and rankings[0]
