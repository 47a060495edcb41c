"""The version of this package, with the commit that it was built from or runs from, where that is known."""

import subprocess
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
"""The folder of the checkout, if the package is not installed as a copy."""
BUILT_FROM = Path(__file__).parents[1] / "commit.txt"
"""What a wheel says of its commit; the build writes it."""


def describe() -> str:
    """As `gr2 --version` prints it: `gr2 0.1.0`, or `gr2 0.1.0 (commit 1a2b3c4d5e6f)`."""
    found = commit(ROOT) or (BUILT_FROM.read_text(encoding="utf-8").strip() if BUILT_FROM.is_file() else "")
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
