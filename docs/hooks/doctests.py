"""Docstrings → the same with their doctests as code blocks, so that the API reference shows them as code.

Used by mkdocs.yml: an extension of griffe, which reads the sources. Google style knows examples only below a
heading `Examples:`; ours stand without one.
"""

from typing import Any

import griffe


def fenced(text: str) -> str:
    r"""Put every doctest, which ends at an empty line, between fences.

    >>> fenced(">>> 1 + 1\n2").splitlines()
    ['```pycon', '>>> 1 + 1', '2', '```']
    """
    lines: list[str] = []
    inside = False
    for line in [*text.split("\n"), ""]:
        if not inside and line.startswith(">>> "):
            lines.append("```pycon")
            inside = True
        elif inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line)
    return "\n".join(lines[:-1])


class Doctests(griffe.Extension):
    """Changes the docstring of every object that griffe reads."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Put the doctests of an object between fences."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
