"""Puts the commit of the checkout into a distribution, as gr2/commit.txt, which `gr2 --version` reads."""

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLACES = {"wheel": "gr2/commit.txt", "sdist": "src/gr2/commit.txt"}


class CommitHook(BuildHookInterface):
    """Called by hatchling before and after it builds."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the file, unless the commit is not known, or the install is editable and asks git itself."""
        root = Path(self.root)
        found = runpy.run_path(str(root / "src" / "gr2" / "cli" / "version.py"))["commit"](root)
        if found and version != "editable":
            self._file.write_text(found + "\n", encoding="utf-8")
            build_data["force_include"][str(self._file)] = PLACES[self.target_name]

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the file that the distribution has a copy of."""
        self._file.unlink(missing_ok=True)

    @property
    def _file(self) -> Path:
        return Path(self.directory) / "commit.txt"
