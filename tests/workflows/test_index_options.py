"""`gr2 index` with a static encoder and with smaller vectors: what is in the folder is what searches."""

import logging
import shutil
from dataclasses import replace

import numpy as np
import pytest
from helpers import tiny

from gr2.data.formats import open_collection, write_folder
from gr2.data.runs import Run
from gr2.model.gr2 import GR2
from gr2.model.static_encoder import StaticEncoder
from gr2.model.vector_storage import CodeVectors, Int8Vectors
from gr2.report.evidence import DEPTH
from gr2.schemes.config import SchemeConfig
from gr2.systems.config import GenerativeConfig
from gr2.systems.dense import Dense
from gr2.systems.generative import train
from gr2.training.config import with_settings
from gr2.workflows.index import IndexJob, index


@pytest.fixture
def static(tmp_path):
    return tiny.save_static_encoder(tmp_path / "words", width=12)


def job_of(backbone, out, **settings) -> IndexJob:
    config = GenerativeConfig(backbone=str(backbone))
    changed = {f"look_ahead.{name}": value for name, value in settings.items()}
    config = replace(config, training=with_settings(config.training, changed))
    return IndexJob(collection=tiny.graded(), out=out, config=config)


@pytest.mark.parametrize("family", ["encoder", "t5"])
def test_a_static_encoder_goes_into_the_folder_and_encodes_queries(family, checkpoints, static, tmp_path):
    job = job_of(checkpoints[family], tmp_path / "m", encoder=str(static))
    index(job)
    dense = Dense.index(job.collection.documents, StaticEncoder.load(static))
    queries = {qid: job.collection.queries[qid] for qid in job.collection.split("test")}
    (kept,) = (tmp_path / "m.training").glob("vectors.words.*.trec")
    assert Run.read(kept).docnos("q025") == dense.search(queries, DEPTH).docnos("q025")
    shutil.rmtree(static)
    model = GR2.from_pretrained(tmp_path / "m")
    assert isinstance(model.query_encoder, StaticEncoder) and model.look_ahead.word_map is None
    texts = list(queries.values())
    phi = model.look_ahead.scores(texts, model.query_encoder.encode(texts)).round(4)
    run = model.search_many(queries, 5)
    for qid, scores in zip(queries, phi, strict=True):
        assert run.docnos(qid)[0] == max(zip(scores, model.look_ahead.docnos, strict=True))[1]
    assert model.look_ahead.nbytes["static encoder"] == tiny.SIZE * 12 * 4
    assert "static encoder" in (tmp_path / "m" / "README.md").read_text(encoding="utf-8")


def test_the_same_settings_give_the_same_bytes_and_a_changed_table_is_refused(bert, static, tmp_path):
    for name in ("one", "two"):
        index(job_of(bert, tmp_path / name, encoder=str(static), storage="int8"))
    files = [path for path in (tmp_path / "one" / "look_ahead").rglob("*") if path.is_file()]
    assert {"encoder", "bm25"} <= {path.parent.name for path in files}
    for path in files:
        assert path.read_bytes() == (tmp_path / "two" / path.relative_to(tmp_path / "one")).read_bytes()
    table = tmp_path / "one" / "look_ahead" / "encoder" / "model.safetensors"
    content = bytearray(table.read_bytes())
    content[-1] ^= 1
    table.write_bytes(bytes(content))
    with pytest.raises(ValueError, match=r"model\.safetensors: changed since it was written"):
        GR2.from_pretrained(tmp_path / "one")


def test_storage_reaches_the_folder(bert, tmp_path):
    index(job_of(bert, tmp_path / "m", storage="int8"))
    found = GR2.from_pretrained(tmp_path / "m").look_ahead
    assert isinstance(found.vectors, Int8Vectors) and found.encoder is None
    assert found.offsets is None or isinstance(found.offsets, Int8Vectors)
    index(job_of(bert, tmp_path / "full"))
    full = GR2.from_pretrained(tmp_path / "full").look_ahead
    assert found.config == full.config, "learning is the same for every storage"
    queries = np.eye(32, dtype=np.float32)
    np.testing.assert_allclose(found.vectors.dot(queries), full.vectors.dot(queries), atol=0.01)


def test_codes_and_words_are_all_that_is_kept_and_their_bytes_are_told(bert, gr2, tmp_path):
    job, said = job_of(bert, tmp_path / "m"), list[str]()
    scheme = SchemeConfig(scheme="codes-words", code_length=2, codebook_size=8, kept_words=3)
    index(replace(job, config=replace(job.config, docids=scheme)), said.append)
    model = GR2.from_pretrained(tmp_path / "m")
    found = model.look_ahead
    assert isinstance(found.vectors, CodeVectors) and found.prior is None
    assert found.config.kept_words == 3
    words = f"words {found.bm25.nbytes / 30:,.0f}"
    (line,) = [line for line in said if line.startswith("bytes per document: codes 2, ")]
    assert words in line and "codebooks 0.0 MB" in line
    cells = [["codes", "0.00", "2"], ["codebooks", f"{found.nbytes['codebooks'] / 1e6:.2f}", ""]]
    report = (tmp_path / "m" / "report.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in report.splitlines()]
    assert all(row in rows for row in cells)
    write_folder(job.collection, tmp_path / "shop")
    data = open_collection(str(tmp_path / "shop"))
    replace(model.docids, about={**model.docids.about, "fingerprint": data.fingerprint}).save(tmp_path / "d")
    printed = gr2("docids", "report", tmp_path / "d", tmp_path / "shop")
    (docid,) = [line.split()[1] for line in printed.splitlines() if line.startswith("bytes  ")]
    numbered = sum(len(row) - 2 for row in model.docids.tokens)
    assert float(docid) == pytest.approx(2 + numbered / 30, abs=0.06)
    (kept,) = [line.split()[3] for line in printed.splitlines() if line.startswith("bytes of words  ")]
    assert float(kept) == pytest.approx(found.bm25.nbytes / 30, abs=0.06)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"encoder": "nowhere"}, "nowhere: is no folder"),
        ({"storage": "pq"}, "found 30: choose the storage int8"),
    ],
)
def test_what_cannot_work_is_refused_before_any_work(settings, message, bert, tmp_path, monkeypatch):
    for module in ("gr2.workflows.index", "gr2.systems.generative"):
        monkeypatch.setattr(f"{module}.make_docids", None)
    job = job_of(bert, tmp_path / "m", **settings)
    for begin in (lambda: index(job), lambda: train(job.collection, job.out, job.config)):
        with pytest.raises(ValueError, match=message):
            begin()
        assert not list(tmp_path.iterdir())


def test_a_static_encoder_is_refused_as_a_backbone(static, tmp_path):
    with pytest.raises(ValueError, match="--look-ahead.encoder"):
        index(job_of(static, tmp_path / "m"))


def test_queries_are_cut_by_the_tokens_of_the_static_encoder(bert, static, tmp_path, caplog):
    index(job_of(bert, tmp_path / "m", encoder=str(static)))
    model = GR2.from_pretrained(tmp_path / "m")
    with caplog.at_level(logging.WARNING):
        model.search(" ".join(["qqq"] * 200))  # unknown words count in the backbone's tokens alone
    assert "truncated" not in caplog.text
    with caplog.at_level(logging.WARNING):
        model.search(" ".join(["baka"] * 129))
    assert "longer than 128 tokens" in caplog.text
