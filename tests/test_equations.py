"""docs/equations.md is what the code is: options and their values, functions, tests, and what differs."""

import ast
import inspect
import re
from dataclasses import fields, is_dataclass
from importlib import import_module
from operator import attrgetter

import pytest
from helpers.paths import ROOT

from gr2.systems.config import preset

TEXT = (ROOT / "docs" / "equations.md").read_text(encoding="utf-8")
TESTS = ROOT / "tests"
WITHOUT_A_ROW = {
    "docids.generation.optimiser.warmup": "no deviation: both presets have the paper's value",
    "docids.generation.optimiser.weight_decay": "no deviation: both presets have the paper's value",
    "optimiser.warmup": "no deviation: both presets have the paper's value",
    "optimiser.weight_decay": "no deviation: both presets have the paper's value",
    "variant": "no deviation: the full model",
}
"""Options whose help text names the paper's value, and why they need no row."""


def rows(part: str) -> list[list[str]]:
    """The cells of the rows of a part's table."""
    table = [line for line in part.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[1:]]


EQUATIONS = rows(TEXT.split("## Deviations")[0])
OPTIONS = rows(TEXT.split("### With an option")[1].split("### Without an option")[0])
CODE = re.compile(r"`([^`]+)`")


def options(config, prefix: str = "") -> dict[str, tuple[object, str]]:
    """Every option of `gr2 index` by its path, without `training`: its value, and what its field says."""
    found: dict[str, tuple[object, str]] = {}
    about = docstrings(type(config))
    for field in fields(config):
        value = getattr(config, field.name)
        path = prefix if field.name == "training" else f"{prefix}{field.name}"
        if is_dataclass(value):
            found |= options(value, path and f"{path}." if field.name != "training" else "")
        else:
            found[path] = (value, about.get(field.name, ""))
    return found


def docstrings(kind: type) -> dict[str, str]:
    """The string below each field of a dataclass."""
    (definition,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for node, after in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                found[node.target.id] = str(after.value.value)
    return found


DEFAULT, PAPER = options(preset("default")), options(preset("paper"))


def path_of(cell: str) -> str:
    (option,) = CODE.findall(cell)
    return option.removeprefix("--").replace("-", "_")


@pytest.mark.parametrize("row", OPTIONS, ids=lambda row: path_of(row[0]))
def test_the_values_of_an_option_are_those_of_the_presets(row):
    path, shown = path_of(row[0]), [CODE.findall(cell) for cell in row[1:3]]
    assert shown == [[str(DEFAULT[path][0])], [str(PAPER[path][0])]]


def test_every_option_that_the_paper_s_preset_changes_has_a_row():
    changed = {path for path, (value, _) in DEFAULT.items() if value != PAPER[path][0]}
    assert len(changed) > 25
    assert changed - {path_of(row[0]) for row in OPTIONS} == set()


def test_every_field_that_names_the_paper_s_value_has_a_row():
    named = {path for path, (_, about) in DEFAULT.items() if "paper:" in about}
    assert named - {path_of(row[0]) for row in OPTIONS} == WITHOUT_A_ROW.keys()


def test_no_option_has_two_rows():
    paths = [path_of(row[0]) for row in OPTIONS]
    assert len(paths) == len(set(paths)) > 40


def functions() -> list[str]:
    return sorted({name for row in EQUATIONS for name in re.findall(r"\]\[(gr2\.[\w.]+)\]", row[1])})


@pytest.mark.parametrize("name", functions())
def test_every_function_of_an_equation_exists(name):
    module, _, inside = name.rpartition(".")
    if module[module.rfind(".") + 1].isupper():  # a method
        module, _, owner = module.rpartition(".")
        inside = f"{owner}.{inside}"
    assert attrgetter(inside)(import_module(module))


def named_tests() -> list[tuple[str, str]]:
    found, file = [], ""
    for row in EQUATIONS:
        for name in CODE.findall(row[2]):
            if name.endswith(".py"):
                file = name
            else:
                found.append((file, name))
    return sorted(set(found))


@pytest.mark.parametrize(("file", "name"), named_tests())
def test_every_test_of_an_equation_exists(file, name):
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_equation_names_a_function_and_a_test():
    assert len(EQUATIONS) > 20 and len(functions()) > 20
    for equation, function, test in EQUATIONS:
        assert "][gr2." in function, equation
        assert ".py`" in test and "`test_" in test, equation
