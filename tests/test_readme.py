"""The README is executed: every console block is run and its output compared, every Python block too.

Figures depend on the documentation of the running Python. On the minor version the README was written with,
the text between the figures must be equal; on another one the commands must still work.
"""

import contextlib
import io
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gr2.data import Collection
from gr2.docids.schemes import Making, build
from gr2.formats import open_collection
from gr2.learn import Plan, learn

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
WRITTEN_WITH = (3, 11)
FIGURE = re.compile(r"[0-9][0-9,.%]*[a-d]*|\.[0-9]+")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def commands() -> list[tuple[str, str]]:
    found = []
    for block in blocks("console"):
        for part in block.split("$ ")[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


def shape(text: str) -> list[list[str]]:
    """The words of each line, with every figure the same."""
    masked = re.sub(r"fingerprint [0-9a-f]{12}", "fingerprint #", text)
    return [FIGURE.sub("#", line).split() for line in masked.splitlines() if line.strip()]


def test_the_console_blocks_print_what_they_show(tmp_path):
    assert len(commands()) >= 4
    for command, shown in commands():
        arguments = [sys.executable, "-m", *shlex.split(command)]
        done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        if sys.version_info[:2] == WRITTEN_WITH:
            assert shape(done.stdout) == shape(shown), command


def test_the_python_block_prints_what_it_shows(tmp_path, monkeypatch):
    """With a model of fewer documents that was not trained: scores differ, the rest is the same."""
    (code,) = blocks("python")
    (shown,) = re.findall(r"^```python\n.*?^```\n```\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    whole = open_collection("pydocs")
    few = tuple(d for d in whole.documents if d.docno.split(".")[0] in ("csv", "heapq", "zlib"))
    some = Collection(name="some", documents=few, queries={}, qrels={})
    monkeypatch.chdir(tmp_path)
    docids = build("title", Making(collection=some, backbone="gr2-mini", folder=tmp_path, words=6))
    learn(some, docids, "gr2-mini", Path("gr2-demo"), Plan(steps=0))
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "README.md", "exec"), {})
    line = re.compile(r"-\d+\.\d\d csv\S* “csv.*”")
    for text in (out.getvalue(), shown):
        assert len(text.splitlines()) == 3 and all(map(line.fullmatch, text.splitlines())), text


def test_the_tree_names_every_file():
    tree = README.split("\nsrc/gr2/\n")[1].split("\nrecipes/")[0]
    named = {
        word.rstrip("/") for line in tree.splitlines() for word in line.split() if word.endswith((".py", "/"))
    }
    source = Path(__file__).parents[1] / "src" / "gr2"
    there = {
        path.name for path in source.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert named >= there - {"__init__.py", "__main__.py"}
    assert all((source / name).exists() for name in named if "." not in name)


def test_the_readme_stays_short():
    assert len(README.splitlines()) < 200


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#:]+)\)", README))
def test_links_lead_somewhere(link):
    assert (Path(__file__).parents[1] / link).exists()
