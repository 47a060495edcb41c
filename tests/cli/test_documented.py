"""Every command and option that the documentation shows exists."""

import contextlib
import io
import re
import shlex
import sys

import pytest
from helpers.paths import ROOT

from gr2.systems import SYSTEMS

GROUPS = ("collection", "docids", "export", "generator", "judgements", "run")
FIRST = {"--plugin", "--preset", "--version", "--help", "--help-all"}
"""Options that are read before a command's own."""
OTHERS = {"--nproc_per_node", "--log-cli-level"}
"""Options of other programs."""
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
OF_RECIPES = ("backbone.md", "log.md", "docids.md", "look-ahead.md", "reliability.md")
"""Pages whose text names options of recipes or benchmarks."""


def command_lines(text: str) -> list[list[str]]:
    """The words of each line of a code block that runs `gr2`."""
    found = []
    for block in re.findall(r"^```(?:sh|console|text)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        lines = block.replace("\\\n", " ").splitlines()
        found += [line.removeprefix("$ ") for line in lines if re.match(r"(\$ )?gr2 [a-z-]", line)]
    return [shlex.split(line, comments=True)[1:] for line in found]


def command_of(words: list[str]) -> tuple[str, ...]:
    """The command without its arguments."""
    while words[0] in ("--plugin", "--preset"):
        words = words[2:]
    if words[0] not in GROUPS:
        return (words[0],)
    return (words[0], words[1])


@pytest.fixture(scope="module")
def options_of():
    """A function from a command to its options, as its help has them."""
    from gr2.cli import main

    known: dict[tuple[str, ...], set[str]] = {}

    def find(command: tuple[str, ...]) -> set[str]:
        if command not in known:
            known[command] = set(re.findall(r"--[a-z][\w.-]*", _help(main, command)))
        return known[command]

    return find


def _help(main, command) -> str:
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out):
        patch.setattr(sys, "argv", ["gr2", *command, "--help-all"])
        patch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as stop:
            main()
    assert stop.value.code == 0, command
    return out.getvalue()


LINES = [(path.name, words) for path in PAGES for words in command_lines(path.read_text(encoding="utf-8"))]


def test_commands_in_code_blocks_have_their_options(options_of):
    assert len(LINES) > 50
    for page, words in LINES:
        command = command_of(words)
        if command[0] == "run" and command[1] not in SYSTEMS:
            continue  # a model folder, or a system of the reader's own
        for word in words:
            if word.startswith("--") and word not in FIRST:
                assert word.partition("=")[0] in options_of(command), (page, command, word)


def test_options_in_the_text_are_options_of_some_command(options_of):
    commands = {command for _, words in LINES if (command := command_of(words))[0] != "run"}
    known = FIRST | OTHERS
    for command in (*commands, *(("run", system) for system in SYSTEMS)):
        known |= options_of(command)
    unknown = []
    for page in (page for page in PAGES if page.name not in OF_RECIPES):
        for span in re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8")):
            options = re.findall(r"(?<![\w-])--[a-z][\w.-]*[a-z0-9](?![\w.])", span)
            unknown += [(page.name, option) for option in options if option not in known]
    assert not unknown
