"""Numbers → small self-contained SVG charts; colours come from the page's style sheet.

Names stand above bars, not beside them, so that a chart can be read on a phone and on paper.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from textwrap import wrap

WIDTH, HEIGHT, LEFT, BOTTOM, EDGE = 480, 230, 58, 36, 10
TEXT, THICK, GAP = 16, 9, 20
"""Height of a line of text and of a bar, and from the top of a bar to the next row."""
LONGEST = 44
"""Characters of a line of a name."""
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Bar:
    """A row of a bar chart."""

    name: str
    value: float
    text: str
    """The value as it is shown."""
    strong: bool = False
    """Whether it is the row that the others are compared with."""


@dataclass(frozen=True)
class Band:
    """A difference with the band in which it probably lies."""

    name: str
    value: float
    low: float
    high: float
    text: str
    clear: bool
    """Whether it is more than chance."""


def lines(curves: Mapping[str, Points], x: str, y: str) -> str:
    """A line chart of several curves, with a legend."""
    xs, ys = _spans([point for points in curves.values() for point in points])
    parts = [_axes(xs, ys, x, y)]
    for number, (_, points) in enumerate(curves.items()):
        path = " ".join(f"{_x(a, xs):.1f},{_y(b, ys):.1f}" for a, b in points)
        parts.append(f'<polyline class="c{number % 6}" fill="none" points="{path}"/>')
        if len(points) <= 12:
            parts += [_dot(number, a, b, 3, xs, ys) for a, b in points]
    legend, height = _legend(list(curves)) if len(curves) > 1 else ("", HEIGHT)
    return _svg([*parts, legend], f"{y} over {x}: {', '.join(curves)}", height)


def dots(groups: Mapping[str, Points], title: str) -> str:
    """A scatter plot without axes, with one colour per group."""
    xs, ys = _spans([point for points in groups.values() for point in points])
    parts = []
    for number, (name, points) in enumerate(groups.items()):
        size = 4 if number else 7  # the first group is the point of reference
        parts += [_dot(number, a, b, size, xs, ys, name) for a, b in points]
    legend, height = _legend(list(groups))
    return _svg([*parts, legend], title, height)


def bars(rows: Sequence[Bar], title: str) -> str:
    """Horizontal bars from 0, one below the other."""
    most, top = max([*(row.value for row in rows), 1e-9]), 0.0
    parts = []
    for row in rows:
        label, below = _label(top, row.name, row.text, strong=row.strong)
        length = WIDTH * max(0.0, row.value) / most
        parts += [label, _rect("track", below, WIDTH), _rect("b0" if row.strong else "b5", below, length)]
        top = below + GAP
    said = "; ".join(f"{row.name} {row.text}" for row in rows)
    return _svg(parts, f"{title}: {said}", top)


def groups(rows: Mapping[str, Sequence[float]], names: Sequence[str], title: str) -> str:
    """For each row several thin bars from 0 to 1, one per name, with a legend."""
    parts, thin, top = list[str](), THICK + 2, 0.0
    for row, values in rows.items():
        label, below = _label(top, row, "")
        parts.append(label)
        for place, value in enumerate(values):
            at, length = below + thin * place, WIDTH * min(1.0, max(0.0, value))
            parts += [_rect("track", at, WIDTH), _rect(f"b{place % 6}", at, length)]
        top = below + thin * len(values) + GAP - THICK
    legend, whole = _legend(names, top)
    return _svg([*parts, legend], title, whole)


def bands(rows: Sequence[Band], title: str) -> str:
    """Differences around 0: green above it, red below, grey if they may be chance."""
    reach = max([*(abs(end) for row in rows for end in (row.low, row.high, row.value)), 1e-9])
    middle, scale = WIDTH / 2, (WIDTH / 2 - 6) / reach
    parts, top = list[str](), 0.0
    for row in rows:
        kind = ("better" if row.value > 0 else "worse") if row.clear else "same"
        low, high, at = (middle + scale * value for value in (row.low, row.high, row.value))
        label, below = _label(top, row.name, row.text)
        y = below + THICK / 2
        parts.append(label)
        parts.append(f'<path class="band {kind}" d="M{low:.1f},{y}H{high:.1f}"/>')
        parts.append(f'<circle class="{kind}" cx="{at:.1f}" cy="{y}" r="5"/>')
        parts.append(f'<path class="zero" d="M{middle:.1f},{below - 3}V{below + THICK + 3}"/>')
        top = below + GAP
    said = "; ".join(f"{row.name} {row.text}" for row in rows)
    return _svg(parts, f"{title}: {said}", top)


def _svg(parts: Sequence[str], title: str, height: float) -> str:
    label = escape(title, quote=True)
    box = f"0 0 {WIDTH} {max(height, TEXT):.0f}"
    return f'<svg viewBox="{box}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _label(top: float, name: str, text: str, *, strong: bool = False) -> tuple[str, float]:
    """A name in one or more lines with a value on the right, and where to go on below it."""
    kind, end = (' class="strong"', "end strong") if strong else ("", "end")
    rows = wrap(name, LONGEST) or [""]
    parts = [
        f'<text{kind} x="0" y="{top + TEXT * number:.1f}">{escape(row)}</text>'
        for number, row in enumerate(rows, 1)
    ]
    parts.append(f'<text class="{end}" x="{WIDTH}" y="{top + TEXT:.1f}">{escape(text)}</text>')
    return "".join(parts), top + TEXT * len(rows) + 6


def _rect(kind: str, top: float, length: float) -> str:
    return f'<rect class="{kind}" x="0" y="{top:.1f}" width="{length:.1f}" height="{THICK}" rx="2"/>'


def _dot(
    number: int,
    a: float,
    b: float,
    size: int,
    xs: tuple[float, float],
    ys: tuple[float, float],
    name: str = "",
) -> str:
    title = f"<title>{escape(name)}</title>" if name else ""
    place = f'cx="{_x(a, xs):.1f}" cy="{_y(b, ys):.1f}" r="{size}"'
    return f'<circle class="d{number % 6}" {place}>{title}</circle>'


def _axes(xs: tuple[float, float], ys: tuple[float, float], x: str, y: str) -> str:
    low, right = HEIGHT - BOTTOM, WIDTH - EDGE
    parts = [f'<path class="axis" d="M{LEFT},{EDGE}V{low}H{right}"/>']
    for value in _round(*ys):
        at = _y(value, ys)
        parts.append(f'<path class="grid" d="M{LEFT},{at:.1f}H{right}"/>')
        parts.append(f'<text class="end" x="{LEFT - 6}" y="{at + 4:.1f}">{value:g}</text>')
    parts += [f'<text class="mid" x="{_x(at, xs):.1f}" y="{low + 15}">{at:g}</text>' for at in _round(*xs)]
    parts.append(f'<text class="mid" x="{(LEFT + right) / 2:.0f}" y="{HEIGHT - 4}">{escape(x)}</text>')
    parts.append(f'<text class="mid" transform="translate(12 {low / 2:.0f}) rotate(-90)">{escape(y)}</text>')
    return "".join(parts)


def _legend(names: Sequence[str], top: float = HEIGHT) -> tuple[str, float]:
    """Names with their colours below a chart in two columns, and the height of it all."""
    parts = []
    for number, name in enumerate(names):
        x, y = (WIDTH / 2) * (number % 2), top + 18 + 20 * (number // 2)
        parts.append(f'<circle class="d{number % 6}" cx="{x + 8:.0f}" cy="{y - 4:.0f}" r="5"/>')
        parts.append(f'<text x="{x + 20:.0f}" y="{y:.0f}">{escape(name)}</text>')
    return "".join(parts), top + 8 + 20 * ceil(len(names) / 2)


def _spans(points: Points) -> tuple[tuple[float, float], tuple[float, float]]:
    if not points:
        return (0.0, 1.0), (0.0, 1.0)
    found = []
    for axis in zip(*points, strict=True):
        low, high = min(axis), max(axis)
        found.append((low, high) if high > low else (low - 0.5, low + 0.5))
    return found[0], found[1]


def _round(low: float, high: float, about: int = 4) -> list[float]:
    """A few round numbers between `low` and `high`, for axis ticks.

    >>> _round(0.0, 1.0)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    rough = (high - low) / about
    power = 10.0 ** floor(log10(rough))
    step = min((factor * power for factor in (1, 2, 5, 10)), key=lambda size: abs(size - rough))
    first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def _x(value: float, span: tuple[float, float]) -> float:
    return LEFT + (value - span[0]) / (span[1] - span[0]) * (WIDTH - LEFT - EDGE)


def _y(value: float, span: tuple[float, float]) -> float:
    return HEIGHT - BOTTOM - (value - span[0]) / (span[1] - span[0]) * (HEIGHT - BOTTOM - EDGE)
