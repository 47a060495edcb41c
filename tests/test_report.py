"""The report of a model: what it measures by hand-made cases, how it is drawn, and the page as a whole."""

import json
import random
import re
from dataclasses import replace
from xml.etree import ElementTree

import checkpoints as tiny
import numpy as np
import pytest

from gr2.baselines.dense import document_vectors
from gr2.data import Collection, Document
from gr2.docids.schemes import Making, build
from gr2.embed import Encoder
from gr2.index import Indexing, detail, index, scheme_for, seconds, seconds_of_a_step, what_was_read
from gr2.learn import Plan, learn, prepare
from gr2.model import GR2
from gr2.report import OURS, rivals, write_report
from gr2.report.draw import bars, dots, lines
from gr2.report.evidence import (
    cost_of_model,
    flat,
    loss_curves,
    possible_recall,
    recall_by_grade,
    reliability,
    telling_query,
)
from gr2.report.layout import Picture, Section, Table, as_html, as_markdown
from gr2.runs import Run
from gr2.store import verify

QRELS = {"q1": {"a": 3, "b": 1, "c": 1, "x": 0}, "q2": {"a": 1}}
RUN = Run.from_dict({"q1": {"a": -0.1, "b": -2.0, "d": -3.0}, "q2": {"b": -0.2}}, "r")


def graded(count: int = 30, *, titled: bool = True) -> Collection:
    """Documents with queries of three splits and grades from 1 to 3."""
    draw = random.Random(1)
    documents = []
    for number in range(count):
        words = draw.sample(tiny.WORDS, 8)
        title = " ".join(words[:3]) if titled else ""
        documents.append(Document(f"{number:03}", title, " ".join(words)))
    queries = {f"q{d.docno}": " ".join(draw.sample(d.text.split(), 3)) for d in documents}
    judged = {
        f"q{d.docno}": {
            d.docno: 3,
            documents[(i + 1) % count].docno: 2,
            documents[(i + 2) % count].docno: 1,
        }
        for i, d in enumerate(documents)
    }
    parts = {"train": range(0, 20), "dev": range(20, 25), "test": range(25, 30)}
    qids = list(judged)
    qrels = {name: {qids[i]: judged[qids[i]] for i in part} for name, part in parts.items()}
    return Collection(name="graded", documents=tuple(documents), queries=queries, qrels=qrels)


@pytest.fixture(scope="module")
def backbone(tmp_path_factory):
    return str(tiny.save_checkpoint(tmp_path_factory.mktemp("encoder") / "checkpoint", "encoder"))


@pytest.fixture(scope="module")
def reported(backbone, tmp_path_factory):
    """A model with its report, and the comparison that writing it returned."""
    folder, data = tmp_path_factory.mktemp("reported") / "model", graded()
    docids = build("title", Making(collection=data, backbone=backbone, folder=folder))
    learn(data, docids, backbone, folder, Plan(steps=12, queries=4, texts=4, bf16=False))
    return folder, write_report(folder, data, rivals(data, "test"))


def test_recall_counts_the_documents_of_each_grade_among_the_first():
    assert recall_by_grade(RUN, QRELS) == {3: 1.0, 1: 1 / 3}
    assert recall_by_grade(RUN, QRELS, depth=1) == {3: 1.0, 1: 0.0}


def test_more_documents_than_fit_cannot_all_be_found():
    many = {"q": {f"d{i}": 1 for i in range(30)} | {"top": 3}}
    assert possible_recall(many) == {3: 1.0, 1: 20 / 30}


def test_reliability_puts_results_of_all_queries_into_bins_of_rising_probability():
    scores = {f"d{i}": float(np.log((i + 1) / 100)) for i in range(10)}
    run = Run.from_dict({"q": scores}, "r")
    bins = reliability(run, {"q": {"d9": 3, "d8": 1, "d0": -1}})
    assert [b.results for b in bins] == [2] * 5
    assert [b.relevant for b in bins] == [0, 0, 0, 0, 1]
    assert [b.grade for b in bins] == [0, 0, 0, 0, 2]
    assert bins[0].low == pytest.approx(0.01) and bins[-1].high == pytest.approx(0.1)


def test_reliability_of_nothing_is_nothing():
    assert reliability(Run({}, "r"), QRELS) == []


def test_the_telling_query_has_most_grades_and_then_most_documents():
    assert telling_query(QRELS) == "q1"
    assert telling_query({"b": {"x": 1, "y": 1}, "a": {"x": 1, "y": 1}, "c": {"x": 1}}) == "a"


def test_curves_go_on_over_the_stages(tmp_path):
    for stage, values in (("frozen", [4.0, 2.0]), ("joint", [1.0, 0.5, 0.0])):
        (tmp_path / stage).mkdir()
        rows = [json.dumps({"step": i + 1, "total": v, "judged": 9.0}) for i, v in enumerate(values)]
        (tmp_path / stage / "metrics.jsonl").write_text("\n".join(rows) + "\n")
    assert loss_curves(tmp_path) == {"total": [(1, 4.0), (2, 2.0), (3, 1.0), (4, 0.5), (5, 0.0)]}
    assert loss_curves(tmp_path, points=2)["total"] == [(3, pytest.approx(7 / 3)), (5, 0.25)]
    assert loss_curves(tmp_path / "nowhere") == {}


@pytest.mark.parametrize(
    "svg",
    [
        lines({"a <b>": [(0, 1.0), (10, 3.0)], "flat": [(0, 2.0), (10, 2.0)]}, "steps", "loss"),
        lines({"one point": [(3, 3.0)]}, "x", "y"),
        lines({}, "x", "y"),
        dots({"the query": [(0.0, 0.0)], "grade 3": [(1.0, 1.0), (2.0, -1.0)]}, 'a "title" & more'),
        bars([("low", 0.0), ("high", 3.0), ("high", 1.0)], "grade"),
        bars([], "grade"),
    ],
)
def test_pictures_are_well_formed_and_lie_inside_their_frame(svg):
    root = ElementTree.fromstring(svg)
    width, height = map(float, root.get("viewBox").split()[2:])
    assert root.get("aria-label")
    for element in root.iter():
        for name, most in (("cx", width), ("cy", height), ("x", width), ("y", height)):
            if element.get(name):
                assert -1 <= float(element.get(name)) <= most + 1, (element.tag, name)


def test_both_forms_say_the_same_and_escape_what_they_are_told():
    parts = ["A <b>paragraph</b>.", Table(["name", "value"], [["a|b", "1"]]), Picture("<svg/>", "See & look")]
    html = as_html("T", [Section("S", parts)])
    assert "A &lt;b&gt;paragraph&lt;/b&gt;." in html and "<svg/>" in html and "See &amp; look" in html
    text = as_markdown("T", [Section("S", parts)])
    assert "# T" in text and "## S" in text and "a\\|b" in text and "<svg/>" not in text


def test_a_report_has_every_section_and_asks_nothing_of_the_network(reported):
    folder, comparison = reported
    html, text = (folder / "report.html").read_text(), (folder / "report.md").read_text()
    for title in ("The collection", "Docids: title", "Training", "How good it is", "Recall of each grade",
                  "Best and worst queries", "A query and its graded documents",
                  "Does a higher score mean", "What an answer costs"):  # fmt: skip
        assert title in html and title in text, title
    assert not re.search(r"(?:src|href)=|url\(|@import|<script", html)
    ElementTree.fromstring(re.sub(r"<meta[^>]*>", "", html.split("\n", 1)[1]))
    assert comparison.evaluations[-1].name == OURS
    for evaluation in comparison.evaluations:
        assert f"{evaluation.means['nDCG@20']:.4f}" in text


def test_a_reported_folder_is_whole_and_can_be_reported_again_and_searched(reported, backbone):
    folder, _ = reported
    verify(folder)
    assert "report.html" in (folder / "manifest.json").read_text()
    write_report(folder, graded(), [])
    assert len(GR2.from_pretrained(folder).search("baka beke", k=3)) == 3


def test_fixed_and_growing_bytes_are_all_there_are(reported):
    model = GR2.from_pretrained(reported[0])
    cost = cost_of_model(model, ["baka beke"])
    tokens, offsets = model.docids.flat()
    weights = sum(value.nbytes for value in model.network.weights().values())
    assert cost.fixed + cost.growing == weights + model.trie.nbytes + tokens.nbytes + offsets.nbytes
    assert cost.milliseconds > 0


def test_a_report_that_was_interrupted_changes_nothing(reported, tmp_path, monkeypatch):
    import shutil

    import gr2.report

    folder = tmp_path / "model"
    shutil.copytree(reported[0], folder)
    before = (folder / "report.html").read_bytes()

    def broken(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(gr2.report, "as_markdown", broken)
    with pytest.raises(KeyboardInterrupt):
        write_report(folder, graded(), [])
    verify(folder)
    assert (folder / "report.html").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("count", [2, 3, 12])
def test_any_number_of_vectors_has_a_plane(count):
    vectors = np.random.default_rng(0).standard_normal((count, 5)).astype(np.float32)
    places, how = flat(vectors)
    assert len(places) == count and how == ("t-SNE" if count >= 8 else "PCA")
    assert np.isfinite(places).all()


def test_a_changed_folder_gets_no_report(reported, tmp_path):
    import shutil

    copy = tmp_path / "model"
    shutil.copytree(reported[0], copy)
    (copy / "config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"config.json: changed"):
        write_report(copy, graded(), [])


@pytest.mark.parametrize(
    ("text", "wanted"), [("90s", 90), ("30m", 1800), ("1h30m", 5400), ("2h", 7200), (" 1m5s ", 65)]
)
def test_times_are_read(text, wanted):
    assert seconds(text) == wanted


@pytest.mark.parametrize("text", ["", "30", "m", "0m", "-5m", "1.5h", "30 m", "soon"])
def test_other_times_are_refused(text):
    with pytest.raises(ValueError, match="expected a time"):
        seconds(text)


def test_one_command_indexes_measures_and_reports(backbone, tmp_path):
    out = tmp_path / "model"
    job = Indexing(collection=graded(), out=out, backbone=backbone, seconds=30.0)
    said = "\n".join(index(job))
    assert re.search(r"docids: 30 by title", said) and "nDCG@20" in said and OURS in said
    assert (out / "report.html").is_file()
    steps = json.loads((tmp_path / "model.training" / "plan.json").read_text())["steps"]
    assert steps == 20  # 20 training queries, 16 in a step, ten epochs
    weights = (out / "network.safetensors").read_bytes()
    again = "\n".join(index(replace(job, resume=True, seconds=0.5)))  # the plan is kept, not made anew
    assert "20 steps" in again and (out / "network.safetensors").read_bytes() == weights


def test_other_recipes_are_measured_beside_and_done_once(backbone, tmp_path):
    job = Indexing(
        collection=graded(), out=tmp_path / "model", backbone=backbone, seconds=5.0, beside=("MLE",)
    )
    said = "\n".join(index(job))
    assert "MLE: trained with the same steps" in said and re.search(r"MLE  ", said)
    assert not (tmp_path / "model.training" / "MLE.model").exists()
    run = tmp_path / "model.training" / "MLE.trec"
    before = run.stat().st_mtime_ns
    list(index(replace(job, resume=True)))
    assert run.stat().st_mtime_ns == before


@pytest.mark.parametrize(("seconds", "pieces", "longest"), [(1e9, 8, 128), (1e-9, 0, 16), (None, 0, 32)])
def test_documents_are_read_as_far_as_there_is_time(
    backbone, tmp_path, monkeypatch, seconds, pieces, longest
):
    timed, encoder = iter(range(100)), Encoder.load(backbone)
    if seconds is None:  # a sample takes one second, then two: the first fits into a quarter of the time
        monkeypatch.setattr("gr2.index.time.monotonic", lambda: next(timed) ** 2 / 5)
        seconds = 1.0
    job = Indexing(collection=graded(), out=tmp_path / "model", backbone=backbone, seconds=seconds)
    chosen = detail(job, encoder, 30)
    assert (chosen.pieces, chosen.longest) == (pieces, longest)
    kept = detail(replace(job, seconds=5.0), encoder, 30)
    assert kept == chosen and str(longest if not pieces else pieces) in what_was_read(job)


def test_timing_a_step_changes_no_weight(backbone, tmp_path):
    data, plan = graded(), Plan(steps=3)
    docids = build("title", Making(collection=data, backbone=backbone, folder=tmp_path, words=6))
    vectors = document_vectors(data, docids.docnos, backbone, tmp_path)
    ready = prepare(data, docids, backbone, plan, vectors=vectors)
    seconds_of_a_step(ready, plan)
    learn(data, docids, backbone, tmp_path / "timed", plan, ready=ready)
    learn(data, docids, backbone, tmp_path / "plain", plan, vectors=vectors)
    one, two = ((tmp_path / name / "network.safetensors").read_bytes() for name in ("timed", "plain"))
    assert one == two


def test_a_short_time_means_few_steps(backbone, tmp_path):
    job = Indexing(collection=graded(), out=tmp_path / "model", backbone=backbone, seconds=0.01)
    assert "plan: 5 steps" in "\n".join(index(job))


def test_what_would_fail_later_is_refused_first(backbone, tmp_path):
    job = Indexing(collection=graded(), out=tmp_path / "model", backbone=backbone, seconds=0.01)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    for wrong, message in (
        (replace(job, out=tmp_path / "mine"), "not written by gr2"),
        (replace(job, beside=("nothing",)), "no recipe is called"),
    ):
        with pytest.raises(ValueError, match=message):
            next(index(wrong))
    steps = index(job)
    while not next(steps).startswith("plan"):
        pass
    steps.close()  # interrupted before training
    plan = (tmp_path / "model.training" / "plan.json").read_bytes()
    with pytest.raises(ValueError, match="add --resume"):
        next(index(job))
    assert (tmp_path / "model.training" / "plan.json").read_bytes() == plan
    assert "as planned before" in "\n".join(index(replace(job, resume=True)))


@pytest.mark.parametrize("qrels", ["train", "test"])
def test_judgements_of_one_split_alone_will_do(backbone, tmp_path, qrels):
    data = replace(graded(), qrels={qrels: graded().qrels[qrels]})
    said = "\n".join(index(Indexing(collection=data, out=tmp_path / "m", backbone=backbone, seconds=0.01)))
    assert ("no judged queries" in said) == (qrels == "train")


def test_an_encoder_decoder_is_indexed_by_its_words(tmp_path):
    backbone = str(tiny.save_checkpoint(tmp_path / "t5", "t5"))
    job = Indexing(collection=graded(), out=tmp_path / "m", backbone=backbone, seconds=0.01)
    said = "\n".join(index(job))
    assert "vectors" not in said and "dense" not in said and OURS in said


def test_one_document_and_one_query_are_a_collection_too(backbone, tmp_path):
    data = Collection(
        name="one",
        documents=(Document("d", "baka beke", "baka beke duku"),),
        queries={"q": "baka"},
        qrels={"test": {"q": {"d": 1}}},
    )
    said = "\n".join(index(Indexing(collection=data, out=tmp_path / "m", backbone=backbone, seconds=0.01)))
    assert "1.0000" in said


def test_documents_without_titles_and_judgements_are_indexed_too(backbone, tmp_path):
    data = replace(graded(titled=False), qrels={})
    assert scheme_for(data) == "summary" and scheme_for(graded()) == "title"
    job = Indexing(collection=data, out=tmp_path / "model", backbone=backbone, seconds=0.01)
    said = "\n".join(index(job))
    assert "no judged queries" in said and (tmp_path / "model" / "report.md").is_file()
