"""docs/extend.md is executed: its files are written, and its commands run."""

import re
import shlex
import subprocess
import sys
from dataclasses import replace

import pytest
from helpers import tiny
from helpers.paths import ROOT

from gr2.data.formats import write_folder

TEXT = (ROOT / "docs" / "extend.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r'^```python title="(.*?)"\n(.*?)^```', TEXT, re.DOTALL | re.MULTILINE))
PLUGINS = ["initials.py", "top_grade.py", "title_match.py"]
COMMANDS = re.findall(r"^\$ (.*)$", TEXT, re.MULTILINE)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("extend")
    data = tiny.collection(12)
    write_folder(
        replace(data, name="shop", qrels={**data.qrels, "test": data.qrels["train"]}), folder / "shop"
    )
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    found = {}
    for command in COMMANDS:
        words = [sys.executable, "-m", *shlex.split(command)]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        found[command] = done.stdout
    done = subprocess.run([sys.executable, "from_python.py"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return found | {"python": done.stdout}


def test_there_is_a_file_and_a_command_for_each_extension():
    assert list(FILES) == [*PLUGINS, "from_python.py"]
    assert all(any(name in command for command in COMMANDS) for name in PLUGINS)


@pytest.mark.parametrize("name", FILES)
def test_each_is_short(name):
    assert len([line for line in FILES[name].splitlines() if line.strip()]) < 20


def test_every_command_does_what_it_is_there_for(outputs):
    build, train, run, evaluate, python = (outputs[command] for command in [*COMMANDS, "python"])
    assert "initials: 12 docids" in build
    assert "variant top-grade: 12 docids, 2 steps" in train
    assert "title-match: 12 of 12 queries answered" in run
    assert re.search(r"title-match +0\.\d+", evaluate)
    assert re.fullmatch(r"\['d\d\d', 'd\d\d'\]\n12\n", python)
