"""Every reader, every kind of folder and every body, broken: read, or refused by the documented error alone.

The small form tries some of each, the large one a million in all. `tests/faults/test_fuzz.py` also checks
that what was read is right.
"""

import logging
import os
import random
import resource
import shutil
import time
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest
from helpers import folders, readers
from helpers.mutations import mutants

from gr2.store import MANIFEST

logger = logging.getLogger(__name__)
CASES = Path(__file__).parent / "cases"
"""Files that were once answered by another error: NAME/NUMBER for a reader, NAME/PATH/NUMBER for a folder."""
FEW = 40
LARGE = float(os.environ.get("GR2_FUZZ", 1))
"""How much larger the large form is; 1 tries about a million files in all."""
SECONDS = 5.0
"""CPU time that a file of some hundred bytes may take; a thousandth is usual."""
how_many = pytest.mark.parametrize("size", ["small", pytest.param("large", marks=pytest.mark.slow)])


@pytest.fixture(scope="module")
def all_readers(tmp_path_factory):
    found = readers.all_readers(tmp_path_factory.mktemp("samples"))
    assert [reader.name for reader in found] == list(readers.NAMES)
    return {reader.name: reader for reader in found}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Nothing here has to outlive a power cut."""
    monkeypatch.setattr("os.fsync", lambda handle: None)


def tried(read, allowed, data: bytes) -> bool:
    """Whether something was read; anything else than the allowed error is a failure that shows the file."""
    began = time.process_time()
    try:
        read()
        return True
    except allowed:
        return False
    except Exception as error:
        pytest.fail(f"{type(error).__name__}: {error}\nof the file {data!r}")
    finally:
        assert time.process_time() - began < SECONDS, f"too slow: {data!r}"


@how_many
@pytest.mark.parametrize("name", readers.NAMES)
def test_every_reader_reads_a_broken_file_or_refuses_it(name, size, all_readers, tmp_path):
    reader, path = all_readers[name], tmp_path / name
    count = FEW if size == "small" else int(28_500 * LARGE)
    for sample in reader.samples:
        path.write_bytes(sample)
        reader.read(path)
    known = [case.read_bytes() for case in sorted((CASES / name).glob("*"))]
    accepted = refused = 0
    for data in chain(known, mutants(reader.samples, (name, size), count)):
        path.write_bytes(data)
        was_read = tried(lambda: reader.read(path), reader.error, data)
        accepted, refused = accepted + was_read, refused + (not was_read)
    assert accepted or size == "small", "some changes do no harm"
    assert refused or name == "wikitext.txt", "some do"
    said(name, accepted, refused)


def said(name: str, accepted: int, refused: int) -> None:
    """For the figures of the large form: `pytest -m slow --log-cli-level=INFO`."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    logger.info("%s: %d tried, %d refused, peak %d MB", name, accepted + refused, refused, peak)


FOLDERS = [
    *("docids", "codes", "trie", "look-ahead", "quantised", "bm25", "words", "backbone", "generator"),
    *("model", "version", "checkpoint"),
]


@pytest.fixture
def bounded():
    """A gigabyte more, and no allocation succeeds: sizes in a file must not take the memory of a machine."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 30), limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, limits)


@how_many
@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_whose_checksums_fit_its_broken_content_is_read_or_refused(
    name, size, made, tmp_path, bounded
):
    """As if it had been made so: the checksums are written anew after each change."""
    kind, draw = made[name], random.Random(name)
    folder = shutil.copytree(kind.folder, tmp_path / "run" / kind.folder.name)
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != MANIFEST]
    small = [path for path in files if path.stat().st_size < 20_000]
    known = [(folder / case.parent.relative_to(CASES / name), case.read_bytes()) for case in cases(name)]
    count = FEW // 4 if size == "small" else int((4000 if len(files) < 9 else 800) * LARGE)
    drawn = [draw.choice(small) for _ in range(count)]
    wholes = {path: path.read_bytes() for path in files}
    broken_files = ((path, next(mutants([wholes[path]], (name, n), 1))) for n, path in enumerate(drawn))
    accepted = refused = 0
    for path, data in chain(known, broken_files):
        path.write_bytes(data)
        folders.seal(folder)
        was_read = tried(lambda: kind.load(folder), ValueError, f"{path}: ".encode() + data)
        accepted, refused = accepted + was_read, refused + (not was_read)
        path.write_bytes(wholes[path])
    folders.seal(folder)
    kind.load(folder)
    assert refused
    said(name, accepted, refused)


def cases(name: str) -> list[Path]:
    return [path for path in sorted((CASES / name).rglob("*")) if path.is_file()]


BODIES = {
    "/search": b'{"query": ["baka beke"], "k": 3, "filter": {"docnos": ["d07"]}, "explain": true}',
    "/judgements": b'[{"query": "baka", "docno": "d01", "grade": 1, "judge": "ann", "qid": ""}]',
    "/rollback": b'{"number": 7}',
}


@how_many
@pytest.mark.parametrize("path", BODIES)
def test_a_broken_body_is_answered_or_refused(path, size, served_folder, tmp_path):
    pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
    from fastapi.testclient import TestClient

    from gr2.serve import JudgingConfig, ServiceConfig
    from gr2.serve.app import build_app
    from gr2.serve.judging import Judging
    from gr2.serve.service import Service

    service = Service(served_folder, ServiceConfig(gather_ms=0))
    app = build_app(service, judging=Judging(service, JudgingConfig(judge=tmp_path / "judged")))
    count, codes = FEW if size == "small" else int(8000 * LARGE), Counter()
    headers = {"content-type": "application/json"}
    with TestClient(app, raise_server_exceptions=False) as client:
        whole = client.post(path, content=BODIES[path], headers=headers).status_code
        assert whole == {"/search": 200, "/judgements": 201, "/rollback": 409}[path]
        for data in mutants([BODIES[path]], (path, size), count):
            reply = client.post(path, content=data, headers=headers)
            codes[reply.status_code] += 1
            assert reply.status_code in (200, 201, 400, 409, 413, 422), (reply.text, data)
            assert reply.json().keys(), "a reply is JSON"
    assert codes[400] and codes[422]
    said(path, codes[200] + codes[201], codes.total() - codes[200] - codes[201])
