"""A static encoder is the mean of its tokens' embeddings, and works wherever vectors are made."""

import json
import shutil

import numpy as np
import pytest
from helpers import tiny
from safetensors.numpy import load_file, save_file

from gr2.model.backbone import identity, is_static, makes_vectors, parts_of, tokenizer_of
from gr2.model.document_vectors import vectors_path
from gr2.model.encoder import Encoder
from gr2.model.static_encoder import BLOCK, StaticEncoder
from gr2.model.text_encoder import load_encoder


@pytest.fixture
def folder(tmp_path):
    return tiny.save_static_encoder(tmp_path / "words")


def mean_of(folder, words):
    """The unit mean of these words' rows, by the vocabulary in the file."""
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    rows = load_file(folder / "model.safetensors")["embeddings"][[vocabulary[word] for word in words]]
    mean = rows.mean(0)
    return mean / np.linalg.norm(mean)


def test_a_vector_is_the_unit_mean_of_known_tokens(folder):
    encoder = load_encoder(folder)
    assert isinstance(encoder, StaticEncoder) and encoder.name == "words"
    found = encoder.encode(["baka beke baka", "baka qqq", "qqq", "", "7 baka"])
    np.testing.assert_allclose(found[0], mean_of(folder, ["baka", "beke", "baka"]), atol=1e-6)
    np.testing.assert_allclose(found[1], mean_of(folder, ["baka"]), atol=1e-6)  # unknown words do not count
    assert not found[2].any() and not found[3].any() and found.dtype == np.float32
    np.testing.assert_allclose(found[4], mean_of(folder, ["7", "baka"]), atol=1e-6)
    assert encoder.encode([]).shape == (0, 16)


def test_texts_are_cut_after_so_many_known_tokens(folder):
    encoder = load_encoder(folder)
    (found,) = encoder.encode(["qqq baka beke biki"], max_tokens=2)
    np.testing.assert_allclose(found, mean_of(folder, ["baka", "beke"]), atol=1e-6)
    long = " ".join(["baka"] * 128 + ["beke"] * 900)
    np.testing.assert_allclose(encoder.encode([long])[0], mean_of(folder, ["baka"]), atol=1e-5)
    assert [len(row) for row in encoder.read([long, "qqq"])] == [1028, 0]


def test_cutting_and_padding_of_the_tokenizer_itself_do_not_count(folder):
    path = folder / "tokenizer.json"
    wanted = load_encoder(folder).encode(["baka beke", "biki"])
    content = json.loads(path.read_text())
    content["truncation"] = {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0}
    content["padding"] = {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None}
    content["padding"] |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "<pad>"}
    path.write_text(json.dumps(content))
    np.testing.assert_array_equal(load_encoder(folder).encode(["baka beke", "biki"]), wanted)


def test_a_vector_does_not_depend_on_the_other_texts(folder):
    encoder = load_encoder(folder)
    texts = [tiny.some_words(i, 1 + i % 6) for i in range(BLOCK + 20)]
    together = encoder.encode(texts)
    for place in (0, BLOCK - 1, BLOCK, BLOCK + 19):
        np.testing.assert_array_equal(together[place], encoder.encode([texts[place]])[0])


def test_tokens_may_share_rows_and_have_weights(tmp_path):
    plain = tiny.save_static_encoder(tmp_path / "plain")
    table = load_file(plain / "model.safetensors")["embeddings"]
    draw = np.random.default_rng(3)
    mapping, weights = draw.integers(0, len(table), len(table)), draw.random(len(table))
    shared = tiny.save_static_encoder(tmp_path / "shared", mapping=mapping, weights=weights)
    save_file(
        {"embeddings": table[mapping] * weights[:, None].astype(np.float32)}, plain / "model.safetensors"
    )
    texts = ["baka beke", "duku"]
    np.testing.assert_allclose(
        load_encoder(shared).encode(texts), load_encoder(plain).encode(texts), atol=1e-6
    )


def test_it_is_read_as_it_was_saved(folder, tmp_path):
    encoder = StaticEncoder.load(folder)
    encoder.save(tmp_path / "a")
    again = StaticEncoder.load(tmp_path / "a")
    assert again.name == "words" and again.nbytes == encoder.nbytes == tiny.SIZE * 16 * 4
    np.testing.assert_array_equal(again.encode(["baka beke"]), encoder.encode(["baka beke"]))
    again.save(tmp_path / "b")
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_a_folder_that_is_none_is_refused(folder, bert, tmp_path):
    with pytest.raises(ValueError, match="is no folder"):
        StaticEncoder.load(tmp_path / "nothing")
    with pytest.raises(ValueError, match="is no model2vec encoder"):
        StaticEncoder.load(bert)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    with pytest.raises(ValueError, match="is no model2vec encoder"):
        StaticEncoder.load(tmp_path / "broken")
    table = load_file(folder / "model.safetensors")["embeddings"]
    for arrays, message in (
        ({"other": table}, "expected a table"),
        ({"embeddings": table[:9]}, "the table 9"),
    ):
        save_file(arrays, folder / "model.safetensors")
        with pytest.raises(ValueError, match=message):
            StaticEncoder.load(folder)
    (folder / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"model\.safetensors: cannot be read: SafetensorError"):
        StaticEncoder.load(folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match="has no tokenizer.json"):
        StaticEncoder.load(folder)


def test_it_makes_vectors_but_is_no_backbone(folder, bert):
    assert is_static(folder) and makes_vectors(folder) and not is_static(bert) and not is_static("gr2-mini")
    assert isinstance(load_encoder(bert), Encoder)
    for load in (tokenizer_of, lambda name: parts_of(name, None)):
        with pytest.raises(ValueError, match="--look-ahead.encoder"):
            load(folder)


def test_kept_vectors_tell_static_encoders_apart_by_content(folder, tmp_path):
    data, copy = tiny.collection(5), tmp_path / "copy" / "words"
    shutil.copytree(folder, copy)
    other = tiny.save_static_encoder(tmp_path / "other" / "words", seed=1)
    assert identity(folder) == identity(copy) != identity(other)
    paths = [vectors_path(data, str(one), tmp_path) for one in (folder, copy, other)]
    assert paths[0] == paths[1] != paths[2]
