"""The decoder as a residual on look-ahead: exact search against reading everything, training, resuming."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import tiny

from gr2.model.bounded_search import best_with_residual
from gr2.model.config import LookAheadConfig
from gr2.model.docid_reader import DocidReader
from gr2.model.padding import padded
from gr2.model.searcher import SearchRequest
from gr2.store import Workspace
from gr2.training.candidates import Candidate
from gr2.training.config import with_settings
from gr2.training.fit import fit
from gr2.training.judged import TrainingSet
from gr2.training.learner import Learner
from gr2.training.plain_views import PlainViews
from gr2.training.regression import RegressionConfig
from gr2.training.regression_loss import Judged, loss_of
from gr2.training.residual import (
    CANDIDATES,
    FOLDS,
    ResidualBatches,
    ResidualExamples,
    ResidualObjective,
    residual_examples,
)
from gr2.training.teacher_forcing import TeacherForcing

SETTINGS = {
    "look_ahead.enabled": True,
    "look_ahead.weights.residual": 3.0,
    "schedule.steps": 0,
    "schedule.frozen_steps": 6,
    "prior.vectors_per_document": 0.0,
}


@pytest.fixture(scope="module")
def data():
    return tiny.collection(30)


@pytest.fixture(scope="module")
def config():
    return with_settings(tiny.training(tiny.FAST | {"schedule.steps": 0}), SETTINGS)


@pytest.fixture(scope="module")
def model(data, config, checkpoints, tmp_path_factory):
    out = tmp_path_factory.mktemp("residual") / "model"
    docids = tiny.titles(data, checkpoints["encoder"])
    return fit(data, docids, str(checkpoints["encoder"]), out, config)


@pytest.mark.parametrize("seed", range(40))
def test_the_best_are_those_of_reading_everything(seed):
    draw = np.random.default_rng(seed)
    count, k, weight = int(draw.integers(1, 200)), int(draw.integers(1, 30)), float(draw.choice([0.5, 2, 9]))
    phi = draw.normal(0, draw.choice([0.1, 1, 5]), count).astype(np.float32).round(1)  # with ties
    near = draw.random(count).astype(np.float32).round(1)
    allowed = None if seed % 2 else sorted(draw.choice(count, max(1, count // 2), replace=False).tolist())
    known = np.arange(count) if allowed is None else np.array(allowed)
    total = phi + np.float32(weight) * near
    wanted = known[np.lexsort((-known, -total[known]))][:k]
    places, found = best_with_residual(phi, k, weight, lambda some: near[some], allowed, chunk=4)
    assert places.tolist() == wanted.tolist()
    np.testing.assert_array_equal(found, near[wanted])


def test_only_documents_that_can_enter_are_read():
    phi, read = np.arange(100, 0, -1).astype(np.float32), []

    def similarity(places):
        read.extend(places.tolist())
        return np.zeros(len(places), np.float32)

    places, _ = best_with_residual(phi, 5, 10.0, similarity, chunk=5)
    assert places.tolist() == [0, 1, 2, 3, 4]
    assert read == list(range(15)), (
        "φ of the sixteenth plus 10 equals the score of the fifth without its part"
    )
    read.clear()
    best_with_residual(phi, 5, 0.5, similarity, chunk=5)
    assert read == list(range(5))


def test_a_docid_is_represented_as_in_training(model):
    network, forced = model.network, TeacherForcing(model.tokens, model.trie, "trie")
    ids, mask = padded(model.read(["baka beke", "duku bika deke"]))
    owner, docids = torch.tensor([0, 0, 1, 1]), torch.tensor([3, 29, 7, 3])
    with torch.inference_mode():
        states = network.encode(ids, mask)
        expected, _ = forced(network, states, mask, owner, docids, represent=True)
        reader = DocidReader(model.tokens, network.device)
        found = reader.represent(network, states, mask, owner, docids)
        near = reader.similarities(network, states, mask, owner, docids)
        f_q = network.represent_query(states, mask)[owner]
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(near, torch.cosine_similarity(f_q, expected))


def test_search_is_that_of_reading_every_docid(model):
    look_ahead, network = model.look_ahead, model.network
    assert look_ahead.config.residual == 3.0
    reader, searcher = DocidReader(model.tokens, network.device), model.searcher()
    texts = ["baka beke", "duku", "bika deke doko"]
    phi = look_ahead.scores(texts, model.query_encoder.encode(texts)).round(4)
    some = searcher.indices([f"d{i:02}" for i in range(0, 30, 3)])
    changed = False
    for row, text in enumerate(texts):
        ids, mask = padded(model.read([text]))
        with torch.inference_mode():
            every, none = torch.arange(30), torch.zeros(30, dtype=torch.long)
            near = reader.similarities(network, network.encode(ids, mask), mask, none, every).numpy()
        total = phi[row] + 3 * near
        for allowed in (None, some):
            known = np.arange(30) if allowed is None else np.array(allowed)
            wanted = known[np.argsort(-total[known])][:5]
            (found,) = searcher.answer([SearchRequest(text, 5, allowed)])
            assert list(found.docids) == wanted.tolist() and found.proven
            mass = np.log(np.exp(phi[row].astype(float)).sum())
            np.testing.assert_allclose(found.scores, total[wanted] - mass, atol=1e-3)
            np.testing.assert_allclose([v["decoder"] for v in found.views], 3 * near[wanted], atol=1e-4)
        changed |= np.argsort(-phi[row])[:5].tolist() != np.argsort(-total)[:5].tolist()
    assert changed, "the decoder changes a ranking"
    together = searcher.answer([SearchRequest(text, 5, None) for text in texts])
    assert [one.docids for one in together] == [
        searcher.answer([SearchRequest(text, 5, None)])[0].docids for text in texts
    ]


def test_phi_of_a_training_query_is_learned_without_it():
    draw = np.random.default_rng(0)
    data = tiny.collection(30)
    vectors = draw.standard_normal((30, 8)).astype(np.float32)
    views = PlainViews(data.documents, {"lead": (vectors, None)}, LookAheadConfig())
    plain = PlainViews(data.documents, views.vectors, LookAheadConfig(residual=2.0)).at(views.usual)
    assert plain.config.residual == 0, "the hybrid has no decoder"
    asked = draw.standard_normal((12, 8)).astype(np.float32)
    judged = [{f"d{i:02}": 1 + i % 2, f"d{i + 12:02}": 1} for i in range(12)]
    queries = TrainingSet([f"baka {i}" for i in range(12)], asked, judged)
    way = Candidate(RegressionConfig(), memory=0.5)
    found = residual_examples(plain, queries, way, lambda texts: [[5]] * len(texts))
    held = list(range(1, 12, FOLDS))
    rest = [i for i in range(12) if i not in held]
    expected = (
        Learner(plain).learn(queries.only(rest), way).scores([queries.texts[i] for i in held], asked[held])
    )
    for row, query in enumerate(held):
        real = np.isfinite(found.phi[query])
        np.testing.assert_allclose(
            found.phi[query][real], expected[row][found.documents[query][real]], rtol=1e-5
        )
        grades = dict(zip(found.documents[query][real].tolist(), found.grades[query][real], strict=True))
        assert grades[query] == 1 + query % 2 and grades[query + 12] == 1
        assert sum(grade > 0 for grade in grades.values()) == 2
        assert real.sum() >= min(CANDIDATES, 30)


@pytest.mark.parametrize(
    "variant", ["gr2", "no-lambda", "no-max", "MLE", "CE", "LR", "listwise", "decoupled", "soft"]
)
def test_the_loss_is_the_one_of_its_name_on_phi_and_the_decoders_part(model, variant):
    phi = np.array([[3.0, 2.0, 1.0], [1.0, 0.5, -np.inf]], np.float32)
    documents, grades = np.array([[4, 2, 9], [7, 1, 0]]), np.array([[2, 0, 1], [0, 1, 0]])
    batch = ResidualBatches(ResidualExamples([[5, 6], [7]], documents, phi, grades), 2, seed=0)[0]
    reader = DocidReader(model.tokens, model.network.device)
    objective = ResidualObjective(reader, loss_of(variant), 3.0, 2)
    with torch.inference_mode():
        states = model.network.encode(batch.queries, batch.query_mask)
        found = objective(model.network, batch, states, states)["total"]
        total = 0.0
        for row in range(2):
            real = torch.isfinite(batch.phi[row])
            docids = batch.documents[row][real]
            owner = torch.full_like(docids, row)
            near = reader.similarities(model.network, states, batch.query_mask, owner, docids)
            scores = (batch.phi[row][real] + 3.0 * near)[None]
            own = {str(i): int(g) for i, g in enumerate(batch.grades[row][real]) if g}
            judged = replace(Judged.of([own], {str(i): i for i in range(3)}), levels=2)
            total += loss_of(variant)(scores, judged)[0]
    torch.testing.assert_close(found, total / 2)


def test_training_changes_the_decoder_alone_and_resumes_to_the_same_bytes(
    data, config, model, checkpoints, tmp_path, monkeypatch
):
    docids = tiny.titles(data, checkpoints["encoder"])
    short = with_settings(config, {"schedule.frozen_steps": 1})
    other = fit(data, docids, str(checkpoints["encoder"]), tmp_path / "short", short)
    first, second = model.network.weights(), other.network.weights()
    moved = {name for name in first if not torch.equal(first[name], second[name])}
    assert moved and not any(name.startswith("encoder.") for name in moved)
    assert any(name.startswith("xi_docid") for name in moved)
    again, whole = tmp_path / "again", ResidualBatches.__getitem__

    def interrupted(batches, step):
        if step == 3:
            raise KeyboardInterrupt
        return whole(batches, step)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(ResidualBatches, "__getitem__", interrupted)
        fit(data, docids, str(checkpoints["encoder"]), again, config)
    assert tiny.step_of(Workspace(again).training / "frozen") == 3
    resumed = fit(data, docids, str(checkpoints["encoder"]), again, config, resume=True)
    for name, weight in resumed.network.weights().items():
        assert torch.equal(weight, first[name]), name


def test_vectors_of_look_ahead_are_kept_for_the_next_run(data, config, checkpoints, tmp_path, monkeypatch):
    docids = tiny.titles(data, checkpoints["encoder"])
    states = tmp_path / "states"
    how = with_settings(config, {"look_ahead.weights.residual": 0.0, "schedule.frozen_steps": 0})
    first = fit(data, docids, str(checkpoints["encoder"]), tmp_path / "one", how, states=states)
    monkeypatch.setattr("gr2.model.document_vectors.encode_documents", None)  # computing any would fail
    again = fit(data, docids, str(checkpoints["encoder"]), tmp_path / "two", how, states=states)
    assert first.search("baka beke", k=5) == again.search("baka beke", k=5)
    with pytest.raises(TypeError):
        fit(data, docids, str(checkpoints["encoder"]), tmp_path / "three", how)


def test_steps_and_weight_belong_together(config):
    for wrong in ({"schedule.frozen_steps": 0}, {"look_ahead.weights.residual": 0.0}):
        with pytest.raises(ValueError, match="residual"):
            with_settings(config, wrong)
    refused = {
        "schedule.steps": (5, "encoder is not trained"),
        "schedule.dev": ("dev", "cannot be validated"),
        "objective.penalty": ("literal", "the loss is the variant's"),
        "look_ahead.weights.memory": (0.5, "chosen by cross-validation"),
        "look_ahead.weights.gate": ((0.1, 0.2), "chosen by cross-validation"),
        "look_ahead.weights.residual": (-1.0, "at least 0"),
        "look_ahead.weights.temperature": (0.0, "temperature above 0"),
    }
    for name, (value, message) in refused.items():
        with pytest.raises(ValueError, match=message):
            with_settings(config, {name: value})


def test_a_residual_needs_judgements(data, config, checkpoints, tmp_path):
    bare = replace(data, qrels={})
    docids = tiny.titles(bare, checkpoints["encoder"])
    with pytest.raises(ValueError, match="has none to learn from"):
        fit(bare, docids, str(checkpoints["encoder"]), tmp_path / "model", config)
    with pytest.raises(ValueError, match="no-learn"):
        closed = with_settings(config, {"look_ahead.learn": False})
        fit(data, docids, str(checkpoints["encoder"]), tmp_path / "model", closed)
    assert not list(tmp_path.iterdir()), "refused before any work"


def test_judgements_of_dev_alone_will_do(data, config, checkpoints, tmp_path):
    only = replace(data, qrels={"dev": data.qrels["train"]})
    docids = tiny.titles(only, checkpoints["encoder"])
    model = fit(only, docids, str(checkpoints["encoder"]), tmp_path / "model", config)
    assert model.look_ahead.config.residual == 3.0
