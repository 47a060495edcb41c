"""axe-core, run in a page: what a screen reader or a keyboard could not use.

axe-core is not part of the project. `npm install axe-core` puts it into node_modules, where it is found; or
the environment variable AXE names its axe.min.js.
"""

import os
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PLACES = (os.environ.get("AXE", ""), str(ROOT / "node_modules/axe-core/axe.min.js"))
AXE = next((Path(place) for place in PLACES if place and Path(place).is_file()), None)
MISSING = "axe-core is not there: npm install axe-core, or AXE=/path/to/axe.min.js"
SCREENS = {
    "light": ({"width": 1280, "height": 900}, "light"),
    "dark": ({"width": 1280, "height": 900}, "dark"),
    "phone": ({"width": 360, "height": 740}, "light"),
    "dark phone": ({"width": 360, "height": 740}, "dark"),
}
RUN = """() => axe.run().then((found) => found.violations.map(
  (rule) => `${rule.impact}: ${rule.id}: ${rule.nodes[0].html.slice(0, 200)}`))"""


def violations(page: Any) -> list[str]:
    """Everything that axe-core finds in a page, the worst with their rule and their first element."""
    assert AXE is not None
    page.evaluate(AXE.read_text(encoding="utf-8"))  # not as a script tag, which the page's policy would block
    return page.evaluate(RUN)


def on_screen(page: Any, name: str) -> None:
    """Give a page the size and colours of one of `SCREENS`."""
    size, scheme = SCREENS[name]
    page.set_viewport_size(size)
    page.emulate_media(color_scheme=scheme)
