"""Tiny random checkpoints of every family that can be read, with a tokenizer that reads digits and NFKC."""

from collections.abc import Sequence
from pathlib import Path

import torch

WORDS = [a + b for a in "ba be bi bo bu da de di do du".split() for b in "ka ke ki ko ku".split()]
SPECIAL = ["<pad>", "</s>", "<unk>", "<cls>"]
SIZE = len(SPECIAL) + 10 + len(WORDS)
FAMILIES = ("t5", "bart", "encoder")


def save_tokenizer(folder: Path, words: Sequence[str] = tuple(WORDS)) -> None:
    """These words, single digits, and one token for all that is unknown: many texts read alike."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: index for index, word in enumerate([*SPECIAL, *"0123456789", *words])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.normalizer = normalizers.NFKC()
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)]
    )
    inner.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    names = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>", "cls_token": "<cls>"}
    PreTrainedTokenizerFast(tokenizer_object=inner, sep_token="</s>", **names).save_pretrained(folder)


def save_checkpoint(folder: Path, family: str, *, width: int = 32, seed: int = 0) -> Path:
    """A checkpoint of one layer and its tokenizer."""
    from transformers import (
        BartConfig,
        BartForConditionalGeneration,
        BertConfig,
        BertModel,
        T5Config,
        T5ForConditionalGeneration,
    )

    torch.manual_seed(seed)
    if family == "t5":
        shape = {"d_model": width, "d_kv": 16, "d_ff": 64, "num_layers": 1, "num_heads": 2}
        special = {"decoder_start_token_id": 0, "eos_token_id": 1, "pad_token_id": 0}
        model = T5ForConditionalGeneration(T5Config(**shape, **special, vocab_size=SIZE))
    elif family == "bart":
        layers = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
        heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 160}
        special = {"decoder_start_token_id": 1, "eos_token_id": 1, "pad_token_id": 0, "bos_token_id": 3}
        model = BartForConditionalGeneration(
            BartConfig(d_model=width, vocab_size=SIZE, **layers, **heads, **special)
        )
    else:
        shape = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
        model = BertModel(BertConfig(hidden_size=width, vocab_size=SIZE, **shape))
    model.save_pretrained(folder)
    save_tokenizer(folder)
    return folder
