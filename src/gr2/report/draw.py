"""Numbers → small self-contained SVG charts; colours come from the page's style sheet."""

from collections.abc import Mapping, Sequence
from html import escape
from math import ceil, floor, log10

WIDTH, HEIGHT, LEFT, BOTTOM, EDGE = 560, 240, 52, 34, 10
LEGEND = 150
"""Extra width of a chart with a legend, so that the legend covers nothing."""
Points = Sequence[tuple[float, float]]


def lines(curves: Mapping[str, Points], x: str, y: str) -> str:
    """A line chart of several curves, with a legend."""
    xs, ys = _spans([point for points in curves.values() for point in points])
    parts = [_axes(xs, ys, x, y)]
    for number, (name, points) in enumerate(curves.items()):
        path = " ".join(f"{_x(a, xs):.1f},{_y(b, ys):.1f}" for a, b in points)
        parts.append(f'<polyline class="c{number % 6}" fill="none" points="{path}"/>')
        parts.append(_legend(number, name))
    return _svg(parts, f"{y} over {x}: {', '.join(curves)}", legend=True)


def dots(groups: Mapping[str, Points], title: str) -> str:
    """A scatter plot without axes, with one colour per group."""
    xs, ys = _spans([point for points in groups.values() for point in points])
    parts = []
    for number, (name, points) in enumerate(groups.items()):
        size = 4 if number else 7  # the first group is the point of reference
        parts += [
            f'<circle class="d{number % 6}" cx="{_x(a, xs):.1f}" cy="{_y(b, ys):.1f}" r="{size}">'
            f"<title>{escape(name)}</title></circle>"
            for a, b in points
        ]
        parts.append(_legend(number, name))
    return _svg(parts, title, legend=True)


def bars(values: Sequence[tuple[str, float]], y: str) -> str:
    """A bar chart with the value above each bar."""
    ys = (0.0, max([*(value for _, value in values), 1e-9]))
    parts, step = [_axes((0.0, 1.0), ys, "", y, ticks=False)], (WIDTH - LEFT - EDGE) / max(1, len(values))
    for number, (name, value) in enumerate(values):
        left, top = LEFT + number * step, _y(value, ys)
        middle = left + step / 2
        parts.append(
            f'<rect class="b0" x="{left + step * 0.15:.1f}" y="{top:.1f}" width="{step * 0.7:.1f}" '
            f'height="{max(0.0, HEIGHT - BOTTOM - top):.1f}"/>'
            f'<text class="mid" x="{middle:.1f}" y="{top - 4:.1f}">{value:.3g}</text>'
            f'<text class="mid" x="{middle:.1f}" y="{HEIGHT - BOTTOM + 15}">{escape(name)}</text>'
        )
    return _svg(parts, f"{y}: " + ", ".join(f"{name} {value:.3g}" for name, value in values))


def _svg(parts: Sequence[str], title: str, *, legend: bool = False) -> str:
    width = WIDTH + LEGEND * legend
    return (
        f'<svg viewBox="0 0 {width} {HEIGHT}" role="img" aria-label="{escape(title, quote=True)}">'
        f"{''.join(parts)}</svg>"
    )


def _axes(xs: tuple[float, float], ys: tuple[float, float], x: str, y: str, *, ticks: bool = True) -> str:
    low, right = HEIGHT - BOTTOM, WIDTH - EDGE
    parts = [f'<path class="axis" d="M{LEFT},{EDGE}V{low}H{right}"/>']
    for value in _round(*ys):
        at = _y(value, ys)
        parts.append(f'<path class="grid" d="M{LEFT},{at:.1f}H{right}"/>')
        parts.append(f'<text class="end" x="{LEFT - 6}" y="{at + 4:.1f}">{value:g}</text>')
    marks = _round(*xs) if ticks else []
    parts += [f'<text class="mid" x="{_x(at, xs):.1f}" y="{low + 15}">{at:g}</text>' for at in marks]
    parts.append(f'<text class="mid" x="{(LEFT + right) / 2:.0f}" y="{HEIGHT - 4}">{escape(x)}</text>')
    parts.append(f'<text class="side" transform="translate(12 {low / 2:.0f}) rotate(-90)">{escape(y)}</text>')
    return "".join(parts)


def _legend(number: int, name: str) -> str:
    y = EDGE + 14 + 16 * number
    return (
        f'<circle class="d{number % 6}" cx="{WIDTH + 12}" cy="{y - 4}" r="4"/>'
        f'<text x="{WIDTH + 22}" y="{y}">{escape(name)}</text>'
    )


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
