"""What may be installed beside gr2: every dependency has bounds, and `make` installs versions within them."""

import tomllib

import pytest
from helpers.paths import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = [each for extra in PROJECT["optional-dependencies"].values() for each in extra]
NEEDED = [found for text in (*PROJECT["dependencies"], *EXTRAS) if (found := Requirement(text)).name != "gr2"]
LINES = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
PINNED = {canonicalize_name(line.split("==")[0]): line.split("==")[1] for line in LINES if "==" in line}


@pytest.mark.parametrize("needed", NEEDED, ids=lambda needed: needed.name)
def test_a_dependency_has_bounds_and_the_pinned_version_is_within_them(needed):
    assert {">=", "<"} <= {one.operator for one in needed.specifier}
    pinned = PINNED.get(canonicalize_name(needed.name))
    if needed.name == "torch":  # pinned in the Makefile, because it comes from elsewhere
        assert pinned is None
        pinned = "2.13.0"
        assert f"torch=={pinned}" in (ROOT / "Makefile").read_text(encoding="utf-8")
    assert pinned is not None and needed.specifier.contains(pinned)


def test_make_installs_the_pinned_versions():
    assert "--constraint constraints.txt" in (ROOT / "Makefile").read_text(encoding="utf-8")
