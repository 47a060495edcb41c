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
from typing import Any

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


def fingerprint(text: str) -> str:
    found = re.search(r"fingerprint ([0-9a-f]{12})", text)
    return found[1] if found else ""


def test_the_console_blocks_print_what_they_show(tmp_path):
    """To the last figure if this Python's documentation is the one that they were written with."""
    assert len(commands()) >= 4
    for command, shown in commands():
        arguments = [sys.executable, "-m", *shlex.split(command)]
        done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        if sys.version_info[:2] == WRITTEN_WITH:
            assert shape(done.stdout) == shape(shown), command
        if fingerprint(done.stdout) == fingerprint(shown):
            assert [line.split() for line in done.stdout.splitlines()] == [
                line.split() for line in shown.rstrip().splitlines()
            ]


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


def measured() -> dict[str, Any]:
    path = ROOT / "docs" / "results" / "look_ahead.json"
    return json.loads(path.read_text(encoding="utf-8"))["collections"]


def test_the_figures_of_look_ahead_are_those_that_were_measured():
    """Every cell of the README's table of results."""
    found, table = measured(), rows(README.split("## Results")[1].split("## Extend")[0])
    names = {
        "BM25, better setting": ("BM25 k1=0.9 b=0.4", "BM25 k1=1.5 b=0.75"),
        "neighbours: copies similar training queries": ("neighbours",),
        "dense: the encoder alone": ("dense, untrained",),
        "hybrid: words and vectors, nothing learned": ("hybrid",),
        "hybrid + judgements of similar queries": ("hybrid + memory",),
        "look-ahead": ("look-ahead",),
    }
    columns = [cell.split(",")[0].rstrip("¹") for cell in table.pop("nDCG@20")]
    table.pop("---")
    assert columns == list(found) and table.keys() == names.keys()
    for row, systems in names.items():
        for collection, cell in zip(columns, table[row], strict=True):
            groups = ("all", "unseen") if collection == "scifact" else ("all",)
            best = [
                max(found[collection][group]["means"][system]["nDCG@20"] for system in systems)
                for group in groups
            ]
            assert cell == " / ".join(f"{one:.4f}".lstrip("0") for one in best), (row, collection)


def test_the_figures_of_the_demo_are_those_that_were_measured():
    """The table that the demo prints has the figures of the same systems on pydocs, from another training."""
    found = measured()["pydocs"]["all"]["means"]
    names = {"hybrid, nothing learned": "hybrid", "GR²": "look-ahead"}
    (shown,) = re.findall(r"^   system +(.*?)^gain:", README, re.DOTALL | re.MULTILINE)
    measures, *lines = shown.splitlines()
    checked = 0
    for line in lines:
        name, *cells = re.split(r"  +", line[3:].strip())
        system = names.get(name, name)
        for measure, cell in zip(measures.split(), cells, strict=True):
            if (value := found.get(system, {}).get(measure)) is not None:
                assert float(cell.rstrip("abcdefg")) == pytest.approx(value, abs=2e-4), (name, measure)
                checked += 1
    assert checked >= 6 * 4


def test_the_readme_says_where_look_ahead_is_better_than_every_control():
    better = {
        name
        for name, groups in measured().items()
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
