"""The list of mutants: each changes one place that exists, and names tests that exist; see `make mutants`."""

import ast
import json
import re

import pytest
from helpers.paths import ROOT
from mutants import mechanical
from mutants.by_hand import MUTANTS
from mutants.equivalent import EQUIVALENT

TESTS = sorted({test for mutant in MUTANTS for test in mutant.tests})


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.what)
def test_the_text_of_a_mutant_occurs_exactly_once_and_the_change_is_python(mutant):
    source = (ROOT / "src" / "gr2" / mutant.file).read_text(encoding="utf-8")
    assert source.count(mutant.old) == 1
    changed = source.replace(mutant.old, mutant.new)
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source))


@pytest.mark.parametrize("test", TESTS)
def test_the_tests_of_mutants_exist(test):
    file, _, name = test.partition("::")
    tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert not name or re.sub(r"\[.*", "", name) in functions


def test_no_mutant_is_listed_twice():
    assert len({mutant.what for mutant in MUTANTS}) == len(MUTANTS) >= 100
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in MUTANTS}) == len(MUTANTS)


def test_the_results_are_of_this_list_and_nothing_survived():
    found = json.loads((ROOT / "docs" / "results" / "mutants.json").read_text(encoding="utf-8"))["changes"]
    by_hand = {(row["file"], row["what"]) for row in found if row["kind"] == "by hand"}
    assert by_hand == {(mutant.file, mutant.what) for mutant in MUTANTS}
    assert all(row["killed"] or row["why"] for row in found)


@pytest.mark.parametrize(("file", "line", "what"), EQUIVALENT)
def test_a_change_that_is_none_is_one_of_a_line_that_exists(file, line, what):
    lines = [each.strip() for each in (ROOT / "src" / "gr2" / file).read_text(encoding="utf-8").splitlines()]
    assert line in lines
    assert what.partition(" → ")[0] in line


def test_mechanical_changes_by_hand():
    source = '''
def area(width: float, height: float = 2.0, *, whole=True) -> float:
    """1 + 1 in a docstring stays."""
    if width < 0 and whole:
        raise ValueError(f"expected {width + 1}")
    return max(width, 0) * height + 1
'''
    found = mechanical.changes(source)
    shown = {change.what for change in found}
    assert {"width < 0 → width <= 0", "2.0 → 3.0", "2.0 → 1.0", "True → False"} <= shown
    assert "width < 0 and whole → width < 0 or whole" in shown
    assert {"max(width, 0) * height → max(width, 0) / height", "max → min"} <= shown
    assert "max(width, 0) * height + 1 → max(width, 0) * height" in shown, "a dropped term"
    assert not any("width + 1" in what for what in shown), "no message of an error"
    for change in found:
        assert ast.dump(ast.parse(change.source)) != ast.dump(ast.parse(source))
        assert "1 + 1 in a docstring stays." in change.source
    assert mechanical.sampled(source, 5, 0) == mechanical.sampled(source, 5, 0)
    assert len(mechanical.sampled(source, 5, 0)) == 5
