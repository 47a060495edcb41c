"""The first stage of a docid generator: it learns to ask, is measured, and serves any docids."""

import random
from dataclasses import replace

import pytest
import torch
from helpers import tiny

from gr2.data.formats.lines import FormatError
from gr2.data.formats.records import read_pairs_of_texts
from gr2.model.backbone import FreshDecoder, parts_of, tokenizer_of
from gr2.model.network import Network
from gr2.schemes.config import GeneratorConfig, SchemeConfig
from gr2.schemes.registry import SchemeContext, build
from gr2.store import Workspace, verify
from gr2.training import loop
from gr2.training.config import OptimiserConfig
from gr2.workflows.config import QuestionsConfig
from gr2.workflows.generator import train_generator

FAST = QuestionsConfig(steps=12, batch=8, optimiser=OptimiserConfig(learning_rate=2e-2, average=0.0))


def pairs(count: int = 60) -> list[tuple[str, str]]:
    """Texts of six words; the question about a text is its first two."""
    draw = random.Random(0)
    texts = [" ".join(draw.sample(tiny.WORDS, 6)) for _ in range(count)]
    return [(text, " ".join(text.split()[:2])) for text in texts]


@pytest.fixture(scope="module")
def made(t5, tmp_path_factory):
    out = tmp_path_factory.mktemp("generator") / "asker"
    return out, train_generator(pairs(), str(t5), out, FAST)


def test_it_learns_to_ask_about_texts_that_it_has_not_seen(made):
    out, found = made
    before, after = found.loss
    assert found.texts > 0 and after < before - 0.5
    assert all(0 <= value <= 1 for value in found.found)
    verify(out)


def test_the_tables_of_tokens_are_those_of_the_checkpoint(made, t5):
    out, _ = made
    one, two = parts_of(t5, FreshDecoder()), parts_of(out, FreshDecoder())
    assert torch.equal(one.head, two.head) and torch.equal(one.embedding, two.embedding)
    network = Network.build(out, [5, 6, 7])
    assert not network.fresh
    changed = Network.build(t5, [5, 6, 7]).weights()
    assert any(not torch.equal(weight, changed[name]) for name, weight in network.weights().items())


def test_from_pairs_in_lower_case_it_reads_every_text_that_way(made, t5, tmp_path):
    lower, before = tokenizer_of(made[0]), tokenizer_of(t5)
    assert lower("BAKA Beke").input_ids == lower("baka beke").input_ids == before("baka beke").input_ids
    assert before("BAKA Beke").input_ids != before("baka beke").input_ids
    capital = [(f"Baka {text}", question) for text, question in pairs()]
    train_generator(capital, str(t5), tmp_path / "capital", replace(FAST, steps=1))
    assert tokenizer_of(tmp_path / "capital")("BAKA Beke").input_ids == before("BAKA Beke").input_ids


def test_interrupted_and_resumed_it_is_the_same_to_the_byte(made, t5, tmp_path, monkeypatch):
    out = tmp_path / "asker"
    real = loop.save

    def stop(*given, **options):
        real(*given, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "save", stop)
    with pytest.raises(KeyboardInterrupt):
        train_generator(pairs(), str(t5), out, FAST)
    monkeypatch.undo()
    with pytest.raises(ValueError, match="--resume"):
        train_generator(pairs(), str(t5), out, FAST)
    assert Workspace(out).making.is_dir() and not out.exists()
    train_generator(pairs(), str(t5), out, FAST, resume=True)
    for path in sorted(made[0].rglob("*.safetensors")):
        assert path.read_bytes() == (out / path.relative_to(made[0])).read_bytes()


def test_docids_start_from_it_and_learn_its_own_questions_that_find_their_document(made, t5, tmp_path):
    out, _ = made
    how = GeneratorConfig(steps=2, batch=4, beams=4, own_questions=2)
    config = SchemeConfig(scheme="query", generator=str(out), generation=how)
    context = SchemeContext(
        collection=tiny.collection(), backbone=str(t5), folder=tmp_path / "making", config=config
    )
    docids = build(context)
    assert docids.about["targets"].endswith("and own questions")
    assert list((tmp_path / "making" / "questions").glob("proposals-*")), "asked before it was trained"


def test_from_the_command_line(gr2, t5, tmp_path):
    path = tmp_path / "pairs.tsv"
    rows = [("text", "question"), *pairs(40)]
    path.write_text("".join(f"{text}\t{question}\n" for text, question in rows))
    printed = gr2("generator", "train", path, "--backbone", t5, "--out", tmp_path / "asker", "--steps", 2)
    assert "40 pairs; measured on" in printed and "held out" in printed
    assert f"Written to {tmp_path / 'asker'}" in printed


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a text\n", r"pairs.tsv:1: expected two columns: a text and a question"),
        ("a text\ta question\n\nanother\t \n", r"pairs.tsv:3: expected two columns"),
        ("Text\tQuestion\n", r"pairs.tsv: expected at least one text"),
    ],
)
def test_a_wrong_row_is_named(tmp_path, content, message):
    path = tmp_path / "pairs.tsv"
    path.write_text(content)
    with pytest.raises(FormatError, match=message):
        read_pairs_of_texts(path)


def test_with_too_few_texts_nothing_is_held_out(t5, tmp_path):
    with pytest.raises(ValueError, match="too few texts"):
        train_generator(pairs(1), str(t5), tmp_path / "asker", FAST)
