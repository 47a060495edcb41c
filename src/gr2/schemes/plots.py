"""Plots of docid health reports and of the radius trade-off; the same numbers give the same bytes.

Needs the extra `plots`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gr2.extras import extra
from gr2.schemes.fusion.radius import AtRadius
from gr2.schemes.health import KINDS, Health
from gr2.store import atomic_file

FORMATS = ("png", "svg")


def check_drawable(path: Path) -> None:
    """Reject an unsupported file type or a missing matplotlib before anything is computed."""
    if path.suffix.lower().lstrip(".") not in FORMATS:
        raise ValueError(f"{path}: expected a name that ends in .png or .svg")
    require_matplotlib()


def draw_healths(healths: Mapping[str, Health], path: Path) -> None:
    """Plot lengths, uniqueness, entropy and clashes of several schemes in one .png or .svg file."""
    check_drawable(path)
    figure = require_matplotlib().figure.Figure(figsize=(10, 7), layout="constrained")
    panels = figure.subplots(2, 2).ravel()
    for number, report in enumerate(healths.values()):
        _draw(panels, report, f"C{number}", number, len(healths))
    titles = ("length", "uniqueness", "code balance (dashed: maximum)", "clash resolution")
    across = ("tokens", "prefix length in tokens", "position", "")
    up = ("share of docids", "share of unique docids", "entropy in bits", "share of documents")
    for axes, title, x, y in zip(panels, titles, across, up, strict=True):
        axes.set(title=title, xlabel=x, ylabel=y)
        axes.set_ylim(bottom=0)
        axes.xaxis.get_major_locator().set_params(integer=True)  # tokens are whole numbers
    panels[3].set_xticks(range(len(KINDS)), [kind.replace(" or ", "\nor ") for kind in KINDS])
    figure.legend(panels[0].get_lines(), list(healths), loc="outside lower center", ncols=4)
    save_figure(figure, path)


def draw_radii(rows: Sequence[AtRadius], path: Path) -> None:
    """Plot relevance and distinctness against the radius, as a .png or .svg file."""
    check_drawable(path)
    figure = require_matplotlib().figure.Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    radii = [row.radius for row in rows]
    lines = {
        "relevance: MRR with BM25": [row.found for row in rows],
        "relevance: MRR in the latent space": [row.near for row in rows],
        "distinctness: unique docids": [row.unique for row in rows],
        "distinctness: mean distance": [row.distance for row in rows],
    }
    for name, values in lines.items():
        axes.plot(radii, values, marker="o", label=name, linestyle="-" if "relevance" in name else "--")
    axes.set(xlabel="radius |r|", ylim=(0, 1.05))
    axes.legend()
    save_figure(figure, path)


def _draw(panels: Any, health: Health, colour: str, number: int, of: int) -> None:
    """Draw one scheme into the four panels."""
    counts, look = health.lengths.counts, {"color": colour, "marker": "."}
    lengths = range(max(0, health.lengths.least - 1), health.lengths.most + 2)
    shares = [counts.get(length, 0) / health.documents for length in lengths]
    panels[0].plot(lengths, shares, drawstyle="steps-mid", **look)
    panels[1].plot([row.depth for row in health.depths], [row.unique for row in health.depths], **look)
    places = [row.place for row in health.places]
    panels[2].plot(places, [row.entropy for row in health.places], **look)
    panels[2].plot(places, [row.maximum for row in health.places], color=colour, linestyle="--", alpha=0.5)
    width, total = 0.8 / of, max(1, sum(health.clashes.values()))
    left = [place - 0.4 + (number + 0.5) * width for place in range(len(KINDS))]
    panels[3].bar(left, [health.clashes[kind] / total for kind in KINDS], width, color=colour)


def save_figure(figure: Any, path: Path) -> None:
    """Save with a fixed hash salt and no date, so that the file depends on the numbers only."""
    kind = path.suffix.lower().lstrip(".")
    with require_matplotlib().rc_context({"svg.hashsalt": "gr2"}), atomic_file(path) as temporary:
        figure.savefig(temporary, format=kind, dpi=110, metadata={"Date": None} if kind == "svg" else None)


def require_matplotlib() -> Any:
    """The library, or an error that names the extra to install."""
    with extra("plots", "drawing needs matplotlib"):
        import matplotlib
        import matplotlib.figure
    return matplotlib
