"""Every page of the service as axe-core sees it, in light, dark and small; skipped without axe-core."""

import pytest
from helpers import accessibility, browsing, judged, served

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
pytest.importorskip("playwright", reason="playwright is not installed")
if browsing.CHROMIUM is None:
    pytest.skip("no chromium: apt install chromium", allow_module_level=True)
if accessibility.AXE is None:
    pytest.skip(accessibility.MISSING, allow_module_level=True)

QUERY = f"{judged.WRITTEN[0]} {judged.OTHERS[3]}"
PAGES = {
    "empty": ("/", ".examples a"),
    "results": (f"/?q={QUERY}", "#ours .hit"),
    "two rankings": (f"/?q={QUERY}&compare=bm25", "#beside .hit >> nth=0"),
    "document": (f"/?q={QUERY}&doc=d05", "#reader-title"),
    "similar": ("/?like=d05", "#ours .hit"),
    "no results": (f"/?q={QUERY}&field=title&has=xyzzy", "text=No results"),
    "unknown document": ("/?doc=nobody", "text=Not found"),
    "judging": ("/judge?judge=ann", "#documents .hit"),
}


@pytest.fixture(scope="module")
def address(taught, tmp_path_factory):
    place = tmp_path_factory.mktemp("judging")
    (place / "log.tsv").write_text(f"{QUERY}\t2\n")
    with served.servers(taught) as start:
        yield start("--judge", place / "judged", "--queries", place / "log.tsv")[1]


@pytest.mark.parametrize("screen", accessibility.SCREENS)
def test_no_page_shuts_anyone_out(page, address, screen):
    accessibility.on_screen(page, screen)
    found = {}
    for name, (path, sign) in PAGES.items():
        page.goto(address + path)
        page.wait_for_selector(sign, state="attached")
        page.wait_for_selector("body:not(.busy)")
        if name == "results":
            page.locator(".why summary").first.click()
            page.get_by_text("Its identifier").click()
            page.locator(".bar").first.focus()
        found[name] = accessibility.violations(page)
    assert found == dict.fromkeys(PAGES, [])
