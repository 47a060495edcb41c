"""A collection becomes a searchable folder with a report, in the time that there is."""

import json
import re
import time
from dataclasses import replace
from functools import partial
from itertools import count

import pytest
from helpers import tiny

from gr2.data.collection import Collection, Document
from gr2.model.gr2 import GR2
from gr2.report import OURS
from gr2.schemes.registry import suitable_scheme
from gr2.systems.config import GenerativeConfig, preset
from gr2.training.config import with_settings
from gr2.workflows.index import IndexJob, index


@pytest.fixture(scope="module")
def backbone(tmp_path_factory):
    return str(tiny.save_checkpoint(tmp_path_factory.mktemp("encoder") / "checkpoint", "encoder"))


def job_of(backbone, out, data: Collection | None = None, *, seconds: float = 0.01, **options) -> IndexJob:
    """A job that trains a decoder within a budget; by default one that is far too small."""
    config = replace(preset("decoder"), backbone=backbone)
    return IndexJob(collection=data or tiny.graded(), out=out, config=config, seconds=seconds, **options)


def told(job: IndexJob) -> str:
    """Index, and everything that was said on the way."""
    lines = []
    index(job, lines.append)
    return "\n".join(lines)


def test_one_command_indexes_measures_and_reports(backbone, tmp_path):
    out = tmp_path / "model"
    job = job_of(backbone, out, seconds=30.0)
    said = told(job)
    assert re.search(r"docids: 30 by title", said) and "nDCG@20" in said and OURS in said
    assert (out / "report.html").is_file()
    assert "training: 20 steps" in said  # 20 training queries, 16 in a step, ten epochs
    weights = (out / "network.safetensors").read_bytes()
    told(replace(job, resume=True))  # what was planned before is kept
    assert (out / "network.safetensors").read_bytes() == weights


def test_other_recipes_are_measured_beside_and_done_once(backbone, tmp_path):
    job = job_of(backbone, tmp_path / "model", seconds=5.0, compare_with=("MLE",))
    said = told(job)
    assert "MLE: trained with the same settings" in said and re.search(r"MLE  ", said)
    assert not (tmp_path / "model.training" / "MLE.model").exists()
    run = tmp_path / "model.training" / "MLE.trec"
    before = run.stat().st_mtime_ns
    index(replace(job, resume=True))
    assert run.stat().st_mtime_ns == before


def test_without_a_budget_nothing_depends_on_the_clock(backbone, tmp_path, monkeypatch):
    """A clock on which everything takes an hour changes no byte, of look-ahead or of a decoder."""
    for name in ("one", "two"):
        index(look_ahead_job(backbone, tmp_path / f"{name}.ahead"))
        config = replace(preset("decoder"), backbone=backbone)
        config = replace(config, training=with_settings(config.training, {"schedule.steps": 3}))
        index(IndexJob(collection=tiny.graded(), out=tmp_path / f"{name}.decoder", config=config))
        hours = count(0.0, 3600.0)
        for clock in ("monotonic", "perf_counter", "process_time"):
            monkeypatch.setattr(time, clock, partial(next, hours))
    for kind, file in (("ahead", "look_ahead/look_ahead.safetensors"), ("decoder", "network.safetensors")):
        one, two = (tmp_path / f"{name}.{kind}" / file for name in ("one", "two"))
        assert one.read_bytes() == two.read_bytes(), kind


def test_a_short_time_means_few_steps(backbone, tmp_path):
    job = job_of(backbone, tmp_path / "model")
    said = told(job)
    assert re.search(
        "left undone for lack of time: .*15 of 20 training steps; --budget .* is probably enough", said
    )
    model = GR2.from_pretrained(tmp_path / "model")
    assert model.provenance["training"]["schedule"]["steps"] == 5, "what was trained, not what was wanted"
    logged = (tmp_path / "model.training" / "joint" / "metrics.jsonl").read_text().splitlines()
    assert len(logged) == 5
    before = (tmp_path / "model" / "network.safetensors").read_bytes()
    assert "15 of 20 training steps" in told(replace(job, resume=True))
    assert (tmp_path / "model" / "network.safetensors").read_bytes() == before


def test_what_would_fail_later_is_refused_first(backbone, tmp_path):
    job = job_of(backbone, tmp_path / "model")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    for wrong, message in (
        (replace(job, out=tmp_path / "mine"), "not written by gr2"),
        (replace(job, compare_with=("nothing",)), "no variant is called"),
        (replace(job, curve=(5, 10)), "learning curve is one of look-ahead"),
    ):
        with pytest.raises(ValueError, match=message):
            index(wrong)

    def stop_before_training(line):
        if line.startswith("training"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        index(job, stop_before_training)
    plan = json.loads((tmp_path / "model.training" / "plan.json").read_text())
    with pytest.raises(ValueError, match="add --resume"):
        index(job)
    told(replace(job, resume=True))
    now = json.loads((tmp_path / "model.training" / "plan.json").read_text())
    assert now["encoded"] == plan["encoded"] and now["spent"] > plan["spent"]


@pytest.mark.parametrize("qrels", ["train", "test"])
def test_judgements_of_one_split_alone_will_do(backbone, tmp_path, qrels):
    data = replace(tiny.graded(), qrels={qrels: tiny.graded().qrels[qrels]})
    said = told(job_of(backbone, tmp_path / "m", data))
    assert ("no judged queries" in said) == (qrels == "train")


def test_an_encoder_decoder_is_indexed_by_its_words(tmp_path):
    backbone = str(tiny.save_checkpoint(tmp_path / "t5", "t5"))
    job = job_of(backbone, tmp_path / "m")
    said = told(job)
    assert "vectors" not in said and "dense" not in said and OURS in said


def test_one_document_and_one_query_are_a_collection_too(backbone, tmp_path):
    data = Collection(
        name="one",
        documents=(Document("d", "baka beke", "baka beke duku"),),
        queries={"q": "baka"},
        qrels={"test": {"q": {"d": 1}}},
    )
    said = told(job_of(backbone, tmp_path / "m", data))
    assert "1.0000" in said


def test_documents_without_titles_and_judgements_are_indexed_too(backbone, tmp_path):
    data = replace(tiny.graded(titled=False), qrels={})
    assert suitable_scheme(data) == "summary" and suitable_scheme(tiny.graded()) == "title"
    job = job_of(backbone, tmp_path / "model", data)
    said = told(job)
    assert "no judged queries" in said and (tmp_path / "model" / "report.md").is_file()


def look_ahead_job(backbone, out, data: Collection | None = None, **options) -> IndexJob:
    """A job as it is by default."""
    config = GenerativeConfig(backbone=backbone)
    return IndexJob(collection=data or tiny.graded(), out=out, config=config, **options)


def test_by_default_look_ahead_ranks_and_the_parts_stand_beside_it(backbone, tmp_path):
    job = look_ahead_job(backbone, tmp_path / "model")
    said = told(job)
    for part in (
        "docids: 30 by title",
        "encoding: up to 8 pieces",
        "look-ahead:",
        "learned: ",
        "dense, untrained",
    ):
        assert part in said, part
    assert re.search(r"hybrid, nothing learned", said) and OURS in said and "training:" not in said
    report = (tmp_path / "model" / "report.md").read_text(encoding="utf-8")
    assert "Look-ahead" in report and "words " in report and "vectors " in report
    model = GR2.from_pretrained(tmp_path / "model")
    assert model.look_ahead is not None and model.provenance["look_ahead"]["weights"]
    queries = {qid: job.collection.queries[qid] for qid in job.collection.split("test")}
    assert model.search_many(queries, 5) == GR2.from_pretrained(tmp_path / "model").search_many(queries, 5)


def test_an_interrupted_look_ahead_ends_with_the_same_bytes(backbone, tmp_path):
    job = look_ahead_job(backbone, tmp_path / "one")
    index(job)

    def stop(line):
        if line.startswith("look-ahead:"):
            raise KeyboardInterrupt

    other = replace(job, out=tmp_path / "two")
    with pytest.raises(KeyboardInterrupt):
        index(other, stop)
    (vectors,) = (tmp_path / "two.training").glob("vectors.*.safetensors")
    before = vectors.stat().st_mtime_ns
    index(replace(other, resume=True))
    assert vectors.stat().st_mtime_ns == before, "documents are encoded once"
    names = ("look_ahead.safetensors", "look_ahead.json")
    for name in (*(f"look_ahead/{name}" for name in names), "network.safetensors", "config.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name


def test_a_budget_is_for_a_decoder(backbone, tmp_path):
    with pytest.raises(ValueError, match="--preset decoder"):
        index(look_ahead_job(backbone, tmp_path / "m", seconds=5.0))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_an_encoder_decoder_looks_ahead_by_its_words(family, tmp_path):
    backbone = str(tiny.save_checkpoint(tmp_path / family, family))
    job = look_ahead_job(backbone, tmp_path / "m")
    said = told(job)
    assert "encoding" not in said and "dense" not in said and "hybrid" in said
    model = GR2.from_pretrained(tmp_path / "m")
    assert model.look_ahead is not None and model.look_ahead.word_map is not None
    texts = list(job.collection.queries.values())
    run = model.search_many(dict(job.collection.queries), 30)
    vectors = model.query_encoder.encode(texts)
    expected = model.look_ahead.scores(texts, vectors)
    for qid, scores in zip(job.collection.queries, expected, strict=True):
        best = max(zip(scores.round(4), model.look_ahead.docnos, strict=True))
        assert run.docnos(qid)[0] == best[1]


@pytest.mark.parametrize("qrels", ["train", "test", ""])
def test_look_ahead_needs_no_judgements(backbone, tmp_path, qrels):
    data = tiny.graded()
    data = replace(data, qrels={qrels: data.qrels[qrels]} if qrels else {})
    said = told(look_ahead_job(backbone, tmp_path / "m", data))
    assert ("no judged queries" in said) == (qrels != "test")
    if qrels != "train":
        assert "learned: nothing, because neither train nor dev has judgements" in said
