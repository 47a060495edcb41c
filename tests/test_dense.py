"""Vectors of tiny checkpoints made here, and dense search against the definition written out."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from gr2.augment import pieces
from gr2.baselines.dense import Dense, DenseConfig, document_vectors
from gr2.data import Collection, Document
from gr2.embed import Encoder
from gr2.formats import write_folder
from gr2.runs import Run

WORDS = [a + b for a in "ba be bi bo bu da de di do du".split() for b in "ka ke ki ko ku".split()]


def save_tokenizer(folder: Path, special: bool = True) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: index for index, word in enumerate(["<pad>", "</s>", "<unk>", *WORDS])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    if special:
        inner.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    names = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=inner, **names).save_pretrained(folder)


def checkpoint(folder: Path, family: str, **changes: bool) -> Path:
    """A tiny random checkpoint; everything but its tokenizer is drawn with one seed."""
    from transformers import (
        BartConfig,
        BartForConditionalGeneration,
        BertConfig,
        BertModel,
        T5Config,
        T5ForConditionalGeneration,
    )

    torch.manual_seed(0)
    size = len(WORDS) + 3
    start = {"decoder_start_token_id": 0, "eos_token_id": 1, "pad_token_id": 0}
    if family == "t5":
        shape = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 1, "num_heads": 2, "vocab_size": size}
        T5ForConditionalGeneration(T5Config(**shape, **start, **changes)).save_pretrained(folder)
    elif family == "bart":
        layers = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
        heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
        shape = {"d_model": 32, "vocab_size": size, "max_position_embeddings": 64, "bos_token_id": 1}
        BartForConditionalGeneration(BartConfig(**shape, **layers, **heads, **start)).save_pretrained(folder)
    else:
        shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
        config = BertConfig(**shape, vocab_size=size, max_position_embeddings=64)
        model = BertModel(config)
        with torch.no_grad():  # at the usual scale of 0.02 all texts would look alike
            model.embeddings.word_embeddings.weight.normal_()
        model.save_pretrained(folder)
    save_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def bert(tmp_path_factory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("bert"), "bert")


@pytest.fixture(scope="module")
def encoder(bert) -> Encoder:
    return Encoder.load(bert)


def some_texts(count: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 30))) for _ in range(count)]


def some_documents(count: int, seed: int = 0) -> list[Document]:
    return [
        Document(f"d{i:03}", " ".join(text.split()[:3]), text)
        for i, text in enumerate(some_texts(count, seed))
    ]


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
    long = " ".join(WORDS * 3)
    vectors = encoder.encode(["", "baka", "xyzzy", "baka", long, "   "])
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(6), abs=1e-6)
    assert np.array_equal(vectors[1], vectors[3])
    cut = " ".join(long.split()[: encoder.limit - 1])
    np.testing.assert_allclose(vectors[4], encoder.encode([cut])[0], atol=1e-6)
    assert encoder.limit == 64
    np.testing.assert_allclose(
        encoder.encode(["baka beki boku"], longest=3)[0], encoder.encode(["baka beki"])[0], atol=1e-6
    )


def test_a_text_without_any_token_is_the_zero_vector(bert, encoder, tmp_path):
    from transformers import AutoTokenizer

    save_tokenizer(tmp_path, special=False)
    bare = Encoder("bare", encoder.network, AutoTokenizer.from_pretrained(tmp_path))
    assert not bare.encode([""]).any()
    both = bare.encode(["", "baka"], batch=2)
    assert not both[0].any()
    np.testing.assert_allclose(both[1], bare.encode(["baka"])[0], atol=1e-6)


@pytest.mark.parametrize("tied", [True, False])
def test_t5_is_read_by_its_encoder_with_the_stored_embeddings(tmp_path, tied):
    from safetensors.torch import load_file
    from transformers import T5ForConditionalGeneration

    folder = checkpoint(tmp_path / "t5", "t5", tie_word_embeddings=tied)
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
    whole = Encoder.load(checkpoint(tmp_path / "t5", "t5"))
    T5EncoderModel.from_pretrained(tmp_path / "t5").save_pretrained(tmp_path / "half")
    save_tokenizer(tmp_path / "half")
    np.testing.assert_allclose(Encoder.load(tmp_path / "half").encode(texts), whole.encode(texts), atol=1e-6)
    bart = Encoder.load(checkpoint(tmp_path / "bart", "bart"))
    inner = BartModel.from_pretrained(tmp_path / "bart").eval().get_encoder()
    wanted = np.stack([alone(inner, bart.tokenizer, text) for text in texts])
    np.testing.assert_allclose(bart.encode(texts), wanted, atol=1e-6)


@pytest.mark.parametrize(
    ("family", "part"), [("bert", "attention"), ("t5", "shared"), ("t5", "encoder.block")]
)
def test_a_checkpoint_without_some_of_its_weights_is_refused(tmp_path, family, part):
    from safetensors.torch import load_file, save_file

    folder = checkpoint(tmp_path, family, **({"tie_word_embeddings": False} if family == "t5" else {}))
    weights = load_file(folder / "model.safetensors")
    del weights[next(name for name in weights if part in name)]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match="has no weights for"):
        Encoder.load(folder)


def written_out(query: str, document: Document, encoder: Encoder, config: DenseConfig) -> float:
    """The score of one document by the definition, every text encoded by itself."""

    def vector(text: str) -> np.ndarray:
        return encoder.encode([text], longest=config.longest)[0]

    parts = [
        vector(f"{document.title} {part}")
        for part in (pieces(document.text, config.words, config.pieces) if config.pieces else ())
    ]
    mean = np.mean([vector(f"{document.title} {document.text}"), *parts], axis=0)
    if not parts:
        return float(vector(query) @ mean)
    best = max(float(vector(query) @ part) for part in parts)
    return config.mix * float(vector(query) @ mean) / float(np.linalg.norm(mean)) + (1 - config.mix) * best


@pytest.mark.parametrize(
    "config",
    [
        DenseConfig(words=4, pieces=3, mix=0.25, longest=8),
        DenseConfig(words=7),
        DenseConfig(mix=1),
        DenseConfig(pieces=0, longest=8),
    ],
)
def test_search_is_the_definition_written_out(encoder, config):
    documents = some_documents(12)
    queries = {f"q{i}": text for i, text in enumerate(some_texts(3, seed=1))}
    run = Dense.index(documents, encoder, config).search(queries, k=100, name="mine")
    assert run.name == "mine"
    for qid, query in queries.items():
        wanted = {d.docno: written_out(query, d, encoder, config) for d in documents}
        assert dict(run.rankings[qid]) == pytest.approx(wanted, abs=2e-6)
        assert run.rankings[qid] == Run.from_dict(run.to_dict()).rankings[qid]


def test_documents_are_scored_the_same_in_blocks_and_in_any_order(encoder):
    documents = some_documents(50)
    index = Dense.index(documents, encoder, DenseConfig(words=5, pieces=4))
    vectors = encoder.encode(some_texts(7, seed=2))
    whole = index._scores(vectors)
    for block in (1, 7, 49, 50):
        np.testing.assert_allclose(index._scores(vectors, block), whole, atol=2e-6)
    queries = {f"q{i}": text for i, text in enumerate(some_texts(200, seed=3))}
    mixed = Dense.index(random.Random(0).sample(documents, 50), encoder, index.config)
    assert mixed.search(queries) == index.search(queries)
    assert list(index.search(queries).rankings) == list(queries)


def test_ties_follow_the_tie_rule_and_fewer_results_are_a_prefix_of_more(encoder):
    same = [Document(f"{i:02}", "", "baka beke biki boko") for i in range(40)]
    index = Dense.index([*same, *some_documents(40)], encoder, DenseConfig(words=2))
    whole = index.search({"q": "baka beke"}, k=100)
    assert whole == Run.from_dict(whole.to_dict(), "dense")
    places = [docno for docno in whole.docnos("q") if docno.isdigit()]
    assert places == sorted(places, reverse=True)
    for k in (1, 3, 17, 40, 79, 80):
        assert index.search({"q": "baka beke"}, k=k).docnos("q") == whole.docnos("q")[:k]


def test_one_document_empty_ones_and_what_is_refused(encoder):
    index = Dense.index([Document("empty"), Document("blank", " ", "\n"), Document("title", "baka")], encoder)
    run = index.search({"q": "baka", "nothing": ""}, k=10)
    assert run.docnos("q") == run.docnos("nothing") == ("title",)
    assert dict(run.rankings["q"]) == pytest.approx({"title": 1.0}, abs=1e-6)
    assert index.search({}).rankings == {}
    assert index.nbytes == 2 * 32 * 4
    with pytest.raises(ValueError, match="at least 1"):
        index.search({"q": "baka"}, k=0)
    for documents in ([], [Document("empty")]):
        with pytest.raises(ValueError, match="at least one document with a word"):
            Dense.index(documents, encoder)
    for wrong in ({"words": 0}, {"pieces": -1}, {"longest": 0}, {"mix": 1.5}, {"mix": -0.1}):
        with pytest.raises(ValueError, match="mix from 0 to 1"):
            DenseConfig(**wrong)


def test_kept_vectors_are_those_of_the_way_they_were_made(bert, tmp_path):
    documents = some_documents(20)
    data = Collection(name="tiny", documents=tuple(documents), queries={}, qrels={})
    docnos = [document.docno for document in documents]
    for config in (None, DenseConfig.leading(3), DenseConfig.leading(4)):
        wanted = Dense.index(documents, Encoder.load(bert), config).vectors(docnos)
        for _ in range(2):  # made, and read again
            assert np.array_equal(document_vectors(data, docnos, str(bert), tmp_path, config), wanted)
    document_vectors(data, docnos, str(bert), tmp_path, DenseConfig.leading(0))
    assert len(list(tmp_path.iterdir())) == 3, "no leading tokens are the usual way, and have its file"


def test_the_command_writes_a_run_that_can_be_evaluated(gr2, bert, tmp_path):
    documents = some_documents(20)
    queries = {f"q{i}": documents[i].text for i in range(5)}
    qrels = {"test": {f"q{i}": {documents[i].docno: 1} for i in range(5)}}
    data = Collection(name="tiny", documents=tuple(documents), queries=queries, qrels=qrels)
    write_folder(data, tmp_path / "tiny")
    out = gr2("dense", tmp_path / "tiny", "--backbone", bert, "--output", tmp_path / "dense.run", "--k", "7")
    assert "mix=0.5" in out
    assert "MB): 5 of 5 queries answered" in out
    run = Run.read(tmp_path / "dense.run")
    assert all(len(run.docnos(qid)) == 7 for qid in queries)
    assert run.docnos("q0") == Dense.index(documents, Encoder.load(bert)).search(queries, 7).docnos("q0")
    assert "all queries (5)" in gr2("evaluate", tmp_path / "tiny", tmp_path / "dense.run")
    with pytest.raises(SystemExit, match="no split 'dev'"):
        gr2("dense", tmp_path / "tiny", "--backbone", bert, "--output", tmp_path / "x.run", "--split", "dev")
    with pytest.raises(SystemExit, match="nowhere"):
        gr2("dense", tmp_path / "tiny", "--backbone", tmp_path / "nowhere", "--output", tmp_path / "x.run")
