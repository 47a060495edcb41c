"""Pictures of curves: every panel and curve is there, and the same numbers give the same bytes."""

import pytest

from gr2.experiments.plots import draw_curves

CURVES = {"random": [(0.0, 0.4, 0.4, 0.4), (10.0, 0.5, 0.45, 0.55)], "other": [(0.0, 0.4, 0.4, 0.4)]}


@pytest.mark.parametrize("count", [1, 3, 4])
def test_a_picture_has_a_panel_for_each_title_and_the_names_of_its_curves(tmp_path, count):
    pytest.importorskip("matplotlib")
    panels = {f"collection {number}": CURVES for number in range(count)}
    for name in ("one.svg", "two.svg"):
        draw_curves(panels, tmp_path / name, "judged queries", "nDCG@20")
    picture = (tmp_path / "one.svg").read_text(encoding="utf-8")
    assert picture == (tmp_path / "two.svg").read_text(encoding="utf-8")
    for text in (*panels, "random", "other", "judged queries", "nDCG@20"):
        assert f"<!-- {text} -->" in picture
    assert f"<!-- collection {count} -->" not in picture


def test_a_file_of_another_kind_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"ends in \.png or \.svg"):
        draw_curves({"a": CURVES}, tmp_path / "one.txt", "x", "y")
