"""Models that can learn from judgements."""

import shutil

import pytest
from helpers import judged


@pytest.fixture(scope="session")
def untaught(bert, tmp_path_factory):
    """A model that has learned nothing."""
    return judged.train_model(tmp_path_factory.mktemp("untaught") / "model", bert)


@pytest.fixture(scope="session")
def taught(untaught, tmp_path_factory):
    """The same after learning from thirty queries; the untaught one is kept as its version 1."""
    from gr2.training import selection
    from gr2.training.candidates import Candidate
    from gr2.workflows.learn import learn

    folder = shutil.copytree(untaught, tmp_path_factory.mktemp("taught") / "model")
    with pytest.MonkeyPatch.context() as patch:  # two candidates instead of sixty
        patch.setattr(selection, "candidates", lambda *_, **__: [Candidate(), Candidate(memory=1.0)])
        assert learn(folder, judged.judged(), folder).learned
    return folder


@pytest.fixture
def model(untaught, tmp_path):
    """A copy of the untaught model."""
    return shutil.copytree(untaught, tmp_path / "model")


@pytest.fixture
def learned_model(taught, tmp_path):
    """A copy of the taught model, with its earlier version."""
    shutil.copytree(taught.with_name("model.versions"), tmp_path / "model.versions")
    return shutil.copytree(taught, tmp_path / "model")
