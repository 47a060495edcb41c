"""The search page in a real browser (playwright with Debian's chromium)."""

import math
import re
from urllib.parse import quote

import pytest
from helpers import served
from helpers.browsing import CHROMIUM, contrasts

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
if CHROMIUM is None:
    pytest.skip("no chromium: apt install chromium", allow_module_level=True)

QUERY = "baka beke"


BESIDE = f"{QUERY}&compare=bm25"


@pytest.fixture(scope="module")
def address(served_folder):
    """One server for all tests that leave it running."""
    with served.servers(served_folder) as start:
        yield start()[1]


def docnos(page, section: str = "ours") -> list[str]:
    page.wait_for_selector(f"#{section} .hit")
    return page.eval_on_selector_all(f"#{section} .hit", "hits => hits.map(hit => hit.dataset.docno)")


def wait_for(page, text: str) -> None:
    page.wait_for_function("text => document.body.innerText.includes(text)", arg=text)


def focused(page) -> str:
    return page.evaluate("document.activeElement.closest('.hit')?.dataset.docno ?? document.activeElement.id")


def test_typing_searches_and_results_are_complete(page, address, served_model):
    page.goto(address)
    page.locator("#q").press_sequentially(QUERY, delay=20)
    expected = served_model.search(QUERY, 10)
    assert docnos(page) == [result.docno for result in expected]
    first = page.locator("#ours .hit").first
    assert expected[0].docno in first.inner_text()
    assert first.locator(".bar i").count() == 4
    assert {word.strip() for word in page.locator("#ours mark").all_inner_texts()} == {"baka", "beke"}
    assert "<b>more</b>" in first.inner_text() and page.locator(".snippet b").count() == 0
    assert not page.locator("#beside").is_visible(), "nothing is compared unless asked for"
    status = page.locator("#status").inner_text()
    times = re.fullmatch(r"10 results · ([\d.,]+) ms on the server · ([\d.,]+) ms round trip", status)
    assert times and float(times[1].replace(",", "")) <= float(times[2].replace(",", ""))


def test_bars_fall_with_the_score_and_say_so_on_focus(page, address, served_model):
    page.goto(f"{address}/?q=baka")
    docnos(page)
    fills = page.eval_on_selector_all(
        "#ours .bar",
        "bars => bars.map(bar => [...bar.querySelectorAll('i')].reduce("
        "(sum, i) => sum + parseFloat(i.style.getPropertyValue('--fill')), 0))",
    )
    assert fills[0] == 400 and fills == sorted(fills, reverse=True) and fills[-1] < 400
    scores = [result.score for result in served_model.search("baka", 10)]
    expected = [max(15, 400 - 100 * (scores[0] - score) / math.log(3)) for score in scores]
    assert fills == pytest.approx(expected, abs=0.1)
    last = page.locator("#ours .bar").last
    assert not last.locator(".tip").is_visible()
    last.focus()
    assert last.locator(".tip").is_visible()
    said = last.locator(".tip").inner_text()
    times = math.exp(scores[0] - scores[-1])
    assert f"{times:.{1 if times < 10 else 0}f} times less likely than the first" in said.replace(",", "")
    assert last.get_attribute("aria-label") == said
    assert "the most likely answer" in page.locator("#ours .bar").first.get_attribute("aria-label")


def test_the_docid_is_behind_why_this_result(page, address, served_model):
    page.goto(f"{address}/?q={QUERY}")
    docnos(page)
    first, expected = page.locator("#ours .hit").first, served_model.search(QUERY, 1)[0]
    assert first.locator(".path").count() == 0
    first.get_by_text("Why this result?").click()
    share = 100 * math.exp(expected.score)
    assert f"{share:.{2 if share < 1 else 1}f} %" in first.locator(".reasons").inner_text()
    assert not first.locator(".path").is_visible()
    first.get_by_text("Its identifier").click()
    shown = first.locator(".path").inner_text()
    assert all(word in shown for word in expected.docid.split())
    assert first.locator(".path b").count() >= 1
    first.get_by_text("Why this result?").click()
    first.get_by_text("Why this result?").click()
    assert first.locator(".reasons").count() == 1


def test_a_ranking_beside_is_chosen_and_kept_in_the_address(page, address):
    page.goto(f"{address}/?q={QUERY}")
    docnos(page)
    assert page.locator("#compare option").all_inner_texts() == ["nothing", "BM25 (words)"]
    page.get_by_label("Compare with").select_option("bm25")
    assert len(docnos(page, "beside")) == 10
    assert "BM25 rank " in page.locator("#ours").inner_text() and "compare=bm25" in page.url
    page.reload()
    assert len(docnos(page, "beside")) == 10 and page.locator("#compare").input_value() == "bm25"
    page.locator("#compare").select_option("")
    page.wait_for_url("**/?q=baka+beke")
    page.wait_for_selector("#beside", state="hidden")


def test_a_document_has_its_own_address_and_going_back_finds_the_place(page, address):
    page.set_viewport_size({"width": 800, "height": 500})
    page.goto(f"{address}/?q={QUERY}")
    rows = docnos(page)
    page.locator("h3 a").nth(7).scroll_into_view_if_needed()
    before = page.evaluate("scrollY")
    assert before > 0
    page.locator("h3 a").nth(7).click()
    page.wait_for_selector("#reader-text:has-text('<b>more</b>')")
    assert page.url.endswith(f"doc={rows[7]}") and focused(page) == "reader-title"
    assert page.evaluate("scrollY") == 0 and not page.locator("#main").is_visible()
    assert page.locator("#reader-meta a").get_attribute("href") == f"https://example.org/{rows[7]}"
    assert page.locator("#reader-text b").count() == 0
    own = page.url
    searches = []
    page.on("request", lambda request: searches.append(request.url) if "/search" in request.url else None)
    page.get_by_role("button", name="Back to results").click()
    page.wait_for_selector("#main")
    assert docnos(page) == rows and focused(page) == rows[7] and not searches
    assert page.evaluate("scrollY") == before and "10 results" in page.locator("#status").inner_text()
    page.goto(own)
    page.wait_for_selector("#reader-text:has-text('<b>more</b>')")
    page.keyboard.press("Escape")
    assert docnos(page) == rows and "doc=" not in page.url
    page.goto(f"{address}/?doc=nobody")
    wait_for(page, "Not found")
    assert "unknown document" in page.locator("#notice").inner_text()


def test_an_odd_docno_can_be_opened(page, address):
    page.goto(f"{address}/?doc={quote(served.ODD, safe='')}")
    wait_for(page, "not a document of the model")
    page.locator("#close").click()
    wait_for(page, "What are you looking for?")


def test_the_keyboard_reaches_everything(page, address):
    page.goto(f"{address}/?q={BESIDE}")
    rows, beside = docnos(page), docnos(page, "beside")
    page.keyboard.press("Tab")
    page.locator("h3 a").nth(3).focus()
    page.keyboard.press("/")
    assert focused(page) == "q" and page.locator("#q").input_value() == QUERY
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert focused(page) == rows[1]
    page.keyboard.press("Enter")
    page.wait_for_selector("#reader-text:has-text('<b>more</b>')")
    page.keyboard.press("Escape")
    page.wait_for_selector("#ours .hit")
    assert focused(page) == rows[1]
    page.keyboard.press("ArrowRight")
    assert focused(page) == beside[1] and page.locator("#beside .hit.twin").count() == 1
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    assert focused(page) == "q"
    page.keyboard.press("Escape")
    wait_for(page, "What are you looking for?")
    assert page.url == f"{address}/?compare=bm25"


def test_links_and_the_back_button_restore_searches(page, address):
    page.goto(f"{address}/?q=duku+duke&field=docno&has=d1")
    first = docnos(page)
    assert page.locator("#q").input_value() == "duku duke" and all(docno[:2] == "d1" for docno in first)
    assert page.locator("#has").is_visible() and "among 10 documents" in page.locator("#status").inner_text()
    page.locator("#has").fill("")
    page.locator("#q").fill(QUERY)
    page.keyboard.press("Enter")
    page.wait_for_url("**/?q=baka+beke")
    page.wait_for_function(
        "docno => document.querySelector('#ours .hit').dataset.docno !== docno", arg=first[0]
    )
    assert page.title().startswith(QUERY)
    page.go_back()
    page.wait_for_function(
        "docno => document.querySelector('#ours .hit').dataset.docno === docno", arg=first[0]
    )
    assert page.locator("#q").input_value() == "duku duke"


def test_no_results_are_reported(page, address):
    page.goto(f"{address}/?q={QUERY}&field=title&has=xyzzy")
    wait_for(page, "No results")
    assert "No document matches the filter" in page.locator("#notice").inner_text()
    assert not page.locator("#main").is_visible()
    page.locator("#has").fill("")
    assert len(docnos(page)) == 10 and not page.locator("#notice").is_visible()


def test_a_lost_server_is_reported_and_its_return_noticed(page, server):
    process, address = server()
    page.goto(f"{address}/?q=duku")
    docnos(page)
    process.kill()
    process.wait()
    page.locator("#q").fill(QUERY)
    wait_for(page, "The server is not responding")
    assert page.locator("#notice").get_attribute("role") == "alert"
    assert (
        page.locator("#q").input_value() == QUERY
        and page.get_by_role("button", name="Try again").is_visible()
    )
    server(port=int(address.rsplit(":", 1)[1]))
    page.wait_for_selector("#ours .hit")
    assert not page.locator("#notice").is_visible()


def test_a_busy_server_is_retried(page, address):
    turned_away = []

    def refuse(route):
        turned_away.append(1)
        if len(turned_away) > 1:
            route.continue_()
        else:
            route.fulfill(status=503, headers={"retry-after": "1"}, json={"detail": "too many"})

    page.route("**/search", refuse)
    page.goto(f"{address}/?q={QUERY}")
    wait_for(page, "The server is busy")
    assert len(docnos(page)) == 10 and len(turned_away) == 2


def test_slow_answers_are_awaited_and_outdated_ones_discarded(page, address):
    held = []
    page.route("**/search", lambda route: held.append(route) if not held else route.continue_())
    page.goto(f"{address}/?q=duku")
    wait_for(page, "Still searching")
    assert "busy" in page.locator("body").get_attribute("class")
    page.locator("#q").fill(QUERY)
    rows = docnos(page)
    try:
        held[0].fulfill(json={"answers": [{"query": "duku", "results": [], "bm25": None}], "milliseconds": 1})
    except sync_api.Error:
        pass  # the page has already aborted it, as it should
    page.wait_for_timeout(200)
    assert docnos(page) == rows and "busy" not in (page.locator("body").get_attribute("class") or "")


def test_invalid_searches_are_reported(page, address):
    page.goto(address)
    page.locator("#q").evaluate("box => { box.removeAttribute('maxlength'); box.value = 'a'.repeat(2001); }")
    page.keyboard.press("Enter")
    wait_for(page, "Search failed")
    assert "2,001 characters" in page.locator("#notice").inner_text()


def test_the_api_key_is_asked_for_once(page, server, tmp_path):
    (tmp_path / "key").write_text("secret")
    _, address = server("--api-key-file", tmp_path / "key")
    page.goto(f"{address}/?q={QUERY}")
    for key in ("wrong", "secret"):
        wait_for(page, "API key required")
        page.get_by_label("API key").fill(key)
        with page.expect_response("**/search"):  # the answer to a wrong key asks again, in a new form
            page.keyboard.press("Enter")
        page.wait_for_function("() => !document.body.classList.contains('busy')")
    assert len(docnos(page)) == 10
    page.locator("#q").fill("duku")
    page.wait_for_url("**/?q=duku")
    page.wait_for_function("() => !document.body.classList.contains('busy')")
    page.locator("h3 a").first.click()
    page.wait_for_selector("#reader-text:has-text('more')")


TEXTS = [
    "h2",
    "h3",
    ".snippet",
    "mark",
    ".path b",
    ".path span",
    "sub",
    ".reasons p",
    ".tip",
    "label",
    ".meta span",
    "#status",
    ".solid",
    "summary",
    "#facts",
]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_have_enough_contrast(page, address, scheme):
    page.emulate_media(color_scheme=scheme)
    page.goto(f"{address}/?q={BESIDE}")
    docnos(page)
    page.wait_for_function("() => !document.body.classList.contains('busy')")
    page.locator(".why summary").first.click()
    page.get_by_text("Its identifier").click()
    page.locator(".bar").first.focus()
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ground)[:3])) < 150) == (scheme == "dark")
    for selector in TEXTS:
        found = contrasts(page, selector)
        assert found and min(found) >= 4.5, (selector, found)


def test_a_phone_shows_one_ranking_at_a_time_without_overflow(page, address):
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(f"{address}/?q={BESIDE}")
    docnos(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    ours, beside = page.locator("#ours"), page.locator("#beside")
    assert ours.is_visible() and not beside.is_visible()
    page.get_by_role("button", name="BM25").click()
    assert beside.is_visible() and not ours.is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    heights = page.eval_on_selector_all(".switch button, .solid", "all => all.map(e => e.offsetHeight)")
    assert min(heights) >= 32
    page.get_by_role("button", name="GR²").click()
    page.locator(".bar").first.focus()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_all_controls_have_accessible_names(page, address):
    page.goto(f"{address}/?q={QUERY}")
    docnos(page)
    nameless = page.evaluate(
        """[...document.querySelectorAll("input, select, button, a")]
        .filter((e) => !(e.labels?.length || e.ariaLabel || e.textContent.trim())).map((e) => e.outerHTML)"""
    )
    assert not nameless
    levels = page.eval_on_selector_all("h1, h2, h3", "all => all.map(e => e.tagName)")
    assert levels[0] == "H1" and levels.count("H1") == 1 and set(levels) == {"H1", "H2", "H3"}
    assert page.locator("html").get_attribute("lang") == "en"
    assert page.get_by_role("search").count() == page.get_by_role("status").count() == 1
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    for _ in range(8):
        page.keyboard.press("Tab")
        assert page.evaluate(outline) != "none", page.evaluate("document.activeElement.outerHTML")
