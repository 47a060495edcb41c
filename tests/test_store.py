"""What reaches the disk is whole or is not there, and what was there before is never lost."""

import errno
import json
import os
import sqlite3
import threading
import time
from pathlib import Path

import pytest
from safetensors import SafetensorError

from gr2 import store
from gr2.store import (
    AlreadyWriting,
    atomic_file,
    atomic_folder,
    sha256,
    steady,
    verify,
    write_json,
    write_manifest,
    write_text,
    writer_lock,
    writing,
)

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


@pytest.fixture(params=["exchanged at once", "renamed in two steps"])
def exchanging(request, monkeypatch):
    """Both ways to replace a folder: where the system can exchange two names, and where it cannot."""
    if request.param != "exchanged at once":
        monkeypatch.setattr(writing, "exchange", lambda one, two: False)


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
@pytest.mark.parametrize("call", range(1, 8))
def test_a_full_disk_at_any_step_leaves_the_old_folder_or_the_new_one(
    tmp_path, written, monkeypatch, exchanging, step, call
):
    """A flush or rename fails, in turn each of them: nothing is left beside, and nothing is half done."""
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
        assert error.errno == errno.ENOSPC and str(written) in str(error)
        failed = True
    monkeypatch.undo()
    assert failed == (len(calls) >= call)
    assert failed or call > 1, "the step was never tried"
    new = tree(tmp_path).keys() == {"out", "out/c.txt", "out/manifest.json"}
    if not failed or (step == "fsync" and new):  # the last flush follows the exchange
        assert new
    else:
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


# --- one writer at a time, and what a killed one leaves


def test_a_second_writer_is_refused_and_the_first_one_finishes(tmp_path, written):
    with atomic_folder(written) as temporary:
        fill(temporary, {"c.txt": b"first"})
        with pytest.raises(AlreadyWriting, match=r"out: another process is writing it"):
            with atomic_folder(written):
                pytest.fail("the block is not entered")
    assert tree(tmp_path).keys() == {"out", "out/c.txt", "out/manifest.json"}
    with atomic_folder(written) as temporary:
        fill(temporary, {"d.txt": b"second"})
    assert tree(tmp_path).keys() == {"out", "out/d.txt", "out/manifest.json"}


def test_of_many_writers_one_at_a_time_enters(tmp_path):
    """Threads have their own descriptors, so the lock holds between them as between processes."""
    inside, entered, refused = [], [], []

    def write(number):
        for _ in range(40):
            try:
                with writer_lock(tmp_path / "out") as hidden:
                    inside.append(number)
                    (hidden / "new").mkdir()
                    entered.append(len(inside))
                    (hidden / "new" / "file").write_text(str(number))
                    inside.remove(number)
            except AlreadyWriting:
                refused.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(entered) + len(refused) == 240 and set(entered) == {1}
    assert tree(tmp_path) == {}


def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path, written):
    fill(tmp_path / ".out.writing", {"lock": b"", "new/half.txt": b"ha"})
    verify(written)
    with atomic_folder(written) as temporary:
        assert tree(temporary) == {}
        fill(temporary, {"c.txt": b"new"})
    assert tree(tmp_path).keys() == {"out", "out/c.txt", "out/manifest.json"}


@pytest.mark.parametrize("start", ["reader", "writer"])
def test_a_folder_that_a_killed_writer_had_moved_away_is_brought_back(tmp_path, written, start):
    """Killed between two renames, where names cannot be exchanged: there was no folder at all."""
    before = tree(written)
    fill(tmp_path / ".out.writing", {"lock": b"", "new/c.txt": b"new"})
    written.rename(tmp_path / ".out.writing" / "old")
    if start == "reader":
        verify(written)
    else:
        with pytest.raises(RuntimeError), atomic_folder(written):
            raise RuntimeError
    assert tree(written) == before
    assert not (tmp_path / ".out.writing").exists()


def test_a_reader_waits_for_a_live_writer_that_has_moved_the_folder_away(tmp_path, written):
    moved, seen = threading.Event(), []

    def read():
        moved.wait()
        verify(written)
        seen.append(written.exists())

    reader = threading.Thread(target=read)
    reader.start()
    with writer_lock(written) as hidden:
        written.rename(hidden / "old")
        moved.set()
        reader.join(0.2)
        assert not seen, "the reader must wait"
    reader.join(10)
    assert seen == [True]


def test_names_are_exchanged_in_one_step(tmp_path):
    for name in "ab":
        fill(tmp_path / name, {"file": name.encode()})
    if not writing.exchange(tmp_path / "a", tmp_path / "b"):
        pytest.skip("this disk cannot exchange names")
    assert (tmp_path / "a" / "file").read_bytes() == b"b" and (tmp_path / "b" / "file").read_bytes() == b"a"
    with pytest.raises(FileNotFoundError, match="nowhere"):
        writing.exchange(tmp_path / "a", tmp_path / "nowhere")


@pytest.mark.parametrize("number", writing.UNSUPPORTED)
def test_a_disk_that_cannot_exchange_names_is_no_error(tmp_path, written, monkeypatch, number):
    class Library:
        renameat2 = staticmethod(lambda *_arguments: -1)

    monkeypatch.setattr(writing.ctypes, "CDLL", lambda *_arguments, **_options: Library)
    monkeypatch.setattr(writing.ctypes, "get_errno", lambda: number)
    with atomic_folder(written) as temporary:
        fill(temporary, {"c.txt": b"new"})
    assert tree(tmp_path).keys() == {"out", "out/c.txt", "out/manifest.json"}


def test_a_reader_never_mixes_two_versions(tmp_path, exchanging):
    """A writer replaces a folder without pause; both files that a reader sees are of the same version."""
    out, done, seen = tmp_path / "out", threading.Event(), set()

    def write(number):
        with atomic_folder(out) as temporary:
            fill(temporary, {"one": b"%d" % number, "two": b"%d" % number})

    def keep_writing():
        for number in range(1, 40):
            write(number)
        done.set()

    def read(folder):
        verify(folder)
        one = (folder / "one").read_bytes()
        time.sleep(0.0005)
        return one, (folder / "two").read_bytes()

    write(0)
    writer = threading.Thread(target=keep_writing)
    writer.start()
    while not done.is_set():
        try:
            seen.add(steady(out, read))
        except ValueError as error:
            assert "was replaced by a writer 10 times" in str(error)
    writer.join()
    seen.add(steady(out, read))
    assert all(one == two for one, two in seen) and len(seen) > 1


def test_an_error_of_a_reader_is_raised_once_if_nothing_was_replaced(written):
    tries = []

    def read(folder):
        tries.append(folder)
        raise KeyError("missing")

    with pytest.raises(KeyError):
        steady(written, read)
    assert tries == [written]


@pytest.mark.parametrize(
    "error",
    [
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
        OSError("1000000 requested and 51168 written"),
        sqlite3.OperationalError("database or disk is full"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
    ],
)
def test_a_full_disk_is_one_clear_error_whichever_library_notices_it(tmp_path, error):
    for writer in (atomic_folder, atomic_file):
        with (
            pytest.raises(OSError, match=r"No space left on the disk.*/out'") as found,
            writer(tmp_path / "out"),
        ):
            raise error
        assert found.value.errno == errno.ENOSPC and found.value.__cause__ is error
    with pytest.raises(ValueError, match="disk is full"), atomic_file(tmp_path / "out"):
        raise ValueError("a title about a disk is full of words")


def test_the_folder_above_is_flushed_after_the_rename(written, monkeypatch):
    """Or a power failure could bring the old name back, or none."""
    order = []
    real_flush, real_replace = os.fsync, os.replace

    def flushing(handle):
        order.append(os.readlink(f"/proc/self/fd/{handle}"))
        real_flush(handle)

    def replacing(source, target):
        real_replace(source, target)
        order.append("replace")

    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("needs /proc")
    monkeypatch.setattr(os, "fsync", flushing)
    monkeypatch.setattr(os, "replace", replacing)
    write_text(written.parent / "file", "x")
    assert order[-2:] == ["replace", str(written.parent)]
    with atomic_folder(written.parent / "second") as temporary:
        fill(temporary)
        folders = {str(temporary), str(temporary / "sub")}
    assert order[-2:] == ["replace", str(written.parent)]
    assert folders <= set(order)


# --- verify


@pytest.mark.parametrize("name", ["added.txt", "sub/added.json", "new/deep.txt"])
def test_a_file_that_was_added_is_refused_by_name(written, name):
    fill(written, {name: b"{}"})
    with pytest.raises(ValueError, match=rf"{name}: was added after the folder was written"):
        verify(written)


def test_a_link_to_a_folder_that_was_added_is_refused(tmp_path, written):
    (tmp_path / "elsewhere").mkdir()
    (written / "look_ahead").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="look_ahead: was added"):
        verify(written)


def test_hidden_files_are_ignored_but_never_lost(written):
    fill(written, {".git/config": b"", "sub/.DS_Store": b""})
    verify(written)
    with pytest.raises(ValueError, match=r"config: was not written by gr2 and would be lost"):
        with atomic_folder(written):
            pytest.fail("the block is not entered")


def test_an_emptied_manifest_is_no_way_around_a_file_that_is_needed(tmp_path):
    with atomic_folder(tmp_path / "out"):
        pass
    verify(tmp_path / "out")
    with pytest.raises(ValueError, match=r"manifest\.json: changed .* does not list config\.json"):
        verify(tmp_path / "out", "config.json")


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
