"""One configuration: every field has a help text, is an option, and arrives where it is used."""

import ast
import inspect
from dataclasses import fields, is_dataclass, replace

import pytest

from gr2.evaluate.config import EvaluateConfig
from gr2.model.config import GR2Config, LookAheadConfig, NetworkConfig, SearchConfig, VectorConfig
from gr2.schemes.config import FusionConfig, GeneratorConfig, SchemeConfig
from gr2.systems.config import PRESETS, GenerativeConfig, preset
from gr2.training import config as training
from gr2.training.config import ObjectiveConfig, TrainingConfig, as_json, from_json, with_settings
from gr2.training.variants import QUERY_LOSSES, VARIANTS, register_variant, variant_objective
from gr2.workflows.config import PretrainConfig

CONFIGS = [
    *(kind for _, kind in inspect.getmembers(training, is_dataclass)),
    *(
        EvaluateConfig,
        FusionConfig,
        GeneratorConfig,
        SchemeConfig,
        SearchConfig,
        GenerativeConfig,
        PretrainConfig,
    ),
    *(GR2Config, LookAheadConfig, NetworkConfig, VectorConfig),
]


def leaves(config, prefix=""):
    """Every field that is not a configuration itself, by its path."""
    for field in fields(config):
        value = getattr(config, field.name)
        if is_dataclass(value):
            yield from leaves(value, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", value


@pytest.mark.parametrize("kind", CONFIGS, ids=lambda kind: kind.__name__)
def test_every_field_is_explained(kind):
    """A string stands below every field; tyro shows it as help. Nested configurations explain themselves."""
    body = ast.parse(inspect.getsource(kind)).body[0].body
    for place, node in enumerate(body):
        if isinstance(node, ast.AnnAssign) and not isinstance(node.value, ast.Call):
            after = body[place + 1] if place + 1 < len(body) else None
            assert isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant), node.target.id


def test_a_configuration_survives_json():
    changed = with_settings(TrainingConfig(), {"schedule.steps": 7, "augment.entities": 3, "seed": 5})
    assert from_json(TrainingConfig, as_json(changed)) == changed != TrainingConfig()
    with pytest.raises(ValueError, match="has no field 'stepz'"):
        from_json(TrainingConfig, {"stepz": 1})
    with pytest.raises(ValueError, match="has no field"):
        with_settings(TrainingConfig(), {"schedule.stepz": 1})


def test_settings_may_come_in_any_order_and_of_a_path_only():
    both = {"objective.normaliser": "vocabulary", "prior.vectors_per_document": 0.0}
    assert with_settings(TrainingConfig(), both) == with_settings(
        TrainingConfig(), dict(reversed(both.items()))
    )
    with pytest.raises(ValueError, match="seed of TrainingConfig has no field 'x'"):
        with_settings(TrainingConfig(), {"seed.x": 1})


def test_the_presets_are_what_they_are_called():
    assert preset("default") == GenerativeConfig()
    paper = dict(leaves(preset("paper")))
    wanted = {
        "backbone": "google-t5/t5-base",
        "docids.scheme": "fusion",
        "training.batches.queries": 60,
        "training.schedule.steps": 50_000,
        "training.optimiser.learning_rate": 5e-5,
        "training.optimiser.warmup": 0.1,
        "training.optimiser.weight_decay": 0.01,
        "training.max_tokens": 512,
        "training.augment.paragraphs": 3,
        "training.augment.sentences": 3,
        "training.augment.entities": 3,
        "training.objective.smoothing": 0.1,
        "training.objective.normaliser": "vocabulary",
        "training.prior.vectors_per_document": 0.0,
        "search.beams": 20,
    }
    assert {path: paper[path] for path in wanted} == wanted
    assert preset("default").training.look_ahead.enabled and not preset("default").training.schedule.steps
    fast, usual = (preset(name).training.look_ahead.documents for name in ("fast", "default"))
    assert fast.max_tokens < usual.max_tokens and not fast.pieces and usual.pieces
    residual = preset("residual").training
    assert (
        residual.look_ahead.enabled
        and residual.look_ahead.weights.residual
        and residual.schedule.frozen_steps
    )
    assert preset("decoder").training == TrainingConfig() and not preset("paper").training.look_ahead.enabled
    with pytest.raises(ValueError, match="there are: default, fast, residual, decoder, paper"):
        preset("papr")
    assert set(PRESETS) == {"default", "fast", "residual", "decoder", "paper"}


def test_look_ahead_trains_no_encoder():
    with pytest.raises(ValueError, match="encoder is not trained.*set the steps to 0"):
        with_settings(TrainingConfig(), {"look_ahead.enabled": True})
    both = {"look_ahead.enabled": True, "schedule.steps": 0}
    assert with_settings(TrainingConfig(), both).look_ahead.enabled


def test_a_prior_without_the_trie_normaliser_is_refused():
    with pytest.raises(ValueError, match="needs the trie normaliser"):
        with_settings(TrainingConfig(), {"objective.normaliser": "vocabulary"})


@pytest.mark.parametrize("name", ["steps", "frozen_steps", "self_negative_steps", "patience"])
def test_a_negative_number_of_steps_is_refused(name):
    with pytest.raises(ValueError, match=f"expected {name} of at least 0, found -3"):
        with_settings(TrainingConfig(), {f"schedule.{name}": -3})


def test_a_variant_sets_its_switches_and_a_contradiction_is_refused():
    assert variant_objective("no-lambda", ObjectiveConfig()).penalty == "uniform"
    assert variant_objective("no-max", ObjectiveConfig()).constraint == "off"
    assert variant_objective("CE", ObjectiveConfig(smoothing=0.1)) == ObjectiveConfig(
        gamma=0.0, query_loss="weighted", smoothing=0.1
    )
    with pytest.raises(ValueError, match="MLE sets gamma to 0.0, but it was set to 0.5"):
        variant_objective("MLE", ObjectiveConfig(gamma=0.5))
    with pytest.raises(ValueError, match="there are: gr2, no-fusion"):
        variant_objective("-lambda", ObjectiveConfig())


def test_a_variant_can_be_registered_once(monkeypatch):
    monkeypatch.setattr("gr2.training.variants.VARIANTS", dict(VARIANTS))
    register_variant("half", "half of L_MGCC", switches={"gamma": 0.5})
    assert variant_objective("half", ObjectiveConfig()).gamma == 0.5
    with pytest.raises(ValueError, match="already"):
        register_variant("half", "again")
    with pytest.raises(ValueError, match="no field 'gamme'"):
        register_variant("other", "a slip", query_loss=lambda p, g, n: p, switches={"gamme": 0.5})
    with pytest.raises(ValueError, match="a loss 'weighted' already exists"):
        register_variant("weighted", "a name that a loss has", query_loss=lambda p, g, n: p)
    assert "other" not in QUERY_LOSSES


class _Named:
    name, qrels = "shop", {"train": {}}


def test_a_preset_sets_the_defaults_of_a_command(monkeypatch, gr2, tmp_path):
    monkeypatch.setattr("gr2.cli.models.open_named", lambda name, show, fold: _Named())
    monkeypatch.setattr("gr2.docids.docids.Docids.load", lambda folder: None)
    seen = []

    def stop(data, out, config, **options):
        seen.append(config)
        raise ValueError("seen")

    monkeypatch.setattr("gr2.systems.generative.train", stop)
    words = ("train", "shop", "--docids", tmp_path, "--out", tmp_path / "out", "--preset", "paper")
    with pytest.raises(SystemExit, match="seen"):
        gr2(*words, "--schedule.steps", "9")
    with pytest.raises(
        SystemExit, match="--preset sets the defaults of docids, train, index, pretrain, run, cr"
    ):
        gr2("--preset", "paper", "systems")
    paper = preset("paper")
    assert seen[0] == replace(paper, training=with_settings(paper.training, {"schedule.steps": 9}))
