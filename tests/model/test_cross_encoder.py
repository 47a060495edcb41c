"""A cross-encoder's scores against one forward pass for each pair, and checkpoints that are none."""

import numpy as np
import pytest
import torch
from helpers import tiny
from safetensors.torch import load_file, save_file

from gr2.model.cross_encoder import CrossEncoder


def save(folder, labels=1):
    """A random classifier of pairs with large weights, so that its scores differ."""
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=tiny.SIZE,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=24,
        initializer_range=0.5,
        num_labels=labels,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    tiny.save_tokenizer(folder)
    return folder


def test_scores_are_those_of_each_pair_alone_in_the_order_of_the_texts(tmp_path):
    encoder = CrossEncoder.load(save(tmp_path / "checkpoint"), device="cpu")
    texts = [tiny.some_words(seed, 3 + seed % 5) for seed in range(9)] + [""]
    found = encoder.scores("baka beke", texts, batch=4)
    for text, score in zip(texts, found, strict=True):
        read = encoder.tokenizer(["baka beke"], [text], return_tensors="pt")
        with torch.inference_mode():
            assert float(encoder.network(**read).logits) == pytest.approx(float(score), abs=1e-4)
    assert found.dtype == np.float32 and np.ptp(found) > 0.1
    assert encoder.scores("baka", []).shape == (0,)


def test_long_texts_are_cut_to_what_the_network_reads(tmp_path):
    encoder = CrossEncoder.load(save(tmp_path / "checkpoint"), device="cpu")
    long = " ".join(tiny.WORDS)
    cut = encoder.scores("baka", [long, " ".join(tiny.WORDS[:40])])
    assert cut[0] == pytest.approx(cut[1], abs=1e-5), "both are cut to 24 tokens"
    assert abs(cut[0] - encoder.scores("baka", [long], max_tokens=12)[0]) > 1e-3


def test_a_checkpoint_with_two_logits_is_refused(tmp_path):
    with pytest.raises(ValueError, match="one logit, this checkpoint has 2"):
        CrossEncoder.load(save(tmp_path / "checkpoint", labels=2))


def test_missing_weights_are_refused(tmp_path):
    folder = save(tmp_path / "checkpoint")
    weights = load_file(folder / "model.safetensors")
    del weights["classifier.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match=r"has no weights for classifier\.weight"):
        CrossEncoder.load(folder)
