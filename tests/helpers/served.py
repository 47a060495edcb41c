"""A small trained model with its documents, and real servers of it."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gr2.data.collection import Document
from gr2.data.documents import NAME, write_documents
from gr2.store import write_manifest
from gr2.training.fit import fit
from helpers import tiny

ODD = "../d 04/ä?#%"
"""The docno of a document that the model does not cover."""


def documents() -> list[Document]:
    """The documents of the model, and one that it does not cover."""
    rows = [
        document._replace(
            text=f"{document.text} and <b>more</b>", url=f"https://example.org/{document.docno}"
        )
        for document in tiny.collection().documents
    ]
    return [*rows, Document(ODD, "not a document of the model", "text")]


def train_model(place: Path) -> Path:
    """The folder of a trained model with its documents."""
    backbone = tiny.save_checkpoint(place / "backbone", "encoder", width=36)
    data = tiny.collection()
    fit(
        data,
        tiny.titles(data, backbone),
        str(backbone),
        place / "model",
        tiny.training({"schedule.steps": 30}),
    )
    write_documents(documents(), place / "model" / NAME)
    write_manifest(place / "model")
    return place / "model"


@contextmanager
def servers(model: Path) -> Iterator:
    """A function that starts a real server process: options → (process, address)."""
    started = []

    def start(*options: object, port: int = 0, folder: Path | None = None) -> tuple[subprocess.Popen, str]:
        command = [sys.executable, "-m", "gr2", "serve", folder or model, "--port", port, *options]
        process = subprocess.Popen(
            list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        line = process.stdout.readline()
        match = re.search(r"\d+ documents at (http://127\.0\.0\.1:\d+)/", line)
        assert match, line + process.stderr.read()
        return process, match[1]

    try:
        yield start
    finally:
        for process in started:
            process.kill()
            process.communicate()
