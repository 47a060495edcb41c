"""What reaches the disk is whole or is not there, and what was there before is never lost."""

import errno
import json
import os
from pathlib import Path

import pytest

from gr2 import store
from gr2.store import atomic_file, atomic_folder, sha256, verify, write_json, write_manifest, write_text

CONTENT = {"a.txt": b"alpha\n", "sub/b.bin": bytes(range(256)), ".hidden": b"h"}


def fill(folder, content=CONTENT):
    for name, data in content.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def tree(folder):
    """Every file below a folder and what it holds; also the empty folders."""
    found = {}
    for path in sorted(folder.rglob("*")):
        found[str(path.relative_to(folder))] = path.read_bytes() if path.is_file() else None
    return found


@pytest.fixture
def written(tmp_path):
    """A folder that we wrote."""
    with atomic_folder(tmp_path / "out") as temporary:
        fill(temporary)
    return tmp_path / "out"


def no_space(*_args, **_kwargs):
    raise OSError(errno.ENOSPC, "No space left on device")


# --- one file


def test_a_file_appears_with_its_content_and_readable_by_all(tmp_path):
    path = tmp_path / "new" / "folder" / "file.txt"
    write_text(path, "zwölf\n")
    assert path.read_bytes() == "zwölf\n".encode()
    assert path.stat().st_mode & 0o777 == 0o644
    assert tree(tmp_path).keys() == {"new", "new/folder", "new/folder/file.txt"}


def test_an_exception_in_the_block_leaves_the_old_file_and_nothing_beside_it(tmp_path):
    path = tmp_path / "file.txt"
    write_text(path, "old")
    with pytest.raises(KeyError), atomic_file(path) as temporary:
        temporary.write_text("half of the ne")
        raise KeyError("interrupted")
    assert tree(tmp_path) == {"file.txt": b"old"}


def test_an_interrupt_leaves_no_file_where_there_was_none(tmp_path):
    with pytest.raises(KeyboardInterrupt), atomic_file(tmp_path / "file.txt") as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert tree(tmp_path) == {}


def test_the_old_file_stands_until_the_block_ends(tmp_path):
    path = tmp_path / "file.txt"
    write_text(path, "old")
    with atomic_file(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch, step):
    path = tmp_path / "file.txt"
    write_text(path, "old")
    monkeypatch.setattr(os, step, no_space)
    with pytest.raises(OSError, match="No space left"):
        write_text(path, "new")
    assert tree(tmp_path) == {"file.txt": b"old"}


def test_a_full_disk_while_writing_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file.txt"
    write_text(path, "old")
    monkeypatch.setattr(Path, "write_text", no_space)
    with pytest.raises(OSError, match="No space left"):
        write_json(path, [1, 2])
    monkeypatch.undo()
    assert tree(tmp_path) == {"file.txt": b"old"}


def test_the_same_value_gives_the_same_bytes(tmp_path):
    write_json(tmp_path / "one.json", {"b": [1, {"z": "ü", "y": None}], "a": 2.5})
    write_json(tmp_path / "two.json", {"a": 2.5, "b": [1, {"y": None, "z": "ü"}]})
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()
    assert json.loads((tmp_path / "one.json").read_text()) == {"a": 2.5, "b": [1, {"y": None, "z": "ü"}]}


def test_a_value_that_json_cannot_hold_leaves_the_old_file(tmp_path):
    write_json(tmp_path / "file.json", 1)
    with pytest.raises(TypeError):
        write_json(tmp_path / "file.json", object())
    assert tree(tmp_path) == {"file.json": b"1\n"}


# --- a folder


def test_others_may_read_what_a_library_wrote_for_its_owner_alone(tmp_path):
    with atomic_folder(tmp_path / "out") as temporary:
        (temporary / "weights").write_bytes(b"1")
        (temporary / "weights").chmod(0o600)
    assert (tmp_path / "out" / "weights").stat().st_mode & 0o777 == 0o644


def test_a_folder_appears_with_a_manifest_that_verifies(written):
    assert tree(written).keys() == {*CONTENT, "sub", "manifest.json"}
    assert written.stat().st_mode & 0o777 == 0o755
    assert tree(written.parent).keys() == {"out", *(f"out/{name}" for name in tree(written))}
    verify(written)
    manifest = json.loads((written / "manifest.json").read_text())
    assert manifest["files"].keys() == CONTENT.keys()
    assert manifest["files"]["a.txt"] == {"bytes": 6, "sha256": sha256(written / "a.txt")}


def test_the_same_files_give_the_same_manifest(tmp_path, written):
    with atomic_folder(tmp_path / "again") as temporary:
        fill(temporary, dict(reversed(CONTENT.items())))
    assert tree(tmp_path / "again") == tree(written)


def test_a_folder_that_we_wrote_is_replaced_whole(tmp_path, written):
    with atomic_folder(written) as temporary:
        fill(temporary, {"c.txt": b"only this"})
        assert tree(written).keys() == {*CONTENT, "sub", "manifest.json"}
    assert tree(tmp_path).keys() == {"out", "out/c.txt", "out/manifest.json"}
    verify(written)


def test_an_empty_folder_is_filled(tmp_path):
    (tmp_path / "out").mkdir()
    with atomic_folder(tmp_path / "out") as temporary:
        fill(temporary)
    verify(tmp_path / "out")


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_what_we_did_not_write_is_refused_and_left_alone(tmp_path, kind):
    if kind == "folder":
        fill(tmp_path / "out", {"precious.txt": b"mine"})
    else:
        fill(tmp_path, {"out": b"mine"})
    before = tree(tmp_path)
    with pytest.raises(ValueError, match=r"out: exists and was not written by gr2"):
        with atomic_folder(tmp_path / "out"):
            pytest.fail("the block is not entered")
    assert tree(tmp_path) == before


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_exception_in_the_block_leaves_the_old_folder_and_nothing_beside_it(tmp_path, written, error):
    before = tree(tmp_path)
    with pytest.raises(error), atomic_folder(written) as temporary:
        fill(temporary, {"c.txt": b"new"})
        raise error
    assert tree(tmp_path) == before


def test_an_exception_in_the_block_leaves_no_folder_where_there_was_none(tmp_path):
    with pytest.raises(RuntimeError), atomic_folder(tmp_path / "out") as temporary:
        fill(temporary)
        raise RuntimeError
    assert tree(tmp_path) == {}


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_full_disk_at_any_step_leaves_the_old_folder(tmp_path, written, monkeypatch, step, call):
    """The first, second or third flush or rename fails: the old content is there, or the new one is."""
    before, real, calls = tree(tmp_path), getattr(os, step), []

    def failing(*args):
        calls.append(args)
        return no_space() if len(calls) == call else real(*args)

    monkeypatch.setattr(os, step, failing)
    failed = False
    try:
        with atomic_folder(written) as temporary:
            fill(temporary, {"c.txt": b"new"})
    except OSError as error:
        assert error.errno == errno.ENOSPC
        failed = True
    monkeypatch.undo()
    assert failed == (len(calls) >= call)
    assert failed or call > 1, "the step was never tried"
    if failed:
        assert tree(tmp_path) == before
    verify(written)


def test_every_file_of_a_folder_is_flushed_before_the_old_one_goes(written, monkeypatch):
    flushed, real = set(), os.fsync

    def noting(handle):
        flushed.add(os.path.basename(os.readlink(f"/proc/self/fd/{handle}")).split(".json.")[0])
        real(handle)

    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("needs /proc")
    monkeypatch.setattr(os, "fsync", noting)
    with atomic_folder(written) as temporary:
        fill(temporary)
    assert flushed >= {"a.txt", "b.bin", ".hidden"}


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_cannot_be_written_to_is_refused_by_name_and_loses_nothing(tmp_path):
    (tmp_path / "locked").mkdir()
    write_text(tmp_path / "locked" / "file.txt", "old")
    (tmp_path / "locked").chmod(0o555)
    try:
        with pytest.raises(ValueError, match="no permission in .*locked"):
            write_text(tmp_path / "locked" / "file.txt", "new")
        with pytest.raises(ValueError, match="locked"), atomic_folder(tmp_path / "locked" / "out"):
            pytest.fail("the block is not entered")
    finally:
        (tmp_path / "locked").chmod(0o755)
    assert tree(tmp_path / "locked") == {"file.txt": b"old"}


def test_a_parent_that_is_a_file_is_refused_by_name(tmp_path):
    write_text(tmp_path / "file", "old")
    with pytest.raises(ValueError, match=r"below\.txt: cannot be written"):
        write_text(tmp_path / "file" / "below.txt", "new")
    with (
        pytest.raises(ValueError, match="below: cannot be written"),
        atomic_folder(tmp_path / "file" / "below"),
    ):
        pytest.fail("the block is not entered")
    assert tree(tmp_path) == {"file": b"old"}


# --- verify


@pytest.mark.parametrize("name", sorted(CONTENT))
def test_any_flipped_byte_is_caught_and_its_file_named(written, name):
    for place in {0, len(CONTENT[name]) // 2, len(CONTENT[name]) - 1}:
        flipped = bytearray(CONTENT[name])
        flipped[place] ^= 1
        (written / name).write_bytes(flipped)
        with pytest.raises(ValueError, match=name):
            verify(written)
        (written / name).write_bytes(CONTENT[name])
    verify(written)


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"\n", lambda data: b""])
def test_a_file_of_another_length_is_caught(written, change):
    (written / "a.txt").write_bytes(change(CONTENT["a.txt"]))
    with pytest.raises(ValueError, match=r"a\.txt"):
        verify(written)


def test_a_missing_file_is_caught_and_named(written):
    (written / "sub" / "b.bin").unlink()
    with pytest.raises(ValueError, match=r"b\.bin: missing"):
        verify(written)


def test_a_folder_without_manifest_is_refused(written):
    (written / "manifest.json").unlink()
    with pytest.raises(ValueError, match=r"out: has no manifest\.json"):
        verify(written)
    with pytest.raises(ValueError, match="nowhere"):
        verify(written / "nowhere")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"files": []}',
        b'{"files": {"a.txt": 1}}',
        b'{"files": {"a.txt": {}}}',
        b"\xff",
    ],
)
def test_a_broken_manifest_is_a_value_error_that_names_it(written, content):
    (written / "manifest.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"manifest\.json"):
        verify(written)


def test_a_manifest_in_a_folder_below_is_a_file_like_any_other(tmp_path):
    with atomic_folder(tmp_path / "outer") as temporary:
        fill(temporary, {"inner/data.txt": b"x"})
        write_manifest(temporary / "inner")
    verify(tmp_path / "outer")
    (tmp_path / "outer" / "inner" / store.MANIFEST).write_text("{}")
    with pytest.raises(ValueError, match="inner"):
        verify(tmp_path / "outer")
