"""Learning from judgements: what is gained is measured on queries that were not seen, and nothing is lost."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from helpers import judged, tiny

from gr2.data.documents import NAME
from gr2.judge.judged_queries import JudgedQueries
from gr2.model.encoder import Encoder
from gr2.model.gr2 import GR2, JUDGED
from gr2.model.vector_storage import Int8Vectors
from gr2.store import MANIFEST, extended_folder, sha256, verify, write_json, write_manifest
from gr2.training import estimate, selection
from gr2.training.candidates import Candidate
from gr2.training.estimate import LEAST
from gr2.training.regression import RegressionConfig
from gr2.workflows import learn as learning
from gr2.workflows.learn import learn
from gr2.workflows.versions import versions

MEMORY = [Candidate(), Candidate(memory=1.0)]
OFFSETS = [Candidate(), Candidate(RegressionConfig())]


@pytest.fixture(scope="module", autouse=True)
def few_candidates():
    """Memory alone, instead of sixty candidates: the choice among all of them has tests of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "candidates", lambda *arguments, **options: MEMORY)
        yield


@pytest.fixture(scope="module")
def untaught(bert, tmp_path_factory):
    """A model that has learned nothing."""
    return judged.train_model(tmp_path_factory.mktemp("untaught") / "model", bert)


@pytest.fixture
def model(untaught, tmp_path):
    """A copy of it."""
    return shutil.copytree(untaught, tmp_path / "model")


@pytest.fixture(scope="module")
def taught(untaught, tmp_path_factory):
    """What learning from thirty queries says, and the folder it wrote."""
    out = tmp_path_factory.mktemp("taught") / "model"
    return learn(untaught, judged.judged(), out)


def content(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --- what is learned


def test_queries_that_were_not_seen_are_ranked_better_and_the_sentence_says_so(taught):
    assert taught.learned and taught.queries == 30
    assert taught.gain.queries == 30
    assert taught.gain.gain == pytest.approx(taught.gain.after - taught.gain.before)
    assert taught.gain.gain > 0.1 and taught.gain.low > 0 and taught.gain.p < 0.01
    assert taught.sentence.startswith("Learned from 30 judged queries in ")
    for value in (taught.gain.before, taught.gain.after):
        assert f"{value:.3f}".removeprefix("0") in taught.sentence


def test_the_measured_gain_is_found_again_on_new_queries(taught, untaught):
    """An oracle for the whole estimate: queries that exist nowhere else."""
    fresh = judged.judged(30, first=100)
    values = []
    for folder in (untaught, taught.out):
        look_ahead, encoder = (
            GR2.from_pretrained(folder).look_ahead,
            GR2.from_pretrained(folder).query_encoder,
        )
        queries = learning.encoded(fresh, encoder)
        places = {docno: place for place, docno in enumerate(look_ahead.docnos)}
        found = estimate.ndcg(look_ahead.scores(queries.texts, queries.vectors), queries.judged, places)
        values.append(np.mean(found))
    before, after = values
    assert before < taught.gain.before + 0.15
    assert after - before > taught.gain.low - 0.1, "the band promised more than new queries get"


def test_judgements_without_sense_change_no_byte_and_nothing_is_written(model, tmp_path):
    before = content(tmp_path)
    found = learn(model, judged.judged(sense=False), tmp_path / "out")
    assert not found.learned and found.gain is not None and found.out is None
    assert found.sentence.startswith("No gain yet: the model stays as it is.")
    assert content(tmp_path) == before


def test_too_few_queries_are_no_error_and_the_sentence_says_how_many_are_needed(model, tmp_path):
    few = judged.judged(LEAST - 1)
    irrelevant = {"n1": {"d01": 0}, "n2": {"d02": 0}}  # judged, but nothing can be learned from them
    given = JudgedQueries({**few.queries, "n1": "beka", "n2": "bike"}, {**few.qrels, **irrelevant})
    found = learn(model, given, model)
    assert not found.learned and found.gain is None and found.queries == LEAST - 1
    assert f"{LEAST - 1} judged queries" in found.sentence and f"at least {LEAST}" in found.sentence
    assert not model.with_name("model.versions").exists()


def test_only_queries_are_encoded(model, monkeypatch):
    seen = set()
    real = Encoder.encode

    def noting(self, texts, **options):
        seen.update(texts)
        return real(self, texts, **options)

    monkeypatch.setattr(Encoder, "encode", noting)
    assert learn(model, judged.judged(), model).learned
    assert seen == set(judged.judged().queries.values())


def test_the_order_of_judgements_and_the_names_of_queries_change_no_byte_of_what_is_learned(
    untaught, taught, tmp_path
):
    given = judged.judged()
    rows = {f"other-{qid}": dict(reversed(row.items())) for qid, row in reversed(given.qrels.items())}
    again = JudgedQueries({f"other-{qid}": text for qid, text in given.queries.items()}, rows)
    assert learn(untaught, again, tmp_path / "out").learned
    for name in ("look_ahead/look_ahead.safetensors", "look_ahead/look_ahead.json"):
        assert (tmp_path / "out" / name).read_bytes() == (taught.out / name).read_bytes()


def test_a_model_in_eight_bits_stays_in_eight_bits(bert, tmp_path, monkeypatch):
    monkeypatch.setattr(selection, "candidates", lambda *arguments, **options: OFFSETS)
    folder = judged.train_model(tmp_path / "small", bert, **{"look_ahead.storage": "int8"})
    assert learn(folder, judged.judged(), folder).learned
    found = GR2.from_pretrained(folder).look_ahead
    assert isinstance(found.vectors, Int8Vectors)
    assert isinstance(found.offsets, Int8Vectors)


# --- honesty


def test_no_query_is_measured_by_what_was_learned_from_it(untaught, tmp_path, monkeypatch):
    """Neither the candidate nor the offsets of a fold may come from its queries, however they are written."""
    given = judged.judged()
    texts = {qid: text.upper() if qid == "q3" else text for qid, text in given.queries.items()}
    twice = JudgedQueries({**texts, "again": given.queries["q3"]}, {**given.qrels, "again": {"d00": 2}})
    learned, real_learn, real_ndcg = [], estimate.learn_look_ahead, estimate.ndcg
    measured = []

    def noting(views, splits, **options):
        learned.append({text.casefold() for text in splits["train"].texts})
        return real_learn(views, splits, **options)

    def scored(scores, rows, docnos):
        measured.append([frozenset(row) for row in rows])
        return real_ndcg(scores, rows, docnos)

    monkeypatch.setattr(estimate, "learn_look_ahead", noting)
    monkeypatch.setattr(estimate, "ndcg", scored)
    assert learn(untaught, twice, tmp_path / "out").gain.queries == 30, "the same text is one query"
    assert len(learned) == estimate.FOLDS
    everything = {text.casefold() for text in given.queries.values()}
    held = [everything - some for some in learned]
    assert set().union(*held) == everything and sum(map(len, held)) == 30
    assert [len(rows) for rows in measured[::2]] == [len(some) for some in held]


def test_a_model_that_knew_the_queries_is_compared_without_them(taught):
    model = GR2.from_pretrained(taught.out)
    views = learning.views_of(model, taught.out)
    keys = sorted(model.judged.keys())
    before = learning._Before(model, views, keys)
    known = before([0, 1, 2])
    assert known is not model.look_ahead
    assert len(known.memory.queries) == len(model.look_ahead.memory.queries) - 3
    everything = before(list(range(len(keys))))
    assert everything.offsets is None and everything.memory is None
    fresh = learning._Before(model, views, ["a query that it never saw"])
    assert fresh([0]) is model.look_ahead


def test_learning_again_from_the_same_judgements_gains_nothing(taught, tmp_path):
    """If the earlier model were compared as it is, it would know all answers and lose by far."""
    folder = shutil.copytree(taught.out, tmp_path / "model")
    found = learn(folder, judged.judged(), folder)
    assert not found.learned
    assert abs(found.gain.gain) < 0.1
    as_it_is = GR2.from_pretrained(folder)
    queries = learning.encoded(judged.judged(), as_it_is.query_encoder)
    places = {docno: place for place, docno in enumerate(as_it_is.look_ahead.docnos)}
    known = estimate.ndcg(as_it_is.look_ahead.scores(queries.texts, queries.vectors), queries.judged, places)
    assert np.mean(known) > found.gain.before


# --- what a model remembers


def test_a_model_keeps_what_it_learned_from_and_later_judgements_are_merged_over_it(taught, tmp_path):
    assert GR2.from_pretrained(taught.out).judged.qrels == judged.judged().over().qrels
    folder = shutil.copytree(taught.out, tmp_path / "model")
    more = judged.judged(24, first=100)
    changed = {**more.qrels, "new": {"d00": 0, "d05": 2}}
    given = JudgedQueries({**more.queries, "new": judged.judged().queries["q0"]}, changed)
    pool = given.over(GR2.from_pretrained(folder).judged)
    assert len(pool.qrels) == 30 + 24
    merged = pool.qrels["new"]
    assert merged["d00"] == 0 and merged["d05"] == 2, "the later grade counts"
    assert merged["d06"] == judged.judged().qrels["q0"]["d06"], "earlier grades stay"


def test_index_writes_what_it_learned_from_and_a_changed_byte_is_refused(bert, tmp_path):
    data = tiny.graded()
    from gr2.systems.config import GenerativeConfig
    from gr2.training.fit import fit

    out = tmp_path / "model"
    made = fit(data, tiny.titles(data, bert), str(bert), out, GenerativeConfig().training)
    kept = GR2.from_pretrained(out).judged
    assert kept == made.judged
    assert kept.qrels == data.split("train")
    assert kept.queries == {qid: data.queries[qid] for qid in data.split("train")}
    (out / JUDGED).write_text((out / JUDGED).read_text().replace("3", "2", 1))
    with pytest.raises(ValueError, match=JUDGED):
        GR2.from_pretrained(out)


def test_a_folder_of_an_earlier_version_loads_and_learns(model):
    (model / JUDGED).unlink()
    write_manifest(model)
    assert GR2.from_pretrained(model).judged is None
    assert learn(model, judged.judged(), model).learned
    assert len(GR2.from_pretrained(model).judged.qrels) == 30


def test_learning_into_the_folder_itself_keeps_the_earlier_model(model):
    (model / "report.html").write_text("as it was indexed")
    measured = {
        "collection": "shop",
        "fingerprint": "f",
        "split": "test",
        "queries": 3,
        "convention": "gain g",
    }
    write_json(model / "measures.json", measured | {"means": {"nDCG@20": 0.12345}})
    write_manifest(model)
    digest = sha256(model / MANIFEST)
    assert learn(model, judged.judged(), model).learned
    earlier, present = versions(model)
    assert sha256(earlier.folder / MANIFEST) == digest
    for name in ("report.html", "measures.json"):
        assert not (model / name).exists(), "it described the earlier model"
    assert "Measures" not in (model / "README.md").read_text()
    assert present.current and present.queries == 30 and present.gain > 0
    verify(model)


# --- errors


@pytest.mark.parametrize("count", [1, 7])
def test_documents_that_the_model_does_not_have_are_named(model, count):
    given = judged.judged()
    unknown = {f"x{number}": 1 for number in range(count)}
    with pytest.raises(ValueError, match="judged documents that the model does not have: 'x0'") as error:
        learn(model, JudgedQueries(given.queries, {**given.qrels, "q0": unknown}), model)
    assert ("and 2 more" in str(error.value)) == (count == 7)


def test_a_judged_query_without_text_is_named(model):
    with pytest.raises(ValueError, match="'q9' is judged but has no text"):
        learn(model, JudgedQueries({"q1": "baka"}, {"q1": {"d01": 1}, "q9": {"d01": 1}}), model)


def test_a_model_without_look_ahead_is_refused(served_folder):
    with pytest.raises(ValueError, match="has no look-ahead"):
        learn(served_folder, judged.judged(), served_folder)


def test_a_model_without_documents_is_refused(model):
    (model / NAME).unlink()
    write_manifest(model)
    with pytest.raises(ValueError, match=f"has no {NAME}"):
        learn(model, judged.judged(), model)


def test_a_model_whose_decoder_was_trained_on_top_is_refused(model):
    changed = GR2.from_pretrained(model)
    changed.look_ahead = changed.look_ahead.with_config(replace(changed.look_ahead.config, residual=2.0))
    with extended_folder(model) as temporary:
        changed.save_learned(temporary)
    with pytest.raises(ValueError, match="index the collection again"):
        learn(model, judged.judged(), model)


def test_a_folder_that_is_no_model_is_refused(tmp_path):
    with pytest.raises(ValueError, match="expected a model folder"):
        learn(tmp_path, judged.judged(), tmp_path)


def test_a_folder_that_holds_something_else_is_not_replaced(model, tmp_path):
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "corpus.jsonl").write_text("{}")
    with pytest.raises(ValueError, match="shop: holds something else than a model"):
        learn(model, judged.judged(), tmp_path / "shop")
    assert [path.name for path in (tmp_path / "shop").iterdir()] == ["corpus.jsonl"]


def test_a_model_that_changed_meanwhile_is_not_replaced(model, monkeypatch):
    real = learning.estimate_gain

    def meanwhile(*arguments, **options):
        (model / "config.json").write_text(json.dumps(json.loads((model / "config.json").read_text())))
        write_manifest(model)
        return real(*arguments, **options)

    monkeypatch.setattr(learning, "estimate_gain", meanwhile)
    with pytest.raises(ValueError, match="another process has changed this model"):
        learn(model, judged.judged(), model)
    assert GR2.from_pretrained(model).judged.qrels == {}
