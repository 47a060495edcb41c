"""Tiny checkpoints of every family that can be read, tiny collections, and a training run of both.

The tokenizer reads fifty made-up words, single digits, and NFKC.
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import load_file, save_file

from gr2.data.collection import Collection, Document
from gr2.docids.clashes import resolve_clashes
from gr2.docids.docids import Docids
from gr2.model.backbone import tokeniser
from gr2.model.config import GR2Config, NetworkConfig
from gr2.model.gr2 import GR2
from gr2.training.batches import Batches, Examples
from gr2.training.checkpoints import newest_checkpoint
from gr2.training.config import (
    AugmentConfig,
    BatchConfig,
    ObjectiveConfig,
    OptimiserConfig,
    TrainingConfig,
    with_settings,
)
from gr2.training.examples import examples_of
from gr2.training.loop import LoopConfig, train
from gr2.training.objective import Objective
from gr2.training.progress import Progress
from gr2.training.variants import variant_objective

WORDS = [a + b for a in "ba be bi bo bu da de di do du".split() for b in "ka ke ki ko ku".split()]
SPECIAL = ["<pad>", "</s>", "<unk>", "<cls>"]
SIZE = len(SPECIAL) + 10 + len(WORDS)
FAMILIES = ("t5", "bart", "encoder")
TINY = NetworkConfig(decoder_layers=1, decoder_heads=2, decoder_feed_forward=32, representation=16)
FAST = {
    "schedule.steps": 6,
    "batches.queries": 10,
    "batches.texts": 10,
    "optimiser.learning_rate": 5e-3,
    "optimiser.bf16": False,
}
"""Settings of a training run that learns something in a moment."""
UNICODE = [
    *("日本語の題名", "日本語", "中文标题", "🎉🎉", "👩‍👩‍👧", "שלום עולם", "مرحبا بالعالم"),
    *("e\u0301te\u0301", "\u00e9t\u00e9", "\ufb01n", "fin", "１２３", "123", "baka\u00a0beke", "baka beke"),
    *("\u0301", "\u200b", "\u202eabc"),
]

# Checkpoints


def save_tokenizer(folder: Path, words: Sequence[str] = tuple(WORDS), *, ends: bool = True) -> None:
    """These words, single digits, and one token for all that is unknown: many texts read alike."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: index for index, word in enumerate([*SPECIAL, *"0123456789", *words])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.normalizer = normalizers.NFKC()
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)]
    )
    if ends:
        inner.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    names = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>", "cls_token": "<cls>"}
    PreTrainedTokenizerFast(tokenizer_object=inner, sep_token="</s>", **names).save_pretrained(folder)


def save_checkpoint(folder: Path, family: str, *, width: int = 32, seed: int = 0, **changes: Any) -> Path:
    """A random checkpoint of one layer and its tokenizer; `changes` are of its configuration."""
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
        config = T5Config(**{**shape, **special, "vocab_size": SIZE, **changes})
        model = T5ForConditionalGeneration(config)
    elif family == "bart":
        layers = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
        heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 160}
        special = {"decoder_start_token_id": 1, "eos_token_id": 1, "pad_token_id": 0, "bos_token_id": 3}
        config = BartConfig(**{"d_model": width, "vocab_size": SIZE, **layers, **heads, **special, **changes})
        model = BartForConditionalGeneration(config)
    elif family == "encoder":
        shape = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
        model = BertModel(BertConfig(**{"hidden_size": width, "vocab_size": SIZE, **shape, **changes}))
    else:
        raise ValueError(f"expected one of {FAMILIES}, found {family!r}")
    model.save_pretrained(folder)
    save_tokenizer(folder)
    return folder


def save_strong_encoder(folder: Path) -> Path:
    """A text encoder of 64 positions with strong embeddings: at the usual scale all texts look alike."""
    save_checkpoint(folder, "encoder", max_position_embeddings=64)
    weights = load_file(folder / "model.safetensors")
    weights["embeddings.word_embeddings.weight"].normal_()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


def write_index(path: Path, where: Mapping[str, str]) -> None:
    """The index of a checkpoint in shards: the file of each weight."""
    path.write_text(json.dumps({"metadata": {}, "weight_map": dict(where)}), encoding="utf-8")


def save_static_encoder(folder: Path, *, width: int = 16, seed: int = 0, **more: Any) -> Path:
    """A random model2vec encoder of the same words; `more` are further arrays of its file."""
    save_tokenizer(folder)
    draw = np.random.default_rng(seed)
    table = draw.standard_normal((SIZE, width)).astype(np.float32)
    save_arrays({"embeddings": table, **more}, folder / "model.safetensors")
    content = {"model_type": "model2vec", "apply_pca": 16, "apply_zipf": True, "normalize": True}
    (folder / "config.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


# Collections


def some_words(seed: int, number: int = 6) -> str:
    """Different words, always the same for a seed."""
    return " ".join(random.Random(seed).sample(WORDS, number))


def mixed_documents(number: int = 40) -> list[Document]:
    """Documents as they come: some share a title, some are the same, some have no title or no text."""
    documents = []
    for i in range(number):
        title = some_words(i % 7, 3) if i % 5 else ""
        text = "" if i % 11 == 3 else f"{some_words(i - i % 3)}. {some_words(i - i % 3 + 100)}.".title()
        documents.append(
            Document(f"d{i * 37 % 100:02}", title, text, f"https://{some_words(i % 9, 1)}.org/{i // 3}")
        )
    return documents


def collection(count: int = 50) -> Collection:
    """Documents of distinct words; each query has its document as grade 2 and the next one as grade 1."""
    draw = random.Random(0)
    documents, queries, train_qrels = [], {}, {}
    for i in range(count):
        words = draw.sample(WORDS, 6)
        documents.append(Document(f"d{i:02}", " ".join(words[:3]), " ".join(words)))
        queries[f"q{i:02}"] = " ".join(words[1:5])
        train_qrels[f"q{i:02}"] = {f"d{i:02}": 2, f"d{(i + 1) % count:02}": 1}
    return Collection(name="tiny", documents=tuple(documents), queries=queries, qrels={"train": train_qrels})


def with_dev(count: int = 50) -> Collection:
    """The same with ten of its queries as `dev` and `test`."""
    data = collection(count)
    some = dict(list(data.split("train").items())[:10])
    return replace(data, qrels={**data.qrels, "dev": some, "test": some})


def graded(count: int = 30, *, titled: bool = True) -> Collection:
    """Documents with queries of three splits and grades from 1 to 3."""
    draw = random.Random(1)
    documents = []
    for number in range(count):
        words = draw.sample(WORDS, 8)
        title = " ".join(words[:3]) if titled else ""
        documents.append(Document(f"{number:03}", title, " ".join(words)))
    queries = {f"q{d.docno}": " ".join(draw.sample(d.text.split(), 3)) for d in documents}
    judged = {
        f"q{d.docno}": {
            d.docno: 3,
            documents[(i + 1) % count].docno: 2,
            documents[(i + 2) % count].docno: 1,
        }
        for i, d in enumerate(documents)
    }
    parts = {"train": range(0, 20), "dev": range(20, 25), "test": range(25, 30)}
    qids = list(judged)
    qrels = {name: {qids[i]: judged[qids[i]] for i in part} for name, part in parts.items()}
    return Collection(name="graded", documents=tuple(documents), queries=queries, qrels=qrels)


# Training


def titles(data: Collection, backbone: Path) -> Docids:
    """Titles as docids."""
    proposals = {document.docno: [(document.title, 0.0)] for document in data.documents}
    return resolve_clashes(proposals, tokeniser(str(backbone)), {"fingerprint": data.fingerprint})


def prepared(backbone: Path, name: str = "gr2", normaliser: str = "trie", steps: int = 30):
    """A collection, a fresh model of it, its objective and batches, and a configuration that learns fast."""
    data = collection()
    model = GR2.fresh(
        backbone, titles(data, backbone), GR2Config(network=TINY, normaliser=normaliser, max_tokens=64)
    )
    augment = AugmentConfig(paragraphs=3, sentences=3, entities=3)
    examples = examples_of(data, model.docids, model.read, augment=augment)
    loss = variant_objective(name, ObjectiveConfig(normaliser=normaliser, smoothing=0.1))
    objective = Objective(model.tokens, model.trie, data.grades, loss)
    batches = Batches(examples, BatchConfig(queries=10, texts=40))
    optimiser = OptimiserConfig(learning_rate=5e-3, average=0.0, bf16=False)
    config = LoopConfig(steps=steps, optimiser=optimiser, checkpoint_minutes=0, log_every=5)
    return data, model, objective, batches, config


def graded_examples() -> Examples:
    """Queries with up to three grades, texts, and hard negatives; query i begins with token 100 + i."""
    draw = random.Random(3)
    judged = [
        {g: draw.sample(range(40), draw.randint(1, 7)) for g in (1, 2, 3) if draw.random() < 0.7}
        for _ in range(23)
    ]
    return Examples(
        queries=[[100 + query] * draw.randint(1, 9) for query in range(len(judged))],
        judged=[grades or {1: [0]} for grades in judged],
        texts=[[6] * draw.randint(1, 20) for _ in range(57)],
        text_docids=[i % 40 for i in range(57)],
        self_negatives=[[draw.randrange(40)] for _ in judged],
    )


def trained(network, objective, batches, config: LoopConfig, folder: Path, **options) -> list[Progress]:
    """Train; the progress of every logged step."""
    seen: list[Progress] = []
    train(network, objective, batches, config, folder, progress=seen.append, **options)
    return seen


def training(settings: Mapping[str, Any] | None = None, **others: Any) -> TrainingConfig:
    """A whole training run that takes a moment, with some settings changed, each named by its path."""
    return with_settings(TrainingConfig(), {**FAST, **(settings or {}), **others})


def step_of(folder: Path) -> int:
    """The step of the newest checkpoint; 0 without any."""
    newest = newest_checkpoint(folder)
    return int(newest.name.rpartition("-")[2]) if newest else 0
