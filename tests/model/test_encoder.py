"""Vectors of tiny checkpoints: independent of padding and order, with the stored weights, or refused."""

import random

import numpy as np
import pytest
import torch
from helpers import tiny
from safetensors.torch import load_file, save_file

from gr2.model.encoder import Encoder


def some_texts(count: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(tiny.WORDS, k=draw.randint(1, 30))) for _ in range(count)]


def alone(network, tokenizer, text: str) -> np.ndarray:
    """The vector of one text by itself: no padding, no mask, nothing sorted."""
    with torch.no_grad():
        mean = network(input_ids=torch.tensor([tokenizer(text)["input_ids"]])).last_hidden_state[0].mean(0)
    return (mean / mean.norm()).numpy()


@pytest.mark.parametrize("batch", [1, 3, 32])
def test_a_vector_depends_neither_on_padding_nor_on_the_batch_nor_on_the_order(encoder, batch):
    texts = some_texts(40)
    vectors = encoder.encode(texts, batch=batch)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(40), abs=1e-6)
    wanted = np.stack([alone(encoder.network, encoder.tokenizer, text) for text in texts])
    np.testing.assert_allclose(vectors, wanted, atol=1e-6)
    mixed = random.Random(1).sample(range(40), 40)
    again = encoder.encode([texts[i] for i in mixed], batch=batch)
    assert np.array_equal(again, vectors[mixed])


def test_texts_that_are_equal_empty_unknown_or_too_long(encoder):
    assert encoder.encode([]).shape == (0, 32)
    long = " ".join(tiny.WORDS * 3)
    vectors = encoder.encode(["", "baka", "xyzzy", "baka", long, "   "])
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(6), abs=1e-6)
    assert np.array_equal(vectors[1], vectors[3])
    cut = " ".join(long.split()[: encoder.limit - 1])
    np.testing.assert_allclose(vectors[4], encoder.encode([cut])[0], atol=1e-6)
    assert encoder.limit == 64
    np.testing.assert_allclose(
        encoder.encode(["baka beki boku"], max_tokens=3)[0], encoder.encode(["baka beki"])[0], atol=1e-6
    )


def test_a_text_without_any_token_is_the_zero_vector(bert, encoder, tmp_path):
    from transformers import AutoTokenizer

    tiny.save_tokenizer(tmp_path, ends=False)
    bare = Encoder("bare", encoder.network, AutoTokenizer.from_pretrained(tmp_path))
    assert not bare.encode([""]).any()
    both = bare.encode(["", "baka"], batch=2)
    assert not both[0].any()
    np.testing.assert_allclose(both[1], bare.encode(["baka"])[0], atol=1e-6)


@pytest.mark.parametrize("tied", [True, False])
def test_t5_is_read_by_its_encoder_with_the_stored_embeddings(tmp_path, tied):
    from transformers import T5ForConditionalGeneration

    folder = tiny.save_checkpoint(tmp_path / "t5", "t5", tie_word_embeddings=tied)
    loaded = Encoder.load(folder)
    stored = load_file(folder / "model.safetensors")["shared.weight"]
    assert torch.equal(loaded.network.embed_tokens.weight, stored)
    whole = T5ForConditionalGeneration.from_pretrained(folder).eval()
    whole.encoder.embed_tokens.weight = torch.nn.Parameter(stored)
    texts = some_texts(5)
    wanted = np.stack([alone(whole.encoder, loaded.tokenizer, text) for text in texts])
    np.testing.assert_allclose(loaded.encode(texts), wanted, atol=1e-6)
    assert loaded.width == 32


def test_an_encoder_saved_alone_and_bart_are_read_too(tmp_path):
    from transformers import BartModel, T5EncoderModel

    texts = some_texts(5)
    whole = Encoder.load(tiny.save_checkpoint(tmp_path / "t5", "t5"))
    T5EncoderModel.from_pretrained(tmp_path / "t5").save_pretrained(tmp_path / "half")
    tiny.save_tokenizer(tmp_path / "half")
    np.testing.assert_allclose(Encoder.load(tmp_path / "half").encode(texts), whole.encode(texts), atol=1e-6)
    bart = Encoder.load(tiny.save_checkpoint(tmp_path / "bart", "bart"))
    inner = BartModel.from_pretrained(tmp_path / "bart").eval().get_encoder()
    wanted = np.stack([alone(inner, bart.tokenizer, text) for text in texts])
    np.testing.assert_allclose(bart.encode(texts), wanted, atol=1e-6)


@pytest.mark.parametrize(
    ("family", "part"), [("encoder", "attention"), ("t5", "shared"), ("t5", "encoder.block")]
)
def test_a_checkpoint_without_some_of_its_weights_is_refused(tmp_path, family, part):
    folder = tiny.save_checkpoint(
        tmp_path, family, **({"tie_word_embeddings": False} if family == "t5" else {})
    )
    weights = load_file(folder / "model.safetensors")
    del weights[next(name for name in weights if part in name)]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match="has no weights for"):
        Encoder.load(folder)
