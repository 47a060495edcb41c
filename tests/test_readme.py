"""The README is executed: every console block is run and its output compared, the Python block too.

Figures depend on the documentation of the running Python. On the minor version the README was written with,
the text between the figures must be equal; on another one the commands must still work.
"""

import contextlib
import io
import json
import re
import shlex
import subprocess
import sys

import pytest
from helpers.paths import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
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
    """The same documents in the same order; the last digits of scores depend on the processor."""
    (code,) = blocks("python")
    (shown,) = re.findall(r"^```python\n.*?^```\n```\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "README.md", "exec"), {})
    found, expected = ([line.split() for line in text.splitlines()] for text in (out.getvalue(), shown))
    assert [docno for _, docno in found] == [docno for _, docno in expected]
    assert [float(score) for score, _ in found] == pytest.approx(
        [float(score) for score, _ in expected], abs=0.5
    )


def rows(table: str) -> dict[str, list[str]]:
    lines = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")]
    return {line[0].strip(): [cell.strip() for cell in line[1:]] for line in lines}


def test_the_results_of_decoders_are_those_that_were_measured():
    """Each figure of the table in docs/results.md is in the committed JSON of its collection."""
    found = json.loads((ROOT / "docs" / "results" / "graded.json").read_text(encoding="utf-8"))["collections"]
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    table = rows(text.split("## nDCG@20")[1].split("The other measures")[0])
    places = [("nfcorpus", "all"), ("medquad-nih", "all"), ("cranfield", "all")]
    places += [("scifact", "unseen"), ("scifact", "all")]
    for row in ("dense, untrained", "neighbours", "MLE", "GR²S", "CE"):
        for (collection, group), cell in zip(places, table[row], strict=True):
            if cell:
                assert f"{found[collection][group][row]['nDCG@20']:.4f}".lstrip("0") == cell, (
                    row,
                    collection,
                )


def test_the_figures_of_look_ahead_are_those_that_were_measured():
    path = ROOT / "docs" / "results" / "look_ahead.json"
    found = json.loads(path.read_text(encoding="utf-8"))["collections"]
    table = rows(README.split("## Results")[1].split("## Extend")[0])
    names = {"look-ahead": "look-ahead", "hybrid: words and vectors, nothing learned": "hybrid"}
    names |= {"hybrid + judgements of similar queries": "hybrid + memory"}
    names |= {"dense: the encoder alone": "dense, untrained"}
    names |= {"neighbours: copies similar training queries": "neighbours"}
    columns = [cell.split(",")[0].rstrip("¹") for cell in table["nDCG@20"]]
    assert columns == list(found)
    for row, system in names.items():
        for collection, cell in zip(columns, table[row], strict=True):
            groups = ("all", "unseen") if collection == "scifact" else ("all",)
            means = [found[collection][group]["means"].get(system) for group in groups]
            shown = " / ".join("" if one is None else f"{one['nDCG@20']:.4f}".lstrip("0") for one in means)
            assert cell == shown, (row, collection)


def test_the_readme_says_where_look_ahead_is_better_than_every_control():
    path = ROOT / "docs" / "results" / "look_ahead.json"
    found = json.loads(path.read_text(encoding="utf-8"))["collections"]
    better = {
        name
        for name, groups in found.items()
        if all(
            each["holm"] <= 0.05 and each["gain"] < 0
            for each in groups["all"]["over"]
            if not each["system"].startswith("look-ahead")
        )
    }
    text = " ".join(README.split("## Results")[1].split())
    said = re.search(r"On ([^.]*?) look-ahead is significantly better than every other row", text)[1]
    assert set(re.split(", | and ", said)) == better


def test_the_gains_that_the_readme_promises_are_those_that_were_measured():
    """The range over all collections, and in how many the difference is significant."""
    path = ROOT / "docs" / "results" / "look_ahead.json"
    found = json.loads(path.read_text(encoding="utf-8"))["collections"]
    table = rows(README.split("## What you gain")[1].split("## Install")[0])
    rivals = {
        "BM25": ("BM25 k1=0.9 b=0.4", "BM25 k1=1.5 b=0.75"),
        "sentence-transformers + faiss": ("dense, untrained",),
        "Elasticsearch's or OpenSearch's hybrid": ("hybrid",),
    }
    for row, names in rivals.items():
        tests = [[e for e in each["all"]["over"] if e["system"] in names] for each in found.values()]
        gains = [min(-test["gain"] for test in each) for each in tests]  # over the better setting
        sure = sum(all(test["holm"] <= 0.05 and test["gain"] < 0 for test in each) for each in tests)
        low, high = (f"{value:+.3f}".replace("0.", ".") for value in (min(gains), max(gains)))
        assert table[row][1:] == [f"{low} to {high}", f"{sure} of {len(found)}"], row
    assert README.count("\n") < 200


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#:]+)\)", README))))
def test_links_lead_somewhere(link):
    assert (ROOT / link).exists()
