"""Every file of every kind of folder, changed in every way: the folder is refused, and the file is named.

The large form flips every byte of every file up to `EVERY` bytes, and `SOME` of any larger one.
"""

import json
import random
import shutil
from pathlib import Path

import pytest
from helpers import folders

from gr2.model.gr2 import GR2
from gr2.store import MANIFEST, atomic_folder, steady, write_manifest

PARTS = ("docids", "codes", "trie", "look-ahead", "quantised", "bm25", "words")
WHOLE = ("model", "version", "backbone", "generator", "checkpoint", "judgements")
KINDS = PARTS + WHOLE
FEW, SOME, EVERY = 3, 300, 4096
LOG = "judgements.jsonl"


def test_every_kind_is_here(made):
    assert set(KINDS) == set(made)


@pytest.fixture
def kind(made, request, tmp_path):
    """A copy of a folder, to be changed."""
    whole = made[request.param]
    shutil.copytree(whole.folder, tmp_path / "run" / whole.folder.name)
    return folders.Kind(tmp_path / "run" / whole.folder.name, whole.load)


def files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file()]


def refused(kind: folders.Kind, path: Path) -> None:
    """Loading is a ValueError that names the file, or the manifest that no longer fits it."""
    with pytest.raises(ValueError) as error:
        kind.load(kind.folder)
    named = {str(path), str(kind.folder / MANIFEST), str(path.parent / MANIFEST)}
    if path.name == MANIFEST or not path.exists():  # which may be what tells the kind of the folder
        named |= {str(kind.folder), str(path.parent)}
    assert any(name in str(error.value) for name in named), error.value


def flip(path: Path, places: list[int], kind: folders.Kind, draw: random.Random) -> None:
    content = path.read_bytes()
    for place in places:
        changed = bytearray(content)
        changed[place] ^= 1 << draw.randrange(8)
        path.write_bytes(changed)
        refused(kind, path)
    path.write_bytes(content)


def some_places(size: int, most: int, draw: random.Random) -> list[int]:
    return sorted({0, size - 1, *draw.sample(range(size), min(most, size))} - {-1})


@pytest.mark.parametrize("kind", KINDS, indirect=True)
def test_a_flipped_bit_is_refused_by_name(kind):
    draw = random.Random(0)
    kind.load(kind.folder)
    for path in files(kind.folder):
        flip(path, some_places(path.stat().st_size, FEW, draw), kind, draw)
    kind.load(kind.folder)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, indirect=True)
def test_every_flipped_byte_is_refused_by_name(kind):
    draw = random.Random(1)
    for path in files(kind.folder):
        size = path.stat().st_size
        flip(path, list(range(size)) if size <= EVERY else some_places(size, SOME, draw), kind, draw)


@pytest.mark.parametrize("kind", KINDS, indirect=True)
def test_a_truncated_or_missing_file_is_refused_by_name(kind):
    """A log may end anywhere: of an incomplete last line, nobody was told that it was kept."""
    for path in files(kind.folder):
        content = path.read_bytes()
        for length in {0, len(content) // 2, len(content.rstrip()) - 1} if path.name != LOG else ():
            path.write_bytes(content[:length])
            refused(kind, path)
        path.unlink()
        refused(kind, path)
        path.write_bytes(content)
    kind.load(kind.folder)


@pytest.mark.parametrize("kind", [name for name in KINDS if name != "judgements"], indirect=True)
@pytest.mark.parametrize(
    "name", ["added_tokens.json", "tokenizer/added_tokens.json", "bm25/more.npy", "x/y/z"]
)
def test_an_added_file_is_refused_by_name(kind, name):
    path = kind.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    with pytest.raises(ValueError, match=rf"{path}: was added after the folder was written"):
        kind.load(kind.folder)


@pytest.mark.parametrize("kind", [name for name in KINDS if name != "judgements"], indirect=True)
def test_an_emptied_manifest_is_refused(kind):
    (kind.folder / MANIFEST).write_text('{"files": {}}')
    with pytest.raises(ValueError, match=r"manifest\.json: changed since it was written \(it does not list"):
        kind.load(kind.folder)


@pytest.mark.parametrize("kind", ["model"], indirect=True)
def test_an_added_token_no_longer_changes_answers(kind):
    """`added_tokens.json` gave a letter the meaning of another word, and the ranking changed."""
    (kind.folder / "tokenizer" / "added_tokens.json").write_text('{"a": 7}')
    with pytest.raises(ValueError, match=r"tokenizer/added_tokens\.json: was added"):
        GR2.from_pretrained(kind.folder)


@pytest.mark.parametrize("kind", ["model"], indirect=True)
def test_a_model_is_read_in_one_version_while_a_writer_replaces_it(kind, tmp_path):
    """Between the check and the load, the folder becomes another model; what was read is discarded."""
    other = tmp_path / "other"
    shutil.copytree(kind.folder, other)
    content = json.loads((other / "config.json").read_text())
    content["provenance"]["name"] = "other"
    (other / "config.json").write_text(json.dumps(content))
    write_manifest(other)
    reads = []

    def read(folder: Path) -> str:
        reads.append(folder)
        if len(reads) == 1:  # the writer comes in the middle of the first reading
            with atomic_folder(kind.folder) as temporary:
                shutil.copytree(other, temporary, dirs_exist_ok=True)
        return GR2.from_pretrained(folder).provenance.get("name", "")

    assert steady(kind.folder, read) == "other" and len(reads) == 2
