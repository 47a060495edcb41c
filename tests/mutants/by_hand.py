"""Changes that somebody thought of: `by_hand.toml` as a list."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

LIST = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True)
class Mutant:
    """A change of one file."""

    what: str
    file: str
    """Below src/gr2."""
    old: str
    new: str
    tests: tuple[str, ...]
    """Paths or ids of tests, below tests/; at least one must fail."""


MUTANTS = tuple(
    Mutant(**{**row, "tests": tuple(row["tests"])})
    for row in tomllib.loads(LIST.read_text(encoding="utf-8"))["mutant"]
)
