"""The version of this package, with the commit if it runs from a checkout."""

import subprocess
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
"""The folder of the checkout, if the package is not installed as a copy."""


def describe() -> str:
    """As `gr2 --version` prints it: `gr2 0.1.0`, or `gr2 0.1.0 (commit 1a2b3c4d5e6f)`."""
    found = commit(ROOT)
    return f"gr2 {version('gr2')}" + (f" (commit {found})" if found else "")


def commit(root: Path) -> str:
    """The commit checked out in a folder, with `+` if files were changed; empty if it is no checkout."""
    if not (root / ".git").exists():
        return ""
    command = ["git", "-C", str(root), "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=+"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):  # no git here, or a checkout of somebody else
        return ""
    return done.stdout.strip()
