"""The search page of a model with look-ahead: reasons, rivals, similar documents and example queries."""

import re

import pytest
from helpers import browsing, judged, served

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
pytest.importorskip("playwright", reason="playwright is not installed")
if browsing.CHROMIUM is None:
    pytest.skip("no chromium: apt install chromium", allow_module_level=True)

QUERY = f"{judged.WRITTEN[0]} {judged.OTHERS[3]}"


@pytest.fixture(scope="module")
def address(taught):
    with served.servers(taught) as start:
        yield start()[1]


def docnos(page, section="ours"):
    page.wait_for_selector(f"#{section} .hit")
    return page.eval_on_selector_all(f"#{section} .hit", "hits => hits.map(hit => hit.dataset.docno)")


def begins_with(page, docno):
    """Wait until the results of an earlier address have given way to these."""
    page.wait_for_function(
        "docno => document.querySelector('#ours .hit')?.dataset.docno === docno", arg=docno
    )


def test_an_empty_page_proposes_queries_that_work(page, address):
    page.goto(address)
    links = page.locator(".examples a")
    links.first.wait_for()
    assert set(links.all_inner_texts()) <= set(judged.judged().queries.values())
    text = links.nth(1).inner_text()
    links.nth(1).click()
    assert docnos(page) and page.locator("#q").input_value() == text
    page.go_back()
    links.first.wait_for()
    assert page.locator("#q").input_value() == ""


def test_reasons_add_up_and_name_the_words(page, address):
    page.goto(f"{address}/?q={QUERY}")
    docnos(page)
    hit = page.locator("#ours .hit", has=page.locator(".snippet mark")).first
    hit.get_by_text("Why this result?").click()
    rows = hit.locator(".reasons li b").all_inner_texts()
    points = [float(row.replace("−", "-")) for row in rows]
    total = re.search(r"Together (-?[\d.]+) points", hit.locator(".reasons").inner_text())
    assert total and sum(points) == pytest.approx(float(total[1]), abs=0.2) and len(points) >= 2
    assert points == sorted(points, key=abs, reverse=True)
    assert "Closeness in meaning" in hit.locator(".reasons").inner_text()
    named = set(hit.locator(".reasons mark").all_inner_texts())
    assert named and named <= set(QUERY.split())


@pytest.mark.parametrize(("name", "heading"), [("dense", "Dense"), ("hybrid", "Hybrid")])
def test_other_rankings_can_be_beside(page, address, name, heading):
    page.goto(f"{address}/?q={QUERY}")
    docnos(page)
    page.get_by_label("Compare with").select_option(name)
    assert len(docnos(page, "beside")) == 10 and f"compare={name}" in page.url
    assert page.locator("#beside-name").inner_text().startswith(heading)
    assert (
        f"{heading}’s top 10" in page.locator("#ours").inner_text()
        or f"{heading} rank" in page.locator("#ours").inner_text()
    )


def test_more_like_this_from_a_result_and_from_a_document(page, address):
    page.goto(f"{address}/?q={QUERY}")
    first = docnos(page)[0]
    page.get_by_role("link", name="More like this").first.click()
    page.wait_for_selector("text=Documents like")
    rows = docnos(page)
    assert len(rows) == 10 and first not in rows and page.url.endswith(f"like={first}")
    assert "in likeness" in page.locator(".bar").first.get_attribute("aria-label")
    assert page.locator("#ours-name").is_visible() and page.locator("#q").input_value() == ""
    page.locator("h3 a").first.click()
    page.wait_for_selector("#reader-text")
    assert page.url.endswith(f"like={first}&doc={rows[0]}")
    page.get_by_role("link", name="More like this").click()
    page.wait_for_url(f"**/?like={rows[0]}")
    page.wait_for_function("docno => document.title.startsWith(`Like ${docno}`)", arg=rows[0])
    page.go_back()
    page.wait_for_selector("#reader-text")
    page.go_back()
    begins_with(page, rows[0])
    assert docnos(page) == rows
    page.locator("#q").fill(QUERY)
    page.wait_for_url("**/?q=*")
    begins_with(page, first)
