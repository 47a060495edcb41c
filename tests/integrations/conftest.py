"""A small model with its documents."""

import random

import pytest
from helpers import tiny

from gr2.data.collection import Collection, Document
from gr2.schemes.config import SchemeConfig
from gr2.schemes.registry import SchemeContext, build
from gr2.training.fit import fit


@pytest.fixture(scope="session")
def data():
    """Twelve documents."""
    draw = random.Random(2)
    texts = [" ".join(draw.sample(tiny.WORDS, 6)) for _ in range(12)]
    documents = tuple(Document(f"d{n}", text[:9], text) for n, text in enumerate(texts))
    return Collection(name="c", documents=documents, queries={}, qrels={})


@pytest.fixture(scope="session")
def folder(tmp_path_factory, data):
    """The folder of a model of them."""
    here = tmp_path_factory.mktemp("model")
    backbone = str(tiny.save_checkpoint(here / "checkpoint", "encoder"))
    docids = build(
        SchemeContext(
            collection=data, backbone=backbone, folder=here, config=SchemeConfig(scheme="title", words=12)
        )
    )
    fit(data, docids, backbone, here / "model", tiny.training({"schedule.steps": 2, "batches.texts": 4}))
    return here / "model"
