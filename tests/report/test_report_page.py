"""The report in a real browser: on a phone, in the dark, on paper, and as axe-core sees it."""

import pytest
from helpers import accessibility, browsing

from gr2.report.layout import Section, Table, as_html

pytest.importorskip("playwright", reason="playwright is not installed")
if browsing.CHROMIUM is None:
    pytest.skip("no chromium: apt install chromium", allow_module_level=True)


@pytest.fixture
def report(page, reported):
    page.set_content((reported[0] / "report.html").read_text(encoding="utf-8"))
    return page


def test_a_phone_has_no_overflow_even_with_all_tables_open(report):
    report.set_viewport_size({"width": 360, "height": 740})
    report.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert report.locator("table").first.is_visible()
    assert report.evaluate("document.documentElement.scrollWidth") <= 360
    sizes = report.eval_on_selector_all(
        "svg", "all => all.map(e => parseFloat(getComputedStyle(e).fontSize) * e.clientWidth / 480)"
    )
    assert min(sizes) >= 10, "the words of a chart are too small to read"


LINES = """cells => cells.map((cell) => {
  const range = document.createRange();
  range.selectNodeContents(cell);
  return [cell.textContent, new Set([...range.getClientRects()].map((box) => box.top)).size];
})"""


def test_figures_keep_their_letters_beside_them(page):
    rows = [["a", "a system with rather a long name", *["0.3555 abcdef"] * 6], ["b", "x " * 40, *["0.1"] * 6]]
    table = Table(["letter", "system", *["nDCG@20"] * 6], rows)
    page.set_content(as_html("T", [Section("S", [table])]))
    page.set_viewport_size({"width": 360, "height": 740})
    page.locator("summary").click()
    lines = page.eval_on_selector_all("td", LINES)
    figures = [count for text, count in lines if text.startswith("0.")]
    assert figures == [1] * 12, "only columns with sentences may wrap"
    assert lines[9][1] > 1 and page.evaluate("document.documentElement.scrollWidth") <= 360


def test_paper_is_white_and_has_the_tables(report):
    report.emulate_media(color_scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    assert report.evaluate(ground) != "rgb(255, 255, 255)"
    report.emulate_media(media="print", color_scheme="dark")
    assert report.evaluate(ground) == "rgb(255, 255, 255)"
    assert not report.locator("nav").is_visible()
    assert (
        report.locator("details table").first.evaluate("table => table.getBoundingClientRect().height") > 20
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_have_enough_contrast(report, scheme):
    report.emulate_media(color_scheme=scheme)
    for selector in ("p", "h2", "summary", "figcaption", ".note", "mark", ".grade", "nav a", ".label"):
        found = browsing.contrasts(report, selector)
        assert found and min(found) >= 4.5, (selector, found)


@pytest.mark.skipif(accessibility.AXE is None, reason=accessibility.MISSING)
@pytest.mark.parametrize("screen", accessibility.SCREENS)
def test_the_report_shuts_nobody_out(report, screen):
    accessibility.on_screen(report, screen)
    assert accessibility.violations(report) == []
    report.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert accessibility.violations(report) == []
