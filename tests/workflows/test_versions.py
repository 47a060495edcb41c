"""Versions of a model folder: at every moment there is a whole model, and earlier ones come back."""

import json
import os
import sys
from pathlib import Path

import pytest
from helpers.killing import killed_at_each

from gr2.store import MANIFEST, atomic_folder, verify, write_json, writing
from gr2.workflows import versions as module
from gr2.workflows.versions import published, rollback, versions

BIG = bytes(range(256)) * 40


def write_model(folder: Path, name: str) -> None:
    """The files of a model that matter here."""
    write_json(folder / "config.json", {"provenance": {"look_ahead": {"chosen": name}}})


def chosen(folder: Path) -> str:
    return json.loads((folder / "config.json").read_text())["provenance"]["look_ahead"]["chosen"]


def publish(folder: Path, name: str, **options: int) -> None:
    with published(folder, **options) as temporary:
        write_model(temporary, name)


def names(folder: Path) -> dict[int, str]:
    """The versions by number; each of them is whole."""
    found = versions(folder)
    for version in found:
        verify(version.folder)
    assert [version.current for version in found] == [False] * (len(found) - 1) + [True]
    assert found[-1].folder == folder
    return {version.number: version.learned for version in found}


@pytest.fixture
def model(tmp_path):
    """A folder with one model."""
    with atomic_folder(tmp_path / "model") as temporary:
        (temporary / "weights").write_bytes(BIG)
        write_model(temporary, "a")
    return tmp_path / "model"


def test_a_publication_keeps_the_model_that_was_there(model):
    assert names(model) == {1: "a"}
    publish(model, "b")
    publish(model, "c")
    assert names(model) == {1: "a", 2: "b", 3: "c"}


def test_unchanged_files_share_their_place_on_the_disk_and_changed_ones_do_not(model):
    publish(model, "b")
    earlier, present = (version.folder for version in versions(model))
    assert (earlier / "weights").samefile(present / "weights")
    assert not (earlier / "config.json").samefile(present / "config.json")


def test_files_are_copied_where_the_disk_has_no_hard_links(model, monkeypatch):
    def refused(*arguments):
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", refused)
    publish(model, "b")
    assert names(model) == {1: "a", 2: "b"}
    earlier, present = (version.folder for version in versions(model))
    assert not (earlier / "weights").samefile(present / "weights")


def test_only_the_last_versions_are_kept_and_numbers_are_never_used_again(model):
    for name in "bcdefgh":
        publish(model, name, keep=3)
    assert names(model) == {5: "e", 6: "f", 7: "g", 8: "h"}
    assert {path.name for path in module.Workspace(model).versions.iterdir()} == {
        ".lock",
        "0005",
        "0006",
        "0007",
    }


def test_a_rollback_brings_the_one_before_back_and_another_one_undoes_it(model):
    publish(model, "b")
    assert rollback(model).learned == "a"
    assert names(model) == {1: "a", 2: "b", 3: "a"}
    assert rollback(model).number == 4
    assert names(model) == {1: "a", 2: "b", 3: "a", 4: "b"}


def test_a_rollback_to_a_number_takes_that_version_even_if_it_is_then_forgotten(model):
    for name in "bcdef":
        publish(model, name)
    assert rollback(model, 1).learned == "a"
    assert names(model) == {2: "b", 3: "c", 4: "d", 5: "e", 6: "f", 7: "a"}


def test_a_failed_change_leaves_the_model_and_its_versions_alone(model):
    publish(model, "b")
    with pytest.raises(KeyError), published(model) as temporary:
        write_model(temporary, "c")
        raise KeyError
    assert names(model) == {1: "a", 2: "b"}


def test_a_model_can_be_published_elsewhere(model, tmp_path):
    with published(tmp_path / "other", model) as temporary:
        write_model(temporary, "b")
    assert names(tmp_path / "other") == {1: "b"}
    assert names(model) == {1: "a"}
    assert (tmp_path / "other" / "weights").read_bytes() == BIG


def test_errors_name_what_is_missing_or_damaged(model, tmp_path):
    with pytest.raises(ValueError, match="no earlier version is kept"):
        rollback(model)
    with pytest.raises(ValueError, match="nothing: expected a model folder"):
        versions(tmp_path / "nothing")
    publish(model, "b")
    with pytest.raises(ValueError, match="there is no earlier version 7; the versions kept are 1"):
        rollback(model, 7)
    config = versions(model)[0].folder / "config.json"
    config.write_text(config.read_text().replace('"a"', '"x"'))
    with pytest.raises(ValueError, match=r"0001/config\.json: changed since it was written"):
        rollback(model)
    assert chosen(model) == "b"
    verify(model)


def test_folders_are_replaced_where_the_disk_cannot_exchange_them(model, monkeypatch):
    monkeypatch.setattr(writing, "exchange", lambda one, two: False)
    publish(model, "b")
    assert names(model) == {1: "a", 2: "b"}


def test_a_rollback_brings_back_a_model_that_such_a_disk_lost(model):
    """There, a process killed between two renames leaves no model in the folder, but its version."""
    publish(model, "b")
    with module._alone(model):
        module._keep_present(model)
    os.rename(model, model.with_name("lost"))
    assert rollback(model).learned == "b"
    assert names(model) == {1: "a", 2: "b"}


# --- killed


@pytest.mark.parametrize("most", [20, pytest.param(100_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("action", "new"), [(lambda folder: publish(folder, "c", keep=1), "c"), (lambda f: rollback(f, 1), "a")]
)
def test_a_process_killed_at_any_file_operation_leaves_the_old_model_or_the_new_one(
    tmp_path, action, new, most
):
    if not writing.exchange(tmp_path, tmp_path):
        pytest.skip("this file system cannot exchange folders")

    def prepare(inside: Path) -> None:
        with atomic_folder(inside / "model") as temporary:
            (temporary / "weights").write_bytes(b"weights")
            write_model(temporary, "a")
        publish(inside / "model", "b")

    seen = set()
    for inside, _ in killed_at_each(
        tmp_path, most, prepare, lambda inside: lambda say: action(inside / "model")
    ):
        folder = inside / "model"
        verify(folder)
        assert (folder / "weights").read_bytes() == b"weights"
        found = names(folder)
        seen.add(found[max(found)])
        assert set(found.values()) >= {"b"} and list(found) == sorted(found)
        publish(folder, "d", keep=9)  # the next publication works, and removes what the killed one left
        assert "b" in names(folder).values() and chosen(folder) == "d"
        assert all(
            p.name == ".lock" or p.name.isdecimal() for p in module.Workspace(folder).versions.iterdir()
        )
    assert seen == {"b", new}
    assert chosen(tmp_path / "0" / "model") == new


def test_two_publications_at_once_both_leave_their_version(model):
    children = []
    for name in "bc":
        child = os.fork()
        if child == 0:
            try:
                publish(model, name)
            finally:
                os._exit(1 if sys.exc_info()[0] else 0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    found = names(model)
    assert list(found) == [1, 2, 3] and found[1] == "a" and {found[2], found[3]} == {"b", "c"}


def test_a_folder_that_was_killed_after_keeping_its_model_counts_it_once(model):
    with module._alone(model):
        module._keep_present(model)
    assert names(model) == {1: "a"}
    publish(model, "b")
    assert names(model) == {1: "a", 2: "b"}
    assert (model / MANIFEST).is_file()
