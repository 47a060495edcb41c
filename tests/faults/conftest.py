"""What more than one test of faults needs."""

import pytest


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """One folder of every kind; see `helpers.folders`. They must not be changed."""
    from helpers import folders

    return folders.make_all(tmp_path_factory.mktemp("folders"))
