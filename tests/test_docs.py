"""The documentation site builds strictly, and names what exists."""

import json
import re
import subprocess
import sys
from pathlib import Path

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


def cells(text: str) -> list[list[str]]:
    """The cells of a table's rows, without its head."""
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[1:]]


TESTS = (ROOT / "docs" / "tests.md").read_text(encoding="utf-8")


def test_the_table_of_mutants_is_that_of_the_last_run():
    path = ROOT / "docs" / "results" / "mutants.json"
    found = json.loads(path.read_text(encoding="utf-8"))["summary"]
    shown = cells(TESTS.split("## Would a mistake")[1].split("## How much")[0])
    names = ("changes", "killed", "equivalent")
    wanted = [[row["kind"], f"`{row['place']}`", *(str(row[name]) for name in names)] for row in found]
    assert shown == wanted


SCHEMES = {"fusion": "fusion 0", "query (−RF)": "query 0", "fusion's words, rarest first": "rarest"}


def test_the_table_of_docids_is_that_of_the_last_run():
    path = ROOT / "docs" / "results" / "docids.json"
    found = json.loads(path.read_text(encoding="utf-8"))
    text = (ROOT / "docs" / "docids.md").read_text(encoding="utf-8")
    health, checked = {}, 0
    for name, unique, second, numbers, mrr, bits, tokens, size, _ in cells(
        text.split("### Are fusion's docids")[1].split("**Yes")[0]
    ):
        if name.startswith("**"):
            health = found[name.split("**")[1]]["health"]
        elif not set(name) <= set("-:"):
            one = health[SCHEMES.get(name, name)]
            shown = [f"{one['depths'][1]['bits']:.1f}", f"{one['to_unique']['mean']:.1f}"]
            shown.append(f"{one['bytes'] + (one['word_bytes'] or 0):.0f}")
            assert [bits, tokens, size] == shown, name
            if mrr != "–":
                assert mrr == f"{one['retrieval']['mrr']:.3f}".removeprefix("0"), name
            if unique != "–":
                counts = [f"{one['clashes'][kind]:,}" for kind in ("rank 2", "numbered")]
                share = one["unique"] / sum(one["clashes"].values())
                assert [unique, second, numbers] == [f"{share:.1%}".replace("%", " %"), *counts], name
            checked += 1
    assert checked == sum(len(each["health"]) for each in found.values())


def lines_of(folder: Path) -> int:
    """The lines of a folder; of a package's tests also those in a file of its name."""
    paths = [*folder.rglob("*.py"), *folder.parent.glob(f"test_{folder.name}.py")]
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def test_the_numbers_of_lines_are_about_those_that_are_shown():
    source, tests = ROOT / "src" / "gr2", ROOT / "tests"
    shown = cells(TESTS.split("## How much there is")[1])
    packages = {path.name for path in source.iterdir() if (path / "__init__.py").is_file()}
    assert {row[0] for row in shown} == packages | {"all"}
    for name, *figures in shown:
        folders = (source, tests) if name == "all" else (source / name, tests / name)
        found = [lines_of(folder) for folder in folders]
        assert [int(figure.replace(",", "")) for figure in figures[:2]] == pytest.approx(found, rel=0.25)
        assert float(figures[2]) == pytest.approx(found[1] / found[0], rel=0.25)
