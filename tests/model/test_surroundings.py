"""A model does not depend on where gr2 runs: on the working directory, or on the environment."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers import tiny

from gr2.model.backbone import EMBEDDED, identity, is_own, is_static, located, tokenizer_of
from gr2.model.cross_encoder import CrossEncoder
from gr2.model.encoder import Encoder

SAVE = """
import sys
from pathlib import Path
from helpers import tiny
from gr2.model.config import GR2Config
from gr2.model.gr2 import GR2
from gr2.workflows.pretrain import export
data, backbone, out = tiny.collection(), Path(sys.argv[1]), Path(sys.argv[2])
config = GR2Config(normaliser="trie", max_tokens=64, network=tiny.TINY)
model = GR2.fresh(backbone, tiny.titles(data, backbone), config)
model.save_pretrained(out / "model")
export(model.network, str(backbone), out / "backbone", {})
"""


@pytest.mark.parametrize("kind", ["checkpoint", "static", "own"])
def test_a_folder_in_the_working_directory_does_not_replace_the_embedded_backbone(
    kind, tmp_path, monkeypatch
):
    before = identity("gr2-mini")
    monkeypatch.chdir(tmp_path)
    if kind == "checkpoint":
        tiny.save_checkpoint(tmp_path / "gr2-mini", "encoder")
    elif kind == "static":
        tiny.save_static_encoder(tmp_path / "gr2-mini")
    else:
        shutil.copytree(EMBEDDED / "gr2-mini", tmp_path / "gr2-mini")
        (tmp_path / "gr2-mini" / "README.md").write_text("changed")
    assert located("gr2-mini") == EMBEDDED / "gr2-mini" and identity("gr2-mini") == before
    assert is_own("gr2-mini") and not is_static("gr2-mini")
    assert len(tokenizer_of("gr2-mini")) == 30522
    assert located("./gr2-mini") == "./gr2-mini" and is_static("./gr2-mini") == (kind == "static")
    assert located(tmp_path / "gr2-mini") == tmp_path / "gr2-mini"
    assert located("other") == "other"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_the_bytes_of_an_output_do_not_depend_on_the_environment(tmp_path, checkpoints):
    for offline in "01":
        environment = {**os.environ, "HF_HUB_OFFLINE": offline, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", SAVE, str(checkpoints["encoder"]), str(tmp_path / offline)]
        subprocess.run(command, env=environment, check=True, capture_output=True)
    assert contents(tmp_path / "0") == contents(tmp_path / "1")
    assert b"local" not in (tmp_path / "0" / "model" / "tokenizer" / "tokenizer_config.json").read_bytes()


@pytest.mark.parametrize("load", [Encoder.load, CrossEncoder.load])
def test_weights_that_are_pickled_are_not_read(load, tmp_path, checkpoints):
    shutil.copytree(checkpoints["encoder"], tmp_path / "pickled")
    (tmp_path / "pickled" / "model.safetensors").unlink()
    torch.save({"a": torch.ones(1)}, tmp_path / "pickled" / "pytorch_model.bin")
    config = tmp_path / "pickled" / "config.json"
    config.write_text(config.read_text().replace("{", '{"num_labels": 1,', 1))
    with pytest.raises(OSError, match=r"model\.safetensors"):
        load(tmp_path / "pickled")
