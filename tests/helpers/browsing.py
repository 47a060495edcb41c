"""Pages in a real browser (Debian's chromium), which fail their test if anything goes wrong in them."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WAIT = 60_000  # milliseconds: a busy machine must not fail a test
CONTRAST = """selector => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (c) => c.slice(0, 3).map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  return [...document.querySelectorAll(selector)].filter((e) => e.offsetParent).map((e) => {
    let ground = e;
    const clear = () => (rgb(getComputedStyle(ground).backgroundColor)[3] ?? 1) === 0;
    while (ground && clear()) ground = ground.parentElement;
    const a = light(rgb(getComputedStyle(e).color));
    const b = light(rgb(getComputedStyle(ground ?? document.body).backgroundColor));
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  });
}"""


@contextmanager
def opened(browser: Any) -> Iterator[Any]:
    """A page that raises if a script fails, anything is blocked, or another host is contacted."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    page, wrong, hosts = context.new_page(), [], set()
    page.set_default_timeout(WAIT)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda line: wrong.append(line.text) if "Content Security" in line.text else None)
    page.on("request", lambda request: hosts.add(re.sub(r"^(\w+://[^:/]*).*", r"\1", request.url)))
    yield page
    context.close()
    assert not wrong
    assert all(host == "http://127.0.0.1" or host.startswith("data:") for host in hosts), hosts


def contrasts(page: Any, selector: str) -> list[float]:
    """The contrast of text and ground of every visible element."""
    return page.evaluate(CONTRAST, selector)
