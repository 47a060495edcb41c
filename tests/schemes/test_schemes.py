"""Docids of every scheme: unique, the same for the same seed, resumed, and learned by a model."""

import json
import random
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import tiny

from gr2.data.collection import Collection, Document
from gr2.data.formats import write_folder
from gr2.docids.clashes import add_documents, resolve_clashes
from gr2.docids.codes import DIGITS, code_tokeniser, written
from gr2.docids.docids import Docids
from gr2.docids.trie import Trie
from gr2.model.backbone import tokeniser
from gr2.model.config import GR2Config, NetworkConfig, SearchConfig
from gr2.model.gr2 import GR2
from gr2.model.network import FIRST, Network
from gr2.schemes.clusters import kmeans_paths
from gr2.schemes.config import FusionConfig, GeneratorConfig, SchemeConfig
from gr2.schemes.registry import SCHEMES, SchemeContext, build, trained_generator
from gr2.training.config import OptimiserConfig
from gr2.training.fit import fit

CODED = ("number", "kmeans", "pq", "rq", "codes-words")
WRITTEN = ("query", "fusion")
FAST = GeneratorConfig(
    fusion=FusionConfig(width=8, slots=2),
    steps=3,
    batch=8,
    optimiser=OptimiserConfig(learning_rate=1e-2, average=0.0),
    beams=3,
    query_tokens=6,
    tries=2,
)
SMALL = SchemeConfig(words=12, branches=4, max_leaf=10, code_length=4, codebook_size=16, generation=FAST)


def collection(documents, queries=None, train=None) -> Collection:
    qrels = {"train": train} if train else {}
    return Collection(name="toy", documents=tuple(documents), queries=queries or {}, qrels=qrels)


def with_queries(number: int = 30) -> Collection:
    documents = [
        Document(f"d{i:02}", tiny.some_words(i, 3), tiny.some_words(i), f"http://x.org/{i}")
        for i in range(number)
    ]
    queries = {f"q{i:02}": tiny.some_words(i, 4) for i in range(number)}
    train = {f"q{i:02}": {f"d{i:02}": 2, f"d{(i + 1) % number:02}": 1} for i in range(number)}
    return collection(documents, queries, train)


def made(
    scheme: str, documents, backbone: Path, folder: Path, *, resume=False, known_vectors=None, **settings
) -> Docids:
    data = documents if isinstance(documents, Collection) else collection(documents)
    context = SchemeContext(
        collection=data,
        backbone=str(backbone),
        folder=folder,
        config=replace(SMALL, scheme=scheme, **settings),
        resume=resume,
        known_vectors=known_vectors,
    )
    return build(context)


CORPORA = {
    "duplicates": [
        Document(f"d{i}", "baka beke", "Beki boko. Duku dake.", "http://a.b/c") for i in range(15)
    ],
    "without words": [
        *(Document(f"e{i}", " " * (i % 2), "\n" * (i % 3), f"http://a.b/{i % 2}") for i in range(6)),
        Document("a title", "baka beke", "", "http://a.b"),
        Document("a text", "", "Baka beke. Boko duku.", "http://a.b/"),
    ],
    "one": [Document("only", "baka beke", "beki boko", "http://x.y/z")],
    "unicode": [Document(f"u{i}", t, f"{t} {t}", f"http://x.y/{t}") for i, t in enumerate(tiny.UNICODE)],
}


def assert_sound(docids: Docids, documents: list[Document], backbone: Path) -> None:
    """Every document has one docid, no two have the same tokens, and tokens are what the text reads as."""
    assert docids.docnos == tuple(sorted(document.docno for document in documents))
    assert len(set(docids.tokens)) == len(set(docids.texts)) == len(documents)
    assert sum(docids.clashes.values()) == len(documents)
    if docids.about["scheme"] in CODED:
        tokens = {token for row in docids.tokens for token in row}
        assert min(tokens) >= 0 and max(tokens) < docids.about["codes"]
    else:
        assert "codes" not in docids.about
        assert list(map(list, docids.tokens)) == tokeniser(str(backbone))(list(docids.texts))
    assert len(Trie.build(*docids.flat(), end=10_000)) == len(documents)


@pytest.mark.parametrize("name", CORPORA)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_two_documents_share_their_tokens(t5, tmp_path, scheme, name):
    documents = CORPORA[name]
    assert_sound(made(scheme, documents, t5, tmp_path), documents, t5)


@pytest.mark.parametrize(
    ("scheme", "number"),
    [(scheme, 300 if scheme in WRITTEN else 10_000) for scheme in SCHEMES],
)
def test_many_documents_of_one_title(t5, tmp_path, scheme, number):
    documents = [Document(f"d{i}", "baka beke", "", "http://a.b") for i in range(number)]
    if scheme in WRITTEN:  # something to learn from
        documents = [document._replace(text=tiny.some_words(i % 50)) for i, document in enumerate(documents)]
    docids = made(scheme, documents, t5, tmp_path)
    assert_sound(docids, documents, t5)
    if scheme == "title":
        assert docids.clashes == {"rank 1": 1, "numbered": number - 1}
        numbers = {int(text.removeprefix("baka beke ")) for text in docids.texts if text != "baka beke"}
        assert numbers == set(range(2, number + 1)), "no number is left out"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_same_seed_gives_the_same_bytes_in_any_order(t5, tmp_path, scheme):
    documents = tiny.mixed_documents()
    shuffled = documents.copy()
    random.Random(3).shuffle(shuffled)
    for name, rows in (("one", documents), ("two", shuffled)):
        made(scheme, rows, t5, tmp_path / f"{name}.making", seed=5).save(tmp_path / name)
    one, two = ({p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in ("one", "two"))
    assert one == two and "docids.jsonl" in one
    assert ("codes.safetensors" in one) == (scheme in ("pq", "rq", "codes-words"))
    assert_sound(Docids.load(tmp_path / "one"), documents, t5)


@pytest.mark.parametrize("scheme", ["kmeans", "fusion"])
def test_another_seed_gives_other_docids(t5, tmp_path, scheme):
    writing = replace(FAST, radius=3.0, fusion=replace(FAST.fusion, latent_only=True), steps=20)
    one, two = (
        made(scheme, with_queries(), t5, tmp_path / str(seed), seed=seed, generation=writing)
        for seed in (0, 1)
    )
    assert one.texts != two.texts


@pytest.mark.parametrize("scheme", ["kmeans", "pq", "rq", "codes-words", "query", "fusion"])
def test_a_collection_without_any_word_is_refused_where_words_are_needed(t5, tmp_path, scheme):
    with pytest.raises(ValueError, match="a word in it|nothing to learn docids from"):
        made(scheme, [Document("a"), Document("b")], t5, tmp_path)


def test_what_cannot_be_named_is_refused(t5, tmp_path):
    with pytest.raises(
        ValueError, match="no docid scheme is called 'titel'; there are: auto, title, url, summary"
    ):
        made("titel", tiny.mixed_documents(), t5, tmp_path)
    for scheme in SCHEMES:
        with pytest.raises(ValueError, match="toy has no documents"):
            made(scheme, [], t5, tmp_path)
    with pytest.raises(ValueError, match="document 'd2' has no URL"):
        made("url", [Document("d1", url="a.b/c"), Document("d2", "title", "text")], t5, tmp_path)
    with pytest.raises(ValueError, match="power of 2.*12"):
        made("rq", tiny.mixed_documents(), t5, tmp_path, codebook_size=12)


def test_what_docids_say_of_themselves(t5, tmp_path):
    data = collection(tiny.mixed_documents())
    for scheme, expected in {
        "title": {"words": 12},
        "number": {"codes": 2 * 10 + DIGITS},
        "kmeans": {"branches": 4, "leaf": 10},
        "rq": {"places": 4, "codes": 4 * 16 + DIGITS},
        "query": {"generator": t5.name, "steps": 3, "seed": 0},
        "fusion": {"generator": t5.name, "steps": 3, "seed": 0, "radius": 2.0},
    }.items():
        about = made(scheme, data, t5, tmp_path / scheme).about
        common = {"scheme": scheme, "backbone": t5.name, "fingerprint": data.fingerprint}
        assert {**common, **expected}.items() <= about.items()
    assert "radius" not in made("query", data, t5, tmp_path / "again").about


def test_numbers_are_all_places_and_follow_no_order_of_docnos(t5, tmp_path):
    docids = made("number", [Document(f"n{i:03}") for i in reversed(range(101))], t5, tmp_path)
    numbers = [int(text.replace("-", "")) for text in docids.texts]
    assert sorted(numbers) == list(range(101)) and {len(text) for text in docids.texts} == {5}
    nearer = [abs(a - b) for a, b in zip(numbers, numbers[1:], strict=False)]
    assert np.mean(nearer) > 20, "neighbours among docnos would be about a third of 101 apart by chance"
    fewer = made("number", [Document(f"n{i:03}") for i in range(100)], t5, tmp_path)
    assert fewer.texts[0].count("-") == 1
    assert docids.tokens[docids.docnos.index(docids.docno["0-1-2"])] == (0, 10 + 1, 20 + 2)


def test_a_long_text_is_cut_in_its_middle_so_that_numbers_stay(t5):
    read = tokeniser(str(t5), max_tokens=8)
    long = " ".join(tiny.WORDS[:20])
    plain, second, third = read([long, f"{long} 2", f"{long} 13"])
    assert list(map(len, (plain, second, third))) == [8, 8, 8]
    assert len({*map(tuple, (plain, second, third))}) == 3 and plain[:4] == second[:4] == third[:4]
    assert read([]) == [] and read(["baka"]) == [[len(tiny.SPECIAL) + 10]]
    docids = resolve_clashes({f"{i:02}": [(long, 0.0)] for i in range(60)}, read)
    assert len(set(docids.tokens)) == 60 and set(map(len, docids.tokens)) == {8}


def some_vectors(number: int, width: int = 12, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((number, width)).astype(np.float32)


def test_known_vectors_are_used_as_they_are(t5, tmp_path):
    vectors = some_vectors(40, 6)
    data = collection([Document(f"d{i:02}") for i in range(40)])
    docids = made("kmeans", data, t5, tmp_path, known_vectors=vectors)
    assert list(docids.texts) == list(map(written, kmeans_paths(vectors, branches=4, leaf=10)))
    assert not list(tmp_path.iterdir()), "nothing was encoded"


# Codes and the model.


def test_a_new_document_of_known_codes_gets_a_number_behind_them(t5, tmp_path):
    docids = made("rq", tiny.mixed_documents(), t5, tmp_path)
    first = docids.texts[0]
    after = add_documents(docids, {"new": [(first, 0.0)]}, code_tokeniser([16] * 4), fingerprint="")
    numbered = after.texts[after.index["new"]]
    assert numbered.startswith(f"{first} ") and numbered not in docids.texts
    digits = tuple(4 * 16 + int(digit) for digit in numbered.partition(" ")[2])
    assert after.tokens[after.index["new"]] == docids.tokens[0] + digits
    assert np.array_equal(after.code_vectors, docids.code_vectors)


def test_vectors_of_codes_reach_the_decoder_s_rows(checkpoints, tmp_path):
    for family, backbone in checkpoints.items():
        docids = made("rq", tiny.mixed_documents(), backbone, tmp_path / family)
        assert docids.code_vectors is not None
        assert docids.code_vectors.shape == (4 * 16 + DIGITS, 32)
        model = GR2.fresh(backbone, docids, GR2Config(normaliser="vocabulary", max_tokens=64), seed=2)
        plain = Network.build(backbone, len(model.alphabet), NetworkConfig(), seed=2)
        vectors = torch.from_numpy(docids.code_vectors[model.alphabet])
        known = vectors.norm(dim=1) > 0
        assert known.any() and not known.all(), "digits have no vector"
        for found, before in (
            (model.network.decoder.embed_tokens.weight, plain.decoder.embed_tokens.weight),
            (model.network.head.weight, plain.head.weight),
        ):
            rows, fresh = found[FIRST:].detach(), before[FIRST:].detach()
            assert torch.equal(found[:FIRST], before[:FIRST]) and torch.equal(rows[~known], fresh[~known])
            scale = rows[known].norm(dim=1) / vectors[known].norm(dim=1)
            torch.testing.assert_close(rows[known], vectors[known] * scale.mean())
            assert float(rows[known].norm(dim=1).mean()) == pytest.approx(
                float(fresh.norm(dim=1).mean()), rel=1e-4
            )


def test_vectors_of_another_width_change_nothing(t5, tmp_path):
    docids = made("pq", tiny.mixed_documents(), t5, tmp_path, known_vectors=some_vectors(40, 6))
    model = GR2.fresh(t5, docids, GR2Config(normaliser="vocabulary", max_tokens=64), seed=2)
    plain = Network.build(t5, len(model.alphabet), NetworkConfig(), seed=2)
    assert all(torch.equal(value, plain.weights()[name]) for name, value in model.network.weights().items())


@pytest.mark.parametrize(
    ("scheme", "family"),
    [("number", "t5"), ("kmeans", "t5"), ("pq", "bart"), ("rq", "t5"), ("rq", "encoder")],
)
def test_a_model_learns_codes_and_answers_from_its_folder(checkpoints, tmp_path, scheme, family):
    data, backbone = with_queries(), checkpoints[family]
    docids = made(scheme, data, backbone, tmp_path / "making")
    settings = {
        "schedule.steps": 2,
        "batches.queries": 6,
        "batches.texts": 6,
        "prior.vectors_per_document": float(scheme == "rq"),
    }
    model = fit(data, docids, str(backbone), tmp_path / "model", tiny.training(settings))
    again = GR2.from_pretrained(tmp_path / "model")
    assert replace(again.docids, code_vectors=None) == replace(docids, code_vectors=None)
    for query in (data.queries["q03"], "unheard of", ""):
        found = again.search(query, k=7)
        assert found == model.search(query, k=7)
        assert len({result.docno for result in found}) == 7
        assert all(docids.texts[docids.index[result.docno]] == result.docid for result in found)
    everything = again.search(data.queries["q03"], len(docids), SearchConfig(beams=len(docids)))
    assert sorted(result.docno for result in everything) == list(docids.docnos)


# Docids that a model writes.


@pytest.mark.parametrize("scheme", WRITTEN)
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_every_family_writes_docids(checkpoints, tmp_path, scheme, family):
    data, backbone = with_queries(), checkpoints[family]
    docids = made(scheme, data, backbone, tmp_path, generation=replace(FAST, steps=25))
    assert_sound(docids, list(data.documents), backbone)
    assert docids.about["targets"] == "titles and leading sentences"
    assert docids.about["generator"] == backbone.name
    model = GR2.fresh(backbone, docids, GR2Config(normaliser="vocabulary", max_tokens=64))
    assert {result.docno for result in model.search("baka", k=5)} <= set(docids.docnos)


@pytest.mark.parametrize(("scheme", "regularised"), [("query", False), ("fusion", True)])
def test_only_fusion_has_the_latent_space(t5, tmp_path, monkeypatch, scheme, regularised):
    seen = []

    def stop(collection, backbone, config, **options):
        seen.append(config.fusion.regularised)
        raise KeyboardInterrupt

    monkeypatch.setattr("gr2.schemes.fusion.generator.DocidGenerator.of", stop)
    with pytest.raises(KeyboardInterrupt):
        made(scheme, with_queries(), t5, tmp_path, generation=FAST)
    assert seen == [regularised]


def test_another_checkpoint_may_write_than_the_one_that_reads(checkpoints, tmp_path):
    backbone, generator = checkpoints["encoder"], checkpoints["bart"]
    docids = made("fusion", with_queries(), backbone, tmp_path, generator=str(generator))
    assert (docids.about["backbone"], docids.about["generator"]) == (backbone.name, generator.name)
    assert_sound(docids, list(with_queries().documents), backbone)


@pytest.mark.parametrize(("number", "targets"), [(199, "titles and leading sentences"), (200, "queries")])
def test_it_is_said_what_docids_were_learned_from(t5, tmp_path, number, targets):
    data = with_queries()
    queries = {f"q{i:03}": tiny.some_words(i, 3) for i in range(number)}
    train = {qid: {f"d{i % 30:02}": 1} for i, qid in enumerate(queries)}
    docids = made("query", replace(data, queries=queries, qrels={"train": train}), t5, tmp_path)
    assert docids.about["targets"] == targets
    docids.save(tmp_path / "docids")
    assert Docids.load(tmp_path / "docids").about["targets"] == targets


@pytest.mark.parametrize("round_trip", [0.0, 3.0])
def test_docids_know_how_their_proposals_compare_in_both_orders(t5, tmp_path, round_trip):
    how = replace(FAST, round_trip=round_trip)
    docids = made("query", with_queries(), t5, tmp_path, generation=how)
    likelihood, other = docids.about["orders"]
    assert (likelihood["round_trip"], other["round_trip"]) == (0.0, round_trip or 1.0)
    assert likelihood["documents"] == other["documents"] == 30 and other["mrr"] >= likelihood["mrr"]
    assert docids.unique == round(30 * (other if round_trip else likelihood)["unique"])
    docids.save(tmp_path / "docids")
    assert Docids.load(tmp_path / "docids").about["orders"] == [likelihood, other]


def test_questions_that_were_asked_before_are_not_asked_again(t5, tmp_path, monkeypatch):
    known = {"d03": ["who is three", "what is three", "why three"]}
    context = SchemeContext(
        collection=with_queries(),
        backbone=str(t5),
        folder=tmp_path,
        config=replace(SMALL, scheme="query", generation=replace(FAST, own_questions=2)),
        known_questions=known,
    )
    monkeypatch.setattr(
        "gr2.schemes.fusion.generator.DocidGenerator.propose", None
    )  # asking anything would fail
    pairs = trained_generator(context, regularised=False).pairs
    asked = [q for d, q in zip(pairs.docnos, pairs.queries, strict=True) if d == "d03" and "three" in q]
    assert asked == known["d03"][:2] and pairs.targets.endswith("and own questions")


def test_what_was_taken_is_sampled_again_only_with_a_radius(t5, tmp_path):
    """Eight documents, four times each: without r each try would write the same once more."""
    documents = [
        Document(f"d{i:02}", tiny.some_words(i % 8, 3), tiny.some_words(i % 8 + 20)) for i in range(32)
    ]
    writing = replace(FAST, steps=40, beams=2, fusion=replace(FAST.fusion, latent_only=True))
    clashes, attempts = {}, {}
    for scheme, radius in (("fusion", 3.0), ("fusion", 0.0), ("query", 3.0)):
        folder = tmp_path / f"{scheme} {radius}"
        docids = made(scheme, documents, t5, folder, generation=replace(writing, radius=radius))
        clashes[folder.name] = docids.clashes
        attempts[folder.name] = {path.name.split("-")[1] for path in folder.rglob("proposals-*")}
    assert clashes["fusion 3.0"]["resampled"] and attempts["fusion 3.0"] == {"0", "1", "2"}
    for name in ("fusion 0.0", "query 3.0"):
        assert "resampled" not in clashes[name] and clashes[name]["numbered"] and attempts[name] == {"0"}


def test_an_interrupted_making_goes_on_to_the_same_bytes(t5, tmp_path, monkeypatch):
    import gr2.schemes.fusion.generator as writing

    monkeypatch.setattr(writing, "CHUNK", 8)
    monkeypatch.setattr(writing, "SHARD", 1)
    make = partial(made, "fusion", tiny.mixed_documents(), t5)
    make(tmp_path / "whole.making").save(tmp_path / "whole")
    write, calls = writing.DocidGenerator.write, []

    def broken(self, chunk, **options):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return write(self, chunk, **options)

    with monkeypatch.context() as patch:
        patch.setattr(writing.DocidGenerator, "write", broken)
        with pytest.raises(KeyboardInterrupt):
            make(tmp_path / "twice.making")
    with pytest.raises(ValueError, match="resume"):
        make(tmp_path / "twice.making")
    make(tmp_path / "twice.making", resume=True).save(tmp_path / "twice")
    for name in ("docids.jsonl", "docids.json"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "twice" / name).read_bytes()


def test_resuming_after_the_documents_changed_hands_out_nothing_of_the_old_ones(t5, tmp_path):
    """The same docnos and words, but each document has the contents of the next one."""
    documents = list(with_queries().documents)
    turned = [
        document._replace(docno=before.docno)
        for before, document in zip(documents, documents[1:] + documents[:1], strict=True)
    ]
    writing = replace(FAST, steps=30, radius=0.0)
    wanted = made("fusion", turned, t5, tmp_path / "fresh", generation=writing)
    made("fusion", documents, t5, tmp_path / "used", generation=writing)
    assert wanted != made("fusion", documents, t5, tmp_path / "old", generation=writing)
    with pytest.raises(ValueError, match="another collection; it cannot be resumed"):
        made("fusion", turned, t5, tmp_path / "used", generation=writing, resume=True)


@pytest.mark.parametrize("changed", ["documents", "backbone"])
def test_vectors_of_another_making_are_not_taken_for_these(checkpoints, tmp_path, changed):
    """A folder may hold the vectors of other documents, or of another encoder."""
    documents, backbone = tiny.mixed_documents(), checkpoints["t5"]
    made("kmeans", documents, backbone, tmp_path / "used")
    if changed == "documents":
        documents = [document._replace(text=tiny.some_words(i + 500)) for i, document in enumerate(documents)]
    else:
        backbone = checkpoints["encoder"]
    wanted = made("kmeans", documents, backbone, tmp_path / "fresh")
    assert made("kmeans", documents, backbone, tmp_path / "used") == wanted


def test_resuming_with_another_radius_does_not_hand_out_what_the_first_one_wrote(t5, tmp_path):
    writing = replace(FAST, steps=30, fusion=replace(FAST.fusion, latent_only=True), radius=0.0)
    far = replace(writing, radius=4.0)
    wanted = made("fusion", with_queries(), t5, tmp_path / "far", generation=far)
    near = made("fusion", with_queries(), t5, tmp_path / "both", generation=writing)
    assert near.texts != wanted.texts
    assert made("fusion", with_queries(), t5, tmp_path / "both", generation=far, resume=True) == wanted


def test_resuming_for_another_tokenizer_resamples_for_those_that_clash_there(checkpoints, tmp_path):
    """Who clashes depends on the backbone's tokens; the generator and what it first wrote are the same."""
    documents = [
        Document(f"d{i:02}", tiny.some_words(i % 8, 3), tiny.some_words(i % 8 + 20)) for i in range(32)
    ]
    writing = replace(FAST, steps=40, beams=2, radius=3.0, fusion=replace(FAST.fusion, latent_only=True))
    generator = str(checkpoints["t5"])
    make = partial(made, "fusion", documents, generator=generator, generation=writing)
    other = tiny.save_checkpoint(tmp_path / "other", "t5")
    tiny.save_tokenizer(other, tiny.WORDS[:10])  # all others are one unknown word
    wanted = make(other, tmp_path / "fresh")
    first = make(checkpoints["t5"], tmp_path / "both")
    again = make(other, tmp_path / "both", resume=True)
    assert first.clashes != wanted.clashes and again == wanted
    assert sum(again.clashes.values()) == 32


@pytest.mark.parametrize("scheme", WRITTEN)
def test_the_number_of_shards_changes_no_docid(t5, tmp_path, monkeypatch, scheme):
    import gr2.schemes.fusion.generator as writing

    monkeypatch.setattr(writing, "CHUNK", 5)
    found = {}
    for shards, size in ((1, 100), (4, 2)):
        monkeypatch.setattr(writing, "SHARD", size)
        folder = tmp_path / f"{shards}.making"
        made(scheme, tiny.mixed_documents(), t5, folder).save(tmp_path / str(shards))
        assert len(list(folder.rglob("proposals-0-*"))) == shards
        found[shards] = {p.name: p.read_bytes() for p in (tmp_path / str(shards)).iterdir()}
    assert found[1] == found[4]


def test_docids_of_another_tokenizer_are_refused(checkpoints, tmp_path):
    docids = made("title", with_queries(), checkpoints["t5"], tmp_path)
    other = tiny.save_checkpoint(tmp_path / "other", "t5")
    tiny.save_tokenizer(other, tiny.WORDS[::-1])
    with pytest.raises(ValueError, match=f"built for the tokens of {checkpoints['t5'].name}.*--backbone"):
        GR2.fresh(other, docids, GR2Config(normaliser="vocabulary", max_tokens=64))
    GR2.fresh(checkpoints["t5"], docids, GR2Config(normaliser="vocabulary", max_tokens=64))


def test_another_encoder_makes_the_vectors_on_request(checkpoints, tmp_path):
    t5, encoder = checkpoints["t5"], checkpoints["encoder"]
    docids = made("kmeans", tiny.mixed_documents(), t5, tmp_path / "a", encoder=str(encoder))
    assert docids.texts == made("kmeans", tiny.mixed_documents(), encoder, tmp_path / "b").texts
    assert docids.texts != made("kmeans", tiny.mixed_documents(), t5, tmp_path / "c").texts
    assert docids.about["encoder"] == encoder.name and docids.about["backbone"] == t5.name


def test_the_command_line_knows_every_scheme(gr2):
    listed = [line.split()[0] for line in gr2("docids", "schemes").splitlines() if line.strip()]
    assert {*SCHEMES, "auto"} <= set(listed)


def test_from_radius_to_report_on_the_command_line(gr2, t5, tmp_path):
    data = with_queries()
    folder, out = tmp_path / "data", tmp_path / "docids"
    write_folder(data, folder)
    common = (folder, "--backbone", t5, "--out", out, "--generation.steps", 2)
    told = gr2(
        "docids", "radius", *common, "--radii", 0, 1.5, "--max-documents", 10, "--json", tmp_path / "r.json"
    )
    assert "unique docids of 10" in told and "keep 95% of both relevances" in told
    assert [row["radius"] for row in json.loads((tmp_path / "r.json").read_text())] == [0, 1.5]
    with pytest.raises(SystemExit, match="resume"):
        gr2("docids", "build", *common, "--scheme", "fusion")
    built = gr2("docids", "build", *common, "--scheme", "fusion", "--generation.radius", 1.5, "--resume")
    assert built.splitlines()[-1].startswith("fusion: 30 docids (")
    about = Docids.load(out).about
    assert (about["radius"], about["steps"], about["beams"], about["document_tokens"]) == (1.5, 2, 10, 128)
    told = gr2("docids", "report", out, folder, "--json", tmp_path / "health.json", "--max-documents", 5)
    assert "unique proposals" in told and "BM25 k1=0.9 b=0.4" in told and "radius 1.5" in told
    assert json.loads((tmp_path / "health.json").read_text())["retrieval"]["documents"] == 5
    (out / "mine").write_text("a note")
    with pytest.raises(SystemExit, match="mine: was not written by gr2"):  # before any training
        gr2("docids", "build", *common, "--scheme", "fusion", "--resume")
    with pytest.raises(SystemExit, match="mine: was added after the folder was written"):
        gr2("docids", "show", out, "d07")
    (out / "mine").unlink()
    assert json.loads(gr2("docids", "show", out, "d07"))["docid"] == Docids.load(out).texts[7]
