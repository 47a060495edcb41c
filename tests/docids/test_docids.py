"""Docids that go, that are written to a folder and read again, and as flat arrays."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import tiny

from gr2.docids.clashes import add_documents, letters, resolve_clashes
from gr2.docids.docids import Docids


def texts_of(docids: Docids) -> dict[str, str]:
    return dict(zip(docids.docnos, docids.texts, strict=True))


def test_docids_with_vectors_can_be_compared():
    rows = np.zeros((5, 3), np.float32)
    one, two = (
        replace(resolve_clashes({"a": [("1", 0.0)]}, letters), code_vectors=rows + i) for i in range(2)
    )
    assert one == two, "they follow from the docids"
    assert one.docno == {"1": "a"}


def test_documents_that_are_there_or_are_not_are_named():
    docids = resolve_clashes({"a": [("cat", 0.0)], "b": [("dog", 0.0)]}, letters)
    with pytest.raises(ValueError, match="document 'b' has a docid already"):
        add_documents(docids, {"b": [("cow", 0.0)], "c": [("cow", 0.0)]}, letters, fingerprint="")
    with pytest.raises(ValueError, match="no docid of document 'c'"):
        docids.remove(["a", "c"], fingerprint="")
    left = docids.remove(iter(["a"]), fingerprint="less")
    assert texts_of(left) == {"b": "dog"} and left.index == {"b": 0} and left.clashes == docids.clashes


def test_all_documents_may_go():
    docids = resolve_clashes({"a": [("cat", 0.0)]}, letters)
    assert len(docids.remove(["a"], fingerprint="")) == 0


@pytest.mark.parametrize("vectors", [False, True])
def test_docids_survive_a_folder_and_a_changed_byte_does_not(tmp_path, vectors):
    strange = {
        f"d\n{i}": [(text, 0.0)] for i, text in enumerate([*tiny.UNICODE, 'a "quote"', "tab\t", "\u2028"])
    }
    docids = resolve_clashes(strange, letters, {"scheme": "x", "codes": 5, "nested": {"a": [1, 2.5]}})
    rows = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    docids = replace(docids, code_vectors=rows if vectors else None)
    docids.save(tmp_path / "docids")
    loaded = Docids.load(tmp_path / "docids")
    assert replace(loaded, code_vectors=None) == replace(docids, code_vectors=None)
    assert np.array_equal(loaded.code_vectors, rows) if vectors else loaded.code_vectors is None
    files = {"docids.json", "docids.jsonl", "manifest.json"} | ({"codes.safetensors"} if vectors else set())
    assert {path.name for path in (tmp_path / "docids").iterdir()} == files
    for name in sorted(files):
        path = tmp_path / "docids" / name
        content = path.read_bytes()
        changed = bytearray(content)
        changed[len(changed) // 2] ^= 1
        path.write_bytes(bytes(changed))
        with pytest.raises(ValueError, match="changed since it was written|missing"):
            Docids.load(tmp_path / "docids")
        path.write_bytes(content)
    Docids.load(tmp_path / "docids")


def test_flat_tokens_are_all_of_them():
    docids = resolve_clashes({"a": [("cat", 0.0)], "b": [("", 0.0)], "c": [("do", 0.0)]}, letters)
    flat, offsets = docids.flat()
    assert offsets.tolist() == [0, 3, 3, 5]
    assert [tuple(flat[a:b].tolist()) for a, b in zip(offsets, offsets[1:], strict=False)] == list(
        docids.tokens
    )
