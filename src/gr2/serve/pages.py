"""The files of `page/` → whole pages that load nothing: style and script are put into the HTML.

`{{base.css search.css}}` in an HTML file stands for these files, one after the other.
"""

import base64
import hashlib
import re
from pathlib import Path

FOLDER = Path(__file__).with_name("page")
PARTS = re.compile(r"\{\{([a-z. ]+)\}\}")


def page(name: str) -> str:
    """A page by the name of its HTML file."""
    html = (FOLDER / name).read_text(encoding="utf-8")

    def parts(found: re.Match[str]) -> str:
        return "".join((FOLDER / part).read_text(encoding="utf-8") for part in found[1].split())

    return PARTS.sub(parts, html)


def content_policy(page: str) -> str:
    """The Content-Security-Policy: only the page's own style and script, and requests to its own server."""

    def allowed(tag: str) -> str:
        blocks = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digests = [base64.b64encode(hashlib.sha256(block.encode()).digest()).decode() for block in blocks]
        return " ".join(f"'sha256-{digest}'" for digest in digests)

    parts = ["default-src 'none'", f"style-src {allowed('style')}", f"script-src {allowed('script')}"]
    parts += ["connect-src 'self'", "img-src data:", "base-uri 'none'", "form-action 'self'"]
    return "; ".join([*parts, "frame-ancestors 'none'"])
