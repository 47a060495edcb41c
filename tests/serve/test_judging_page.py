"""The page of judging in a real browser: by keyboard, by two judges at once, and with Learn and rollback."""

import pytest
from helpers import browsing, judged, served

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
pytest.importorskip("playwright", reason="playwright is not installed")
if browsing.CHROMIUM is None:
    pytest.skip("no chromium: apt install chromium", allow_module_level=True)

from gr2.judge.judgements import Judgement
from gr2.judge.store import JudgementStore

FIRST, SECOND = "baka beke", "duku dako"
LEARNING = 300_000  # milliseconds


@pytest.fixture
def start(untaught, tmp_path):
    """A function: options → the address of a server that is judged, and its store."""
    (tmp_path / "log.tsv").write_text(f"{SECOND}\t2\n{FIRST}\t5\n")
    with served.servers(untaught) as start:

        def run(*options, folder=None, port=0):
            own = ("--judge", tmp_path / "judged", "--queries", tmp_path / "log.tsv")
            return start(*own, *options, folder=folder, port=port)[1]

        yield run


@pytest.fixture
def address(start):
    return start()


def kept(tmp_path):
    found = JudgementStore(tmp_path / "judged").current().values()
    return {(each.query, each.docno, each.judge): each.grade for each in found}


def docnos(page):
    page.wait_for_selector("#documents .hit")
    return page.eval_on_selector_all("#documents .hit", "hits => hits.map(hit => hit.dataset.docno)")


def shows(page, selector, text, timeout=browsing.WAIT):
    page.wait_for_function(
        "([selector, text]) => document.querySelector(selector)?.innerText.includes(text)",
        arg=[selector, text],
        timeout=timeout,
    )


def focused(page):
    return page.evaluate("document.activeElement.closest('.hit')?.dataset.docno ?? document.activeElement.id")


def pressed(page, docno):
    return page.locator(f"[data-docno={docno}] .grades [aria-pressed=true]").all_inner_texts()


def test_ten_documents_are_judged_by_keyboard(page, address, tmp_path):
    page.goto(f"{address}/judge?judge=ann")
    rows = docnos(page)
    assert len(rows) >= 10 and page.locator("#query").inner_text() == FIRST
    assert "Query 1 of 2 · 0 of" in page.locator("#place").inner_text()
    grades = [3, 0, 4, 1, 2, 0, 4, 3, 1, 2]
    for docno, grade in zip(rows, grades, strict=False):
        assert focused(page) == docno
        page.keyboard.press(str(grade))
    shows(page, "#place", f"10 of {len(rows)} judged · 10 in all")
    shows(page, "#status", "Saved: 2 for ")
    assert page.locator("#status").get_attribute("role") == "status"
    assert kept(tmp_path) == {(FIRST, docno, "ann"): g for docno, g in zip(rows, grades, strict=False)}
    assert pressed(page, rows[0]) == ["3"] and pressed(page, rows[9]) == ["2"]
    page.reload()
    assert docnos(page) == rows and pressed(page, rows[2]) == ["4"]
    assert focused(page) == (rows[10] if len(rows) > 10 else rows[0])


def test_the_keyboard_moves_opens_undoes_and_goes_on(page, address, tmp_path):
    page.goto(f"{address}/judge?judge=ann")
    rows = docnos(page)
    for key, place in (("j", 1), ("ArrowDown", 2), ("k", 1), ("ArrowUp", 0), ("k", 0)):
        page.keyboard.press(key)
        assert focused(page) == rows[place], key
    page.keyboard.press("Enter")
    shows(page, ".full", " ")
    page.keyboard.press("Enter")
    page.keyboard.press("9")
    page.keyboard.press("4")
    page.keyboard.press("1")
    shows(page, "#place", "2 of")
    page.keyboard.press("u")
    shows(page, "#status", "Undone: 1 for ")
    assert focused(page) == rows[1] and pressed(page, rows[1]) == [] and pressed(page, rows[0]) == ["4"]
    shows(page, "#place", "1 of")
    assert kept(tmp_path) == {(FIRST, rows[0], "ann"): 4}
    page.keyboard.press("n")
    shows(page, "#query", SECOND)
    page.wait_for_selector("body:not(.busy)")
    page.keyboard.press("u")  # what is undone is on the query before
    shows(page, "#query", FIRST)
    shows(page, "#status", "Undone: 4 for ")
    page.wait_for_function(
        "docno => document.activeElement.closest('.hit')?.dataset.docno === docno", arg=rows[0]
    )
    page.keyboard.press("u")
    shows(page, "#status", "no judgement to undo")
    assert kept(tmp_path) == {}


def test_the_mouse_does_it_too_and_grades_have_their_words(page, start, tmp_path):
    address = start("--words", "no", "related", "good")
    page.goto(f"{address}/judge?judge=ann")
    rows = docnos(page)
    group = page.get_by_role("group").first
    assert group.get_by_role("button").all_inner_texts() == ["0 no", "1 related", "2 good"]
    assert group.get_attribute("aria-label").startswith("Grade of ")
    group.get_by_role("button", name="good").click()
    shows(page, "#status", "Saved: 2 good for ")
    assert focused(page) == rows[1]
    group.get_by_role("button", name="related").click()
    shows(page, "#status", "Saved: 1 related for ")
    page.get_by_role("button", name="Undo").click()
    shows(page, "#status", "Undone: 1 related for ")
    assert pressed(page, rows[0]) == ["2 good"], "the grade before counts again"
    assert kept(tmp_path) == {(FIRST, rows[0], "ann"): 2}


def test_the_name_is_asked_once_and_a_typed_query_is_judged(page, address, tmp_path):
    page.goto(f"{address}/judge")
    page.get_by_label("Your name").fill(" ann ")
    page.keyboard.press("Enter")
    docnos(page)
    page.goto(f"{address}/judge")
    docnos(page)
    assert page.locator("#who").inner_text().startswith("Judging as ann")
    page.keyboard.press("/")
    page.keyboard.type("dika  dike")
    page.keyboard.press("Enter")
    shows(page, "#query", "dika dike")
    shows(page, "#place", "A query of your own · 0 of")
    page.keyboard.press("2")
    shows(page, "#place", "Query 3 of 3 · 1 of")
    assert [(query, judge) for query, _, judge in kept(tmp_path)] == [("dika dike", "ann")]
    page.locator("#all summary").click()
    assert page.locator("#queries button").all_inner_texts() == [FIRST, SECOND, "dika dike\n1"]
    page.locator("#queries button").nth(1).click()
    shows(page, "#query", SECOND)
    assert "q=duku+dako" in page.url


def test_the_service_may_propose_the_name(page, start):
    page.goto(f"{start('--judge-as', 'dana')}/judge")
    docnos(page)
    assert "dana" in page.locator("#who").inner_text()


def test_two_judges_at_once_do_not_disturb_each_other(browser, address, tmp_path):
    with browsing.opened(browser) as ann, browsing.opened(browser) as bob:
        pages = {"ann": (ann, [4, 3, 2, 1, 0]), "bob": (bob, [0, 0, 1, 1, 2])}
        for name, (page, _) in pages.items():
            page.goto(f"{address}/judge?judge={name}")
            rows = docnos(page)
        for place in range(5):
            for page, grades in pages.values():
                assert focused(page) == rows[place] and pressed(page, rows[place]) == []
                page.keyboard.press(str(grades[place]))
        for page, _ in pages.values():
            shows(page, "#place", "5 of")
        ann.keyboard.press("u")
        shows(ann, "#place", "4 of")
        expected = {
            (FIRST, rows[place], name): grade
            for name, (_, grades) in pages.items()
            for place, grade in enumerate(grades)
        }
        del expected[FIRST, rows[4], "ann"]
        assert kept(tmp_path) == expected


def test_learn_changes_the_ranking_and_a_button_brings_the_old_one_back(page, start, model, tmp_path):
    address, given = start(folder=model), judged.judged()
    store = JudgementStore(tmp_path / "judged")
    for qid, row in given.qrels.items():
        store.append([Judgement(given.queries[qid], docno, grade, "ann") for docno, grade in row.items()])
    query = given.queries["q0"]

    def ranking():
        page.goto(f"{address}/?q={query}")
        page.wait_for_selector("#ours .hit")
        return page.eval_on_selector_all("#ours .hit", "hits => hits.map(hit => hit.dataset.docno)")

    before = ranking()
    page.get_by_role("link", name="Judge results").click()
    page.get_by_label("Your name").fill("ann")
    page.keyboard.press("Enter")
    docnos(page)
    page.get_by_role("button", name="Learn", exact=True).click()
    shows(page, "#learned", "Learning: ")
    assert page.get_by_role("button", name="Learn", exact=True).is_disabled()
    shows(page, "#learned", "Learned from 30 judged queries in ", timeout=LEARNING)
    shows(page, "#versions", "Version 2, in use")
    assert "learned from 30 queries · nDCG@20 +" in page.locator("#versions").inner_text()
    after = ranking()
    relevant = set(given.qrels["q0"])
    assert after != before and set(after[:6]) == relevant != set(before[:6])
    page.goto(f"{address}/judge")
    page.get_by_role("button", name="Back to version 1").click()
    shows(page, "#learned", "Version 1 is in use again, as version 3.")
    assert page.locator("#versions li").count() == 3
    assert ranking() == before


def test_a_grade_that_is_not_saved_is_shown_and_saved_again(page, address, tmp_path):
    page.goto(f"{address}/judge?judge=ann")
    rows = docnos(page)
    page.route("**/judgements", lambda route: route.abort())
    page.keyboard.press("3")
    page.keyboard.press("1")
    shows(page, "#unsaved", "2 grades are not saved. The server is not responding.")
    assert page.locator("#unsaved").get_attribute("role") == "alert"
    assert pressed(page, rows[0]) == [] and kept(tmp_path) == {}
    page.unroute("**/judgements")
    page.get_by_role("button", name="Save again").click()
    shows(page, "#place", "2 of")
    assert not page.locator("#unsaved").is_visible()
    assert kept(tmp_path) == {(FIRST, rows[0], "ann"): 3, (FIRST, rows[1], "ann"): 1}


def test_the_api_key_is_asked_for(page, start, tmp_path):
    (tmp_path / "key").write_text("secret")
    page.goto(f"{start('--api-key-file', tmp_path / 'key')}/judge?judge=ann")
    page.get_by_label("API key").fill("secret")
    page.keyboard.press("Enter")
    docnos(page)
    page.keyboard.press("2")
    shows(page, "#status", "Saved: 2 for ")


TEXTS = ["h1", "h2", "h3", ".snippet", ".meta span", "#place", "#who", ".grades button", ".solid", ".quiet"]
TEXTS += ["#versions div", ".note", "footer p", "kbd", "mark", "[aria-pressed=true]"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_have_enough_contrast(page, address, scheme):
    page.emulate_media(color_scheme=scheme)
    page.goto(f"{address}/judge?judge=ann")
    docnos(page)
    page.keyboard.press("3")
    shows(page, "#versions", "Version 1")
    shows(page, "#status", "Saved")
    page.wait_for_selector(".hit:not(.saving) [aria-pressed=true]")
    for selector in TEXTS:
        found = browsing.contrasts(page, selector)
        assert found and min(found) >= 4.5, (selector, found)


def test_a_phone_has_no_overflow_and_large_buttons(page, address):
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(f"{address}/judge?judge=ann")
    docnos(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    heights = page.eval_on_selector_all(".grades button", "all => all.map(e => e.offsetHeight)")
    assert min(heights) >= 40


def test_all_controls_have_accessible_names_and_a_visible_focus(page, address):
    page.goto(f"{address}/judge?judge=ann")
    docnos(page)
    nameless = page.evaluate(
        """[...document.querySelectorAll("input, select, button, a")]
        .filter((e) => !(e.labels?.length || e.ariaLabel || e.textContent.trim())).map((e) => e.outerHTML)"""
    )
    assert not nameless
    names = page.eval_on_selector_all(".grades", "all => all.map(e => e.ariaLabel)")
    assert len(set(names)) > 1 and page.locator("h1").count() == 1
    for _ in range(8):
        page.keyboard.press("Tab")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    ground = "hit => getComputedStyle(hit).borderTopColor"
    page.locator(".hit h3 button").first.focus()
    assert page.locator(".hit").first.evaluate(ground) != page.locator(".hit").nth(1).evaluate(ground)
