"""Curves with bands, a panel for each collection, as a picture; the same numbers give the same bytes.

Needs the extra `plots`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from gr2.schemes.plots import check_drawable, require_matplotlib, save_figure

Band = tuple[float, float, float, float]
"""A place on the x-axis, a value, and the two ends of its band."""


def draw_curves(panels: Mapping[str, Mapping[str, Sequence[Band]]], path: Path, x: str, y: str) -> None:
    """Plot curves with their bands, in one panel for each title."""
    check_drawable(path)
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = require_matplotlib().figure.Figure(figsize=(4 * columns, 3 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, (title, curves) in zip(grid, panels.items(), strict=False):
        for name, points in curves.items():
            places, values, low, high = zip(*points, strict=True)
            axes.plot(places, values, marker=".", label=name)
            axes.fill_between(places, low, high, alpha=0.15)
        axes.set(title=title, xlabel=x, ylabel=y)
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    save_figure(figure, path)
