"""Pre-training: a graded collection becomes a backbone, and a backbone serves any docids."""

import json
import random
from dataclasses import replace

import pytest
import torch
from helpers import tiny

from gr2.data.collection import Collection, Document
from gr2.data.formats import write_folder
from gr2.docids.trie import Trie
from gr2.model.backbone import EMBEDDED, FreshDecoder, is_own, makes_vectors, parts_of, tokenizer_of
from gr2.model.config import NetworkConfig
from gr2.model.encoder import Encoder
from gr2.model.gr2 import GR2
from gr2.model.network import FIRST, HEAD_SCALE, Network
from gr2.model.node_prior import Prior
from gr2.schemes.config import SchemeConfig
from gr2.schemes.registry import SchemeContext, build
from gr2.store import verify
from gr2.training.batches import Batches
from gr2.training.config import TrainingConfig, with_settings
from gr2.training.fit import fit, prepare
from gr2.training.loop import encoded
from gr2.workflows.config import PretrainConfig
from gr2.workflows.pretrain import pretrain

UNIT_NORM = NetworkConfig(unit_norm_head=True)
TRAINING = with_settings(
    TrainingConfig(),
    {
        "schedule.steps": 3,
        "prior.vectors_per_document": 0.0,
        "batches.queries": 4,
        "batches.texts": 4,
        "optimiser.learning_rate": 1e-2,
    },
)
WITH_PRIOR = with_settings(TRAINING, {"prior.vectors_per_document": 1.0})


def settings(checkpoint, training: TrainingConfig = TRAINING) -> PretrainConfig:
    return PretrainConfig(backbone=str(checkpoint), training=training)


def graded(count: int = 20) -> Collection:
    """Documents with titles, a query for each, and judgements of four grades."""
    draw = random.Random(1)
    documents = []
    for number in range(count):
        words = draw.sample(tiny.WORDS, 8)
        documents.append(Document(f"{number:03}", " ".join(words[:2]), " ".join(words)))
    queries = {f"q{d.docno}": " ".join(draw.sample(d.text.split(), 3)) for d in documents}
    qrels = {}
    for number, document in enumerate(documents):
        others = [documents[(number + step) % count].docno for step in (1, 2, 3)]
        qrels[f"q{document.docno}"] = {document.docno: 4, others[0]: 3, others[1]: 2, others[2]: 1}
    return Collection(name="graded", documents=tuple(documents), queries=queries, qrels={"train": qrels})


@pytest.fixture(scope="module", params=[*tiny.FAMILIES, "encoder beside a prior"])
def made(request, tmp_path_factory):
    """A checkpoint of each family, and the backbone that pre-training makes of it."""
    folder = tmp_path_factory.mktemp("made")
    family, beside, _ = request.param.partition(" beside")
    checkpoint = tiny.save_checkpoint(folder / "checkpoint", family)
    out = folder / "backbone"
    pretrain(graded(), out, settings(checkpoint, WITH_PRIOR if beside else TRAINING))
    return checkpoint, out, folder / "backbone.model"


def test_what_was_learned_is_kept_and_the_rows_of_tokens_never_moved(made):
    checkpoint, out, folder = made
    assert is_own(out) and not is_own(checkpoint)
    trained = GR2.from_pretrained(folder)
    tokens = [int(token) for token in trained.alphabet]
    again = Network.build(out, tokens)
    start = Network.build(checkpoint, tokens, UNIT_NORM)
    moved = 0
    for name, value in trained.network.weights().items():
        if name.startswith("prior."):
            continue
        assert torch.equal(again.weights()[name], value), name
        moved += not torch.equal(start.weights()[name], value)
    assert moved > 5
    assert torch.equal(again.head.weight, start.head.weight)
    assert torch.equal(again.decoder.embed_tokens.weight, start.decoder.embed_tokens.weight)


def test_beside_a_prior_the_decoder_of_the_backbone_has_learned_to_write(tmp_path):
    checkpoint = tiny.save_checkpoint(tmp_path / "checkpoint", "encoder")
    data, out = graded(), tmp_path / "backbone"
    plan = with_settings(WITH_PRIOR, {"schedule.steps": 60, "optimiser.learning_rate": 3e-3})
    pretrain(data, out, settings(checkpoint, plan))
    docids = GR2.from_pretrained(tmp_path / "backbone.model").docids
    vectors = Encoder.load(out).encode([document.contents for document in data.documents])

    def loss(*, heard: bool) -> float:
        as_learned = replace(plan, freeze_embeddings=True)  # else the prior would scale the head down
        ready = prepare(data, docids, str(out), as_learned, vectors=vectors)
        if not heard:
            torch.nn.init.zeros_(ready.model.network.head.weight)
        network, batches = ready.model.network, Batches(ready.examples, plan.batches, seed=1)
        with torch.no_grad():
            each = [
                ready.objective(network, batch, *encoded(network, batch))["mle_q"]
                for batch in (batches[step] for step in range(8))
            ]
        return float(torch.stack(each).mean())

    assert loss(heard=True) < 0.9 * loss(heard=False)


def test_a_folder_that_may_not_be_replaced_is_refused_before_training(made, tmp_path):
    checkpoint, _, _ = made
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.txt").write_text("mine")
    with pytest.raises(ValueError, match="was not written by gr2"):
        pretrain(graded(), tmp_path / "letters", settings(checkpoint))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["letters"]


def test_tokens_that_pre_training_never_saw_have_rows(made):
    checkpoint, out, _ = made
    tokens = list(range(4, tiny.SIZE))
    one, two = Network.build(out, tokens), Network.build(checkpoint, tokens, UNIT_NORM)
    assert torch.equal(one.head.weight, two.head.weight) and len(one.head.weight) == FIRST + len(tokens)
    assert torch.equal(one.decoder.embed_tokens.weight, two.decoder.embed_tokens.weight)


def test_a_model_is_trained_from_it_saved_and_searched(made, tmp_path):
    _, out, _ = made
    data = graded(12)
    docids = build(
        SchemeContext(
            collection=data,
            backbone=str(out),
            folder=tmp_path / "making",
            config=SchemeConfig(scheme="title"),
        )
    )
    plan = with_settings(WITH_PRIOR, {"schedule.steps": 2})
    model = fit(data, docids, str(out), tmp_path / "model", plan)
    found = GR2.from_pretrained(tmp_path / "model").search("baka beke", k=3)
    assert [r.docno for r in found] == [r.docno for r in model.search("baka beke", k=3)]


def test_its_encoder_makes_the_vectors_that_it_trains_with(made):
    _, out, folder = made
    text = "baka beke duku"
    encoder = Encoder.load(out)
    network = GR2.from_pretrained(folder).network
    ids = torch.tensor([tokenizer_of(out)(text)["input_ids"]])
    with torch.inference_mode():
        states = network.encoder(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0]
    wanted = torch.nn.functional.normalize(states.mean(0), dim=0)
    torch.testing.assert_close(torch.from_numpy(encoder.encode([text])[0]), wanted, atol=1e-5, rtol=0)


def test_a_changed_byte_is_refused(made, tmp_path):
    import shutil

    _, out, _ = made
    copy = tmp_path / "copy"
    shutil.copytree(out, copy)
    path = copy / "weights.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"weights.safetensors: changed"):
        parts_of(copy, FreshDecoder())


def test_a_backbone_of_the_package_is_found_by_its_name_even_if_a_folder_has_it(made, tmp_path, monkeypatch):
    import shutil

    import gr2.model.backbone

    _, out, _ = made
    monkeypatch.setattr(gr2.model.backbone, "EMBEDDED", tmp_path / "package")
    shutil.copytree(out, tmp_path / "package" / "small")
    assert is_own("small") and not is_own("other")
    encoder = Encoder.load("small")
    assert encoder.name == "small" and encoder.encode(["baka beke"]).shape == (1, encoder.width)
    assert torch.equal(parts_of("small", FreshDecoder()).embedding, parts_of(out, FreshDecoder()).embedding)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small").mkdir()
    assert is_own("small")  # a folder that is no checkpoint hides nothing
    (tmp_path / "small" / "config.json").write_text("{}")
    assert is_own("small")  # nor does a checkpoint: what a name means must not depend on where gr2 runs
    assert not is_own("./small")


@pytest.mark.parametrize("pretrained", [False, True])
def test_beside_a_prior_a_head_starts_quiet_and_one_that_will_stand_still_does_not(made, pretrained):
    checkpoint, out, _ = made
    trie = Trie.from_sequences([[2], [3]], end=1)
    for scaled in (True, False):
        network = Network.build(out if pretrained else checkpoint, [4, 5])
        before = network.head.weight.detach().clone()
        vectors = torch.eye(2, network.encoder.config.hidden_size).numpy()
        network.attach_prior(Prior.build(trie, vectors), scale_head=scaled)
        torch.testing.assert_close(network.head.weight, before * (HEAD_SCALE if scaled else 1.0))


def test_the_embedded_backbone_is_whole_small_and_reads_texts_that_mean_the_same_alike():
    folder = EMBEDDED / "gr2-mini"
    verify(folder)
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) <= 30e6
    assert not parts_of("gr2-mini", FreshDecoder()).fresh and makes_vectors("gr2-mini")
    one, same, other = Encoder.load("gr2-mini").encode(["sort a list", "put items in order", "open a socket"])
    assert one @ same > one @ other + 0.1


@pytest.mark.parametrize("variant", ["gr2", "no-lambda", "no-max", "MLE", "CE", "LR"])
def test_from_the_command_line_every_variant_pre_trains_a_backbone_that_is_fine_tuned(gr2, tmp_path, variant):
    checkpoint = tiny.save_checkpoint(tmp_path / "checkpoint", "encoder")
    write_folder(graded(12), tmp_path / "links")
    small = ("--schedule.steps", 2, "--batches.queries", 4, "--batches.texts", 4, "--variant", variant)
    own = tmp_path / "own"
    start = ("--backbone", checkpoint, "--prior.vectors-per-document", 1)
    said = gr2("pretrain", tmp_path / "links", *start, "--out", own, *small)
    assert f"{variant}: a backbone after 2 steps, written to {own}" in said and is_own(own)
    docids = ("--scheme", "title", "--backbone", own, "--out", tmp_path / "docids")
    gr2("docids", "build", tmp_path / "links", *docids)
    model = ("--docids", tmp_path / "docids", "--backbone", own, "--out", tmp_path / "model")
    assert "12 docids, 2 steps" in gr2("train", tmp_path / "links", "--preset", "decoder", *model, *small)
    for folder in (tmp_path / "own.model", tmp_path / "model"):
        assert GR2.from_pretrained(folder).provenance["training"]["variant"] == variant
        lines = folder.with_name(f"{folder.name}.training").joinpath("joint", "metrics.jsonl").read_text()
        assert ("mgcc" in json.loads(lines.splitlines()[-1])) == (variant not in ("MLE", "CE", "LR"))
    assert graded(12).documents[3].docno in gr2("search", tmp_path / "model", graded(12).queries["q003"])
