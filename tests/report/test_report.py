"""The report of a model: what it measures by hand-made cases, how it is drawn, and the page as a whole."""

import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from helpers import tiny

from gr2.data.collection import Collection, Document
from gr2.data.runs import Run
from gr2.evaluate.measures import Convention, Evaluation
from gr2.evaluate.significance import compare
from gr2.model.gr2 import GR2
from gr2.report import OURS, write_report
from gr2.report.draw import Band, Bar, bands, bars, dots, groups, lines
from gr2.report.evidence import (
    cost_of_model,
    flat,
    loss_curves,
    possible_recall,
    recall_by_grade,
    reliability,
    telling_query,
)
from gr2.report.layout import Card, Cards, Entry, Picture, Points, Section, Table, as_html, as_markdown
from gr2.report.queries import queries_section
from gr2.report.summary import differences, summary_section, verdicts
from gr2.store import Workspace, verify

QRELS = {"q1": {"a": 3, "b": 1, "c": 1, "x": 0}, "q2": {"a": 1}}
RUN = Run.from_dict({"q1": {"a": -0.1, "b": -2.0, "d": -3.0}, "q2": {"b": -0.2}}, "r")


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
        bars([Bar("none", 0.0, "0"), Bar("a <b> & " + "long " * 30, 3.0, "3", strong=True)], "grade"),
        bars([], "grade"),
        groups({"one": [0.5, 1.0], "two": [0.0, 0.1]}, ["grade 2", "grade 1"], "recall"),
        bands([Band("up", 0.2, 0.1, 0.3, "+", True), Band("down", -0.5, -0.9, 0.1, "−", False)], "gain"),
        bands([], "gain"),
    ],
)
def test_pictures_are_well_formed_and_lie_inside_their_frame(svg):
    root = ElementTree.fromstring(svg)
    width, height = map(float, root.get("viewBox").split()[2:])
    assert root.get("aria-label")
    for element in root.iter():
        for name, most in (("cx", width), ("cy", height), ("x", width), ("y", height)):
            if element.get(name):
                size = float(element.get({"x": "width", "y": "height"}.get(name, ""), 0))
                assert -1 <= float(element.get(name)) <= most + 1 - size, (element.tag, name)


def test_what_may_be_chance_is_neither_better_nor_worse():
    rows = [("up", 0.2, True), ("down", -0.2, True), ("up by chance", 0.2, False)]
    svg = ElementTree.fromstring(
        bands([Band(name, v, v - 0.1, v + 0.1, "", clear) for name, v, clear in rows], "gain")
    )
    dots = [element for element in svg.iter() if element.tag == "circle"]
    assert [dot.get("class") for dot in dots] == ["better", "worse", "same"]
    middle = float(svg.get("viewBox").split()[2]) / 2
    assert [float(dot.get("cx")) > middle for dot in dots] == [True, False, True]


def test_both_forms_say_the_same_and_escape_what_they_are_told():
    entry = Entry(2, "A <title>", 'https://x.org/"q"', [("a <b>", False), ("c & d", True)], "note <i>")
    script = Entry(0, "Bad", "javascript:alert(1)", [], "")
    cards = Cards("The <best>", [Card("why <not>", "1.0", [("Put first", [entry, script])])])
    table = Table(["name", "value"], [["a|b", "1"]], "All <figures>")
    parts = ["A <b>paragraph</b>.", table, Picture("<svg/>", "See & look"), Points(["a < b"]), cards]
    html = as_html("T", [Section("S", parts), Section("Next", [])])
    ElementTree.fromstring(re.sub(r"<meta[^>]*>", "", html.split("\n", 1)[1]))
    assert "A &lt;b&gt;paragraph&lt;/b&gt;." in html and "<svg/>" in html and "See &amp; look" in html
    assert "A &lt;title&gt;</a>" in html and "a &lt;b&gt;<mark>c &amp; d</mark>" in html
    assert 'href="https://x.org/&quot;q&quot;"' in html and "javascript:" not in html
    assert "<details><summary>All &lt;figures&gt;</summary>" in html and "a &lt; b" in html
    assert '<a href="#s1">Next</a>' in html and 'id="s1"' in html
    text = as_markdown("T", [Section("S", parts)])
    assert "# T" in text and "## S" in text and "a\\|b" in text and "<svg/>" not in text
    assert "- a < b" in text and "**why <not>**" in text and "[2] A <title> (note <i>)" in text


def test_the_summary_says_what_is_better_and_what_is_not():
    values = {f"q{i:02}": 0.1 * (i % 5) for i in range(30)}
    rows = {
        "weak": {qid: value / 4 for qid, value in values.items()},
        "twin": {qid: value + (0.01 if int(qid[1:]) % 2 else -0.01) for qid, value in values.items()},
        "strong": {qid: value + 0.3 + 0.001 * int(qid[1:]) for qid, value in values.items()},
        "ours": values,
    }
    convention = Convention.for_grades(3)
    comparison = compare([Evaluation(name, {"nDCG@20": each}, convention) for name, each in rows.items()])
    better, worse, same = verdicts(comparison, "ours")
    assert better.startswith("It is better than weak by 0.150 (p < 0.001)")
    assert worse.startswith("It is worse than strong by 0.31") and "ours" not in worse
    assert same == "It is not clearly better or worse than twin (+0.000, p 1.00)."
    assert [row.other for row in differences(comparison, "ours")] == ["weak", "twin", "strong"]
    nothing = summary_section(None, "ours", "dev", {}, {})
    assert "no query of dev" in nothing.parts[0]


def test_a_query_shows_what_was_put_first_beside_what_was_judged_best():
    documents = [
        Document(d, f"title {d}", f"text of {d} with sour fruit", f"https://x.org/{d}") for d in "abcd"
    ]
    queries = {f"q{i}": "sour fruit" for i in range(9)}
    judged = {qid: {"a": 3, "b": 1, "c": 0, "z": 2} for qid in queries}
    data = Collection(name="c", documents=tuple(documents[:3]), queries=queries, qrels={})
    run = Run.from_dict({qid: {"c": 2.0, "b": 1.0, "d": 0.5} for qid in queries}, "ours")
    values = {qid: number / 10 for number, qid in enumerate(queries)}
    section = queries_section(
        data, judged, run, values, {"d": "docid of d"}, lambda text: {"c": {"words": 2.0}}
    )
    worst, best = section.parts[1:]
    assert [card.note for card in worst.cards] == [f"nDCG@20 0.{i}00" for i in range(5)]
    assert [card.note for card in best.cards] == ["nDCG@20 0.800", "nDCG@20 0.700", "nDCG@20 0.600"]
    (_, found), (_, ideal) = worst.cards[0].columns
    assert [(each.title, each.grade) for each in found] == [("title c", 0), ("title b", 1), ("docid of d", 0)]
    assert found[0].note == "c · words 2.0" and found[0].url == "https://x.org/c"
    assert ("sour", True) in found[0].snippet
    assert [(each.title, each.note) for each in ideal] == [
        ("title a", "a · not among the first 3"),
        ("z", "not among the first 3"),
        ("title b", "b · found at rank 2"),
    ]


def test_a_report_has_every_section_and_asks_nothing_of_the_network(reported):
    folder, comparison = reported
    html, text = (folder / "report.html").read_text(), (folder / "report.md").read_text()
    for title in ("In short", "The collection", "Docids: title", "Training", "How good it is",
                  "Recall of each grade", "Best and worst queries", "A query and its graded documents",
                  "Does a higher score mean", "What an answer costs"):  # fmt: skip
        assert title in html and title in text, title
    assert not re.search(r"src=|<link|url\(|@import|<script", html)
    assert len(re.findall("href=", html)) == len(re.findall('<a href="(?:#s|https?://)', html))
    root = ElementTree.fromstring(re.sub(r"<meta[^>]*>", "", html.split("\n", 1)[1]))
    assert len(root.findall(".//table")) == len(root.findall(".//details//table")) > 5
    assert len(root.findall(".//svg")) >= 8 and root.find(".//section/h2").text == "In short"
    assert comparison.evaluations[-1].name == OURS
    for evaluation in comparison.evaluations:
        assert f"{evaluation.means['nDCG@20']:.4f}" in text


def test_a_short_training_has_a_curve_not_two_points(reported):
    curves = loss_curves(Workspace(reported[0]).training)
    assert [step for step, _ in curves["total"]] == list(range(1, 13))


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
