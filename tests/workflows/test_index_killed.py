"""`gr2 index` killed with SIGKILL after each of its steps, then resumed: the same bytes as without."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import tiny

from gr2.store import Workspace
from gr2.systems.config import GenerativeConfig
from gr2.workflows.index import IndexJob, index

PROGRAM = """
import sys
from pathlib import Path
from gr2.systems.config import GenerativeConfig
from gr2.workflows.index import IndexJob, index
from helpers import tiny
out, backbone = Path(sys.argv[1]), sys.argv[2]
index(IndexJob(collection=tiny.graded(), out=out, config=GenerativeConfig(backbone=backbone), resume=True))
"""
STEPS = {"settings": "job.json", "vectors": "vectors.*.safetensors", "dense": "vectors.*.trec", "model": ""}
"""What exists once a step is done: a pattern in the folder of the training, or the model itself."""


OTHER = {"report.html", "report.md", "manifest.json"}


@pytest.fixture(scope="module")
def backbone(tmp_path_factory):
    return str(tiny.save_checkpoint(tmp_path_factory.mktemp("encoder") / "checkpoint", "encoder"))


@pytest.fixture(scope="module")
def whole(backbone, tmp_path_factory):
    """The bytes of an uninterrupted run."""
    out = tmp_path_factory.mktemp("whole") / "model"
    index(IndexJob(collection=tiny.graded(), out=out, config=GenerativeConfig(backbone=backbone)))
    return contents(out)


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a model but the report, which says how long it took, and the manifest that lists it."""
    found = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if name not in OTHER}


def done(out: Path, pattern: str) -> bool:
    return out.exists() if not pattern else any(Workspace(out).training.glob(pattern))


@pytest.mark.parametrize("step", STEPS)
def test_a_killed_index_is_resumed_to_the_same_bytes(step, backbone, whole, tmp_path):
    out = tmp_path / "model"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    started = subprocess.Popen([sys.executable, "-c", PROGRAM, str(out), backbone], env=environment)
    try:
        deadline = time.monotonic() + 120
        while not done(out, STEPS[step]) and started.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
    finally:
        started.send_signal(signal.SIGKILL)
    started.wait()
    assert done(out, STEPS[step])
    index(
        IndexJob(collection=tiny.graded(), out=out, config=GenerativeConfig(backbone=backbone), resume=True)
    )
    assert contents(out) == whole
