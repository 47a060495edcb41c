"""A model with its report."""

import pytest
from helpers import tiny

from gr2.report import write_report
from gr2.schemes.config import SchemeConfig
from gr2.schemes.registry import SchemeContext, build
from gr2.systems.baselines import baseline_runs
from gr2.training.fit import fit


@pytest.fixture(scope="session")
def backbone(tmp_path_factory):
    return str(tiny.save_checkpoint(tmp_path_factory.mktemp("encoder") / "checkpoint", "encoder"))


@pytest.fixture(scope="session")
def reported(backbone, tmp_path_factory):
    """A model with its report, and the comparison that writing it returned."""
    folder, data = tmp_path_factory.mktemp("reported") / "model", tiny.graded()
    docids = build(
        SchemeContext(
            collection=data, backbone=backbone, folder=folder, config=SchemeConfig(scheme="title", words=12)
        )
    )
    how = tiny.training({"schedule.steps": 12, "batches.queries": 4, "batches.texts": 4})
    fit(data, docids, backbone, folder, how)
    return folder, write_report(folder, data, baseline_runs(data, "test"))
