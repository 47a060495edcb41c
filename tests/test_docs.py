"""The documentation site builds strictly, and names what exists."""

import re
import subprocess
import sys

import pytest
from helpers.paths import ROOT

DOCS = sorted((ROOT / "docs").glob("*.md"))


def test_the_site_builds_without_a_broken_link(tmp_path):
    pytest.importorskip("mkdocs", reason="the extra `docs` is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "index.html").is_file() and list(tmp_path.glob("api/**/index.html"))


def test_the_walk_names_every_package_and_file():
    walk = (ROOT / "docs" / "walk.md").read_text(encoding="utf-8")
    source = ROOT / "src" / "gr2"
    for path in source.rglob("*.py"):
        if path.name not in ("__init__.py", "__main__.py"):
            assert path.stem in walk, f"docs/walk.md does not name {path.relative_to(source)}"


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.stem)
def test_every_file_that_the_docs_name_exists(path):
    text = path.read_text(encoding="utf-8")
    for name in re.findall(
        r"`((?:src/gr2|tests|recipes|benchmarks|docs)/[\w./-]+\.(?:py|json|md|png))`", text
    ):
        assert (ROOT / name).exists(), name
