"""Every writer, killed at its n-th file operation: what was there before or what is new, and nothing between.

The large form kills at each operation, the small one at some of them; `helpers.killing` says what is counted.
"""

import shutil
from pathlib import Path

import pytest
import torch
from helpers import folders, judged
from helpers.killing import Action, contents, killed_at_each

from gr2.judge.judgements import Judgement
from gr2.judge.store import CONFIG, JudgeConfig, JudgementStore
from gr2.model.gr2 import GR2
from gr2.store import extended_folder, verify, write_text, writing
from gr2.training import checkpoints, selection
from gr2.training.candidates import Candidate
from gr2.workflows.learn import learn
from gr2.workflows.versions import versions

FOLDERS = ("model", "docids", "codes", "trie", "look-ahead", "quantised", "bm25", "words", "backbone")
OTHERS = ("collection", "exported judgements", "exported vectors", "documents", "run")
FEW, ALL = 10, 100_000
how_many = pytest.mark.parametrize("most", [FEW, pytest.param(ALL, marks=pytest.mark.slow)])


@pytest.fixture
def kind(made, request):
    """A kind of folder or file that is written by itself."""
    look_ahead = made["look-ahead"].load(made["look-ahead"].folder)
    return (made | folders.other_outputs(look_ahead))[request.param]


# --- what replaces a folder or a file


@how_many
@pytest.mark.parametrize("kind", FOLDERS + OTHERS, indirect=True)
def test_a_killed_writer_leaves_the_old_or_the_new_and_the_next_one_finishes(kind, most, tmp_path):
    check_writer(kind, most, tmp_path)


@how_many
@pytest.mark.parametrize("kind", ["docids", "trie"], indirect=True)
def test_the_same_where_the_disk_cannot_exchange_names(kind, most, tmp_path, monkeypatch):
    """Between two renames there is no folder; the next reader brings it back."""
    monkeypatch.setattr(writing, "exchange", lambda one, two: False)
    check_writer(kind, most, tmp_path)


def check_writer(kind: folders.Kind, most: int, place: Path) -> None:
    name, seen, wholes = kind.folder.name, set(), []
    for version in (0, 1):
        kind.write(place / f"whole-{version}" / name, version)
        wholes.append(contents(place / f"whole-{version}" / name))
    old, new = wholes
    assert old != new
    ends = killed_at_each(
        place,
        most,
        lambda inside: copied(place / "whole-0" / name, inside / name),
        lambda inside: lambda say: kind.write(inside / name, 1),
    )
    for inside, _ in ends:
        kind.load(inside / name)
        left = contents(inside / name)
        assert left in (old, new)
        seen.add(left == new)
        kind.write(inside / name, 1)
        kind.load(inside / name)
        assert contents(inside / name) == new
        beside = {path.name for path in inside.iterdir()} - {name}
        if (inside / name).is_dir():
            assert not beside, "what a killed writer left is removed by the next one"
        else:  # a file's writers have no lock, so that of a living one must not be removed
            assert all(each.startswith(f".{name}.") for each in beside)
        shutil.rmtree(inside)
    assert seen == {False, True}


def copied(source: Path, target: Path) -> None:
    (shutil.copytree if source.is_dir() else shutil.copy)(source, target)


@how_many
@pytest.mark.parametrize("kind", ["model"], indirect=True)
def test_a_report_is_added_to_a_model_or_it_is_not(kind, most, tmp_path):
    def add(inside: Path) -> Action:
        def action(say) -> None:
            with extended_folder(inside / "model") as temporary:
                write_text(temporary / "report.html", "<p>good</p>")

        return action

    before = contents(kind.folder)
    for inside, _ in killed_at_each(
        tmp_path, most, lambda inside: copied(kind.folder, inside / "model"), add
    ):
        verify(inside / "model")
        left = contents(inside / "model")
        assert left.pop("report.html", b"<p>good</p>") == b"<p>good</p>"
        assert {**left, "manifest.json": b""} == {**before, "manifest.json": b""}
        shutil.rmtree(inside)


# --- judgements


def kept(folder: Path) -> set[str]:
    return {judgement.docno for judgement in JudgementStore(folder).current().values()}


@how_many
def test_every_judgement_that_was_acknowledged_is_there(most, tmp_path):
    """Killed while judging one at a time and several at once; the first call makes the folder."""

    def judge(inside: Path) -> Action:
        def action(say) -> None:
            store = JudgementStore(inside / "judged", JudgeConfig(grades=2))
            for docnos in (["a"], ["b", "c", "d"], ["e"]):
                store.append([Judgement("sour fruit", docno, 1, "ann") for docno in docnos])
                say(" ".join(docnos))

        return action

    seen = set()
    for inside, said in killed_at_each(tmp_path, most, lambda inside: None, judge):
        acknowledged = set(" ".join(said).split())
        store = JudgementStore(inside / "judged", JudgeConfig(grades=2))  # makes it, if it was never made
        assert acknowledged <= kept(inside / "judged") <= set("abcde")
        store.append([Judgement("sour fruit", "f", 1, "ann")])
        assert kept(inside / "judged") >= acknowledged | {"f"}
        seen.add(len(acknowledged))
    assert len(seen) > 1


@how_many
def test_an_undone_judgement_stays_undone(most, tmp_path):
    def prepare(inside: Path) -> None:
        store = JudgementStore(inside / "judged", JudgeConfig(grades=2))
        store.append([Judgement("sour fruit", docno, 1, "ann") for docno in "ab"])

    def undo(inside: Path) -> Action:
        return lambda say: say(JudgementStore(inside / "judged").undo("ann").docno)

    for inside, said in killed_at_each(tmp_path, most, prepare, undo):
        assert kept(inside / "judged") in ([{"a"}] if said else [{"a"}, {"a", "b"}])
        JudgementStore(inside / "judged").append([Judgement("sour fruit", "c", 1, "ann")])
        assert (inside / "judged" / CONFIG).is_file()


# --- checkpoints


@how_many
def test_a_killed_save_leaves_a_whole_checkpoint_and_training_goes_on(made, most, tmp_path):
    network = torch.nn.Linear(3, 2)
    network.device, network.weights = torch.device("cpu"), network.state_dict
    network.load = network.load_state_dict
    settings = {"steps": 9}

    def save(folder: Path, step: int) -> None:
        optimiser = torch.optim.AdamW(network.parameters())
        state = checkpoints.State(step=step, mean={"a": torch.full((2,), float(step))})
        checkpoints.log(folder, step, {"loss": 1.0})
        checkpoints.save(folder, network, optimiser, state, settings)

    def prepare(inside: Path) -> None:
        (inside / "run").mkdir()
        save(inside / "run", 3)

    def save_next(inside: Path) -> Action:
        return lambda say: save(inside / "run", 6)

    seen = set()
    for inside, _ in killed_at_each(tmp_path, most, prepare, save_next):
        folder = inside / "run"
        state = checkpoints.restore(folder, network, torch.optim.AdamW(network.parameters()), settings)
        assert state.mean["a"].tolist() == [state.step, state.step]
        checkpoints.forget_after(folder, state.step)  # as a resumed run does, with what the killed one logged
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        assert [line.startswith('{"step": 3') for line in lines] == [True, False][: len(lines)]
        save(folder, 9)
        assert {path.name for path in folder.iterdir()} == {"checkpoint-00000009", "metrics.jsonl"}
        seen.add(state.step)
    assert seen == {3, 6}


# --- learning, whose publication `tests/workflows/test_versions.py` kills at every operation


@pytest.fixture(scope="module")
def untaught(bert, tmp_path_factory):
    """A model that has learned nothing."""
    return judged.train_model(tmp_path_factory.mktemp("untaught") / "model", bert)


@how_many
def test_a_killed_gr2_learn_leaves_the_old_model_or_the_new_one(untaught, most, tmp_path, monkeypatch):
    monkeypatch.setattr(selection, "candidates", lambda *_, **__: [Candidate(), Candidate(memory=1.0)])
    given = judged.judged()

    def teach(inside: Path) -> Action:
        return lambda say: learn(inside / "model", given, inside / "model")

    old, seen = contents(untaught), set()
    few = most if most > FEW else 3  # each of them learns
    for inside, _ in killed_at_each(tmp_path, few, lambda inside: copied(untaught, inside / "model"), teach):
        model = GR2.from_pretrained(inside / "model")
        is_new = model.judged is not None and len(model.judged.qrels) == 30
        assert is_new or contents(inside / "model") == old
        found = versions(inside / "model")
        assert found[-1].current and (len(found) == 2 if is_new else len(found) == 1)
        for version in found:
            verify(version.folder)
        seen.add(is_new)
    assert seen == {False, True}
