"""The report of a model: what it measures by hand-made cases, how it is drawn, and the page as a whole."""

import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from helpers import tiny

from gr2.data.runs import Run
from gr2.model.gr2 import GR2
from gr2.report import OURS, write_report
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
from gr2.schemes.config import SchemeConfig
from gr2.schemes.registry import SchemeContext, build
from gr2.store import verify
from gr2.systems.baselines import baseline_runs
from gr2.training.fit import fit

QRELS = {"q1": {"a": 3, "b": 1, "c": 1, "x": 0}, "q2": {"a": 1}}
RUN = Run.from_dict({"q1": {"a": -0.1, "b": -2.0, "d": -3.0}, "q2": {"b": -0.2}}, "r")


@pytest.fixture(scope="module")
def backbone(tmp_path_factory):
    return str(tiny.save_checkpoint(tmp_path_factory.mktemp("encoder") / "checkpoint", "encoder"))


@pytest.fixture(scope="module")
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
        rows = [json.dumps({"step": i + 1, "total": v, "validation": 9.0}) for i, v in enumerate(values)]
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
    write_report(folder, tiny.graded(), [])
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
        write_report(folder, tiny.graded(), [])
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
        write_report(copy, tiny.graded(), [])
