"""Long jobs, killed at their n-th file operation and then resumed: the same bytes as without.

`tests/workflows/test_index_killed.py` kills `gr2 index` from outside, after each of its steps.
"""

import shutil
from pathlib import Path

import pytest
from helpers import tiny
from helpers.killing import Action, contents, killed_at_each

from gr2.data.wikipedia import WikipediaConfig, build, passes
from gr2.store import verify
from gr2.systems.config import GenerativeConfig
from gr2.training.fit import fit
from gr2.workflows.index import IndexJob, index

REPORT = {"report.html", "report.md", "manifest.json"}
"""Files of a model that say how long it took, or list one that does."""
MANY = 60
"""Of some thousand operations of `gr2 index`."""


def check_resumed(place: Path, most: int, job, *, but: set[str] = frozenset()) -> None:
    """Kill `job(folder)` and call it again, in many folders; `but` are files that may differ."""

    def whole(folder: Path) -> dict[str, bytes]:
        verify(folder / "out")
        return {name: content for name, content in contents(folder / "out").items() if name not in but}

    def act(inside: Path) -> Action:
        return lambda say: job(inside)

    ends = killed_at_each(place, most, lambda inside: None, act)
    expected = whole(place / "0")
    for inside, _ in ends:
        job(inside)
        assert whole(inside) == expected
        shutil.rmtree(inside)


def page(number: int, title: str, text: str) -> str:
    return (
        f"<page><title>{title}</title><ns>0</ns><id>{number}</id><revision><model>wikitext</model>"
        f"<text>{text}</text></revision></page>"
    )


@pytest.mark.parametrize("most", [12, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_collection_from_wikipedia(most, tmp_path, monkeypatch):
    pytest.importorskip("sentencex", reason="finding sentences needs the extra `wikipedia`")
    monkeypatch.setattr(passes, "PART", 3)
    names = ["Apple", "Pear", "Plum", "Tree", "Lime", "Lemon", "Fig"]
    pages = [
        page(number, name, f"The {name.lower()} is near the [[{other}]] here.")
        for number, (name, other) in enumerate(zip(names, names[1:] + names[:1], strict=True), start=1)
    ]
    dumps = []
    for number, part in enumerate((pages[:4], pages[4:])):
        dumps.append(tmp_path / f"{number}.xml")
        dumps[-1].write_text(f"<mediawiki><siteinfo></siteinfo>{''.join(part)}</mediawiki>")
    check_resumed(tmp_path, most, lambda inside: build(dumps, inside / "out", WikipediaConfig(), resume=True))


@pytest.mark.slow
def test_an_index(tmp_path):
    backbone = str(tiny.save_checkpoint(tmp_path / "checkpoint", "encoder"))
    config = GenerativeConfig(backbone=backbone)

    def job(inside: Path) -> None:
        index(IndexJob(collection=tiny.graded(), out=inside / "out", config=config, resume=True))

    check_resumed(tmp_path, MANY, job, but=REPORT)


@pytest.mark.slow
def test_a_training_with_a_checkpoint_after_every_step(tmp_path):
    backbone = tiny.save_checkpoint(tmp_path / "checkpoint", "encoder", width=36)
    data = tiny.collection(20)
    docids = tiny.titles(data, backbone)
    how = tiny.training({"schedule.steps": 3, "schedule.checkpoint_minutes": 0})

    def job(inside: Path) -> None:
        fit(data, docids, str(backbone), inside / "out", how, resume=True)

    check_resumed(tmp_path, MANY, job)
