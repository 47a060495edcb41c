"""docs/ecosystem.md is executed: its Python and its commands, and what they print is compared."""

import contextlib
import io
import re
import shlex
import sys
import tomllib

import pytest
from helpers.paths import ROOT

from gr2.cli import main

PAGE = (ROOT / "docs" / "ecosystem.md").read_text(encoding="utf-8")
SECTIONS = {part.partition("\n")[0]: part for part in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]}
NEEDED = {
    "PyTerrier": "pyterrier",
    "ir_datasets": "ir_datasets",
    "LangChain": "langchain_core",
    "Haystack": "haystack",
}
PYTHON = re.compile(r"^```python\n(.*?)^```\n(?:```\n(.*?)^```)?", re.DOTALL | re.MULTILINE)
SHELL = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)


def run_python(text: str) -> None:
    """Run the blocks of Python; what is shown below one is what it prints."""
    for code, shown in PYTHON.findall(text):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, "docs/ecosystem.md", "exec"), {})
        assert out.getvalue() == shown


def commands(text: str) -> list[list[str]]:
    """The arguments of each command of `gr2` in blocks of the shell."""
    lines = "".join(SHELL.findall(text)).replace("\\\n", " ").splitlines()
    words = [shlex.split(line, comments=True) for line in lines]
    assert all(each[0] == "gr2" for each in words)
    return [each[1:] for each in words]


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """The folder in which the page begins, with the shop that all examples share."""
    place = tmp_path_factory.mktemp("shop")
    begin = PAGE.partition("## ")[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        run_python(begin)
        for arguments in commands(begin):
            patch.setattr(sys, "argv", ["gr2", *arguments])
            main()
    return place


@pytest.mark.parametrize("name", SECTIONS)
def test_the_examples_of_a_section_do_what_they_show(name, gr2, shop, monkeypatch):
    monkeypatch.chdir(shop)
    if name in NEEDED:
        pytest.importorskip(NEEDED[name], reason=f"{name} is not installed")
    run_python(SECTIONS[name])
    for arguments in commands(SECTIONS[name]):
        assert gr2(*arguments)


def test_every_toolkit_has_an_example():
    for name in NEEDED:
        assert PYTHON.search(SECTIONS[name])
    assert commands(SECTIONS["Hugging Face hub"]) and commands(SECTIONS["CSV, JSON lines and numpy"])


def test_the_table_of_extras_has_each_that_a_user_installs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    rows = re.findall(r"^\| (`.*?`) \|", SECTIONS["Optional packages"], re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == set(project["optional-dependencies"]) - {"dev", "docs"}
