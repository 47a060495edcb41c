"""`--preset paper` end to end on a tiny T5: GR²S with one command, GR²P with two."""

import json
from dataclasses import replace

import pytest
from helpers import tiny

from gr2.data.formats import write_folder
from gr2.docids.docids import Docids
from gr2.model.gr2 import GR2
from gr2.schemes.config import SchemeConfig
from gr2.systems.config import preset
from gr2.training.config import TrainingConfig, as_json, from_json, with_settings
from gr2.workflows.config import pretrain_preset

SHORT = {"schedule.steps": 4, "schedule.self_negative_steps": 2, "batches.queries": 10, "batches.texts": 10}
"""What the tests change so that a run takes seconds."""
SHORT_DOCIDS = {"steps": 4, "batch": 8, "beams": 3, "query_tokens": 6}


def options(settings, prefix="") -> list[object]:
    """Settings as words of the command line; what is true is a flag."""
    words: list[object] = []
    for name, value in settings.items():
        words += [f"--{prefix}{name.replace('_', '-')}", *([] if value is True else [value])]
    return words


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "shop"
    write_folder(replace(tiny.graded(), name="shop"), folder)
    return folder


def stages_of(folder):
    return sorted(path.parent.name for path in folder.glob("*/metrics.jsonl"))


def trained_with(model) -> TrainingConfig:
    return from_json(TrainingConfig, model.provenance["training"])


@pytest.fixture(scope="module")
def supervised(shop, t5, tmp_path_factory):
    """GR²S, made by one command."""
    from gr2.cli import main

    out = tmp_path_factory.mktemp("model") / "m"
    command = ["gr2", "index", shop, "--preset", "paper", "--backbone", t5, "--out", out]
    command += [*options(SHORT), *options(SHORT_DOCIDS, "docids.generation.")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", [*map(str, command)])
        main()
    return out


def test_one_command_makes_fusion_docids_trains_with_self_negatives_and_reports(supervised):
    model = GR2.from_pretrained(supervised)
    about = Docids.load(supervised / "docids").about
    assert about["scheme"] == "fusion" and about["fusion"]["dropout"] and about["document_tokens"] == 512
    assert stages_of(supervised.with_name("m.training")) == ["generator", "joint", "self-negatives"]
    assert model.config.normaliser == "vocabulary" and model.config.max_tokens == 512
    assert model.network.prior is None and model.look_ahead is None
    assert "all queries" in (supervised / "report.md").read_text() or (supervised / "report.html").exists()
    assert len(model.search("baka beke", k=3)) == 3


def test_all_other_settings_are_the_presets(supervised):
    wanted = with_settings(preset("paper").training, SHORT)
    assert trained_with(GR2.from_pretrained(supervised)) == wanted


def test_the_settings_are_the_papers():
    config = preset("paper")
    training, generation = config.training, config.docids.generation
    assert config.docids.scheme == "fusion" and config.backbone.endswith("t5-base")
    assert training.variant == "gr2" and not training.look_ahead.enabled
    assert (training.batches.queries, training.schedule.steps, training.max_tokens) == (60, 50_000, 512)
    assert (generation.batch, generation.steps, generation.document_tokens) == (60, 50_000, 512)
    assert generation.pairs == 0 and generation.radius == 2.0
    assert (generation.fusion.alpha, generation.fusion.beta) == (1.0, 30.0)
    for optimiser in (training.optimiser, generation.optimiser):
        assert (optimiser.learning_rate, optimiser.weight_decay, optimiser.warmup) == (5e-5, 0.01, 0.1)
        assert optimiser.decay_from == optimiser.warmup and not optimiser.average
        assert optimiser.pretrained_rate == 1.0
    objective = training.objective
    assert (objective.smoothing, objective.gamma, objective.temperature) == (0.1, 1.0, 0.1)
    assert objective.normaliser == "vocabulary" and training.prior.vectors_per_document == 0
    assert generation.fusion.smoothing == 0.1 and generation.fusion.dropout and training.network.dropout
    augment = training.augment
    assert (augment.paragraphs, augment.sentences, augment.entities, augment.pieces) == (3, 3, 3, 0)
    assert augment.as_queries and augment.document and training.schedule.self_negative_steps > 0
    assert config.search.beams == 20
    pretraining = pretrain_preset("paper").training
    assert pretraining.optimiser == training.optimiser and pretraining.objective == training.objective
    assert pretraining.schedule.self_negative_steps == 0 and pretraining.network.dropout


def test_two_commands_pre_train_and_fine_tune(gr2, shop, t5, tmp_path):
    links, own, out = tmp_path / "links", tmp_path / "own", tmp_path / "m"
    write_folder(replace(tiny.graded(), name="links"), links)
    short = {name: value for name, value in SHORT.items() if name != "schedule.self_negative_steps"}
    gr2("pretrain", links, "--preset", "paper", "--backbone", t5, "--out", own, *options(short))
    kept = json.loads((own / "encoder" / "config.json").read_text())
    assert kept["dropout_rate"] == 0.1, "fine-tuning finds the backbone's own dropout"
    learned = trained_with(GR2.from_pretrained(tmp_path / "own.model"))
    wanted = with_settings(pretrain_preset("paper").training, short)
    assert learned == replace(wanted, freeze_embeddings=True)
    gr2(
        *("index", shop, "--preset", "paper", "--backbone", own, "--out", out),
        *(*options(SHORT), *options(SHORT_DOCIDS, "docids.generation.")),
    )
    model = GR2.from_pretrained(out)
    assert model.provenance["backbone"] == "own" and model.docids.about["scheme"] == "fusion"
    assert model.network.encoder.config.dropout_rate == 0.0, "a model that is searched has none"


@pytest.mark.parametrize("name", ["decoder", "fast", "nobody"])
def test_pre_training_has_no_other_presets(gr2, shop, tmp_path, name):
    with pytest.raises(SystemExit, match="its presets are: default, paper"):
        gr2("pretrain", shop, "--preset", name, "--out", tmp_path / "own")


@pytest.mark.parametrize("command", ["index", "pretrain"])
def test_a_dry_run_prints_the_cost_and_writes_nothing(gr2, shop, t5, tmp_path, command):
    same = (command, shop, "--preset", "paper", "--backbone", t5, "--out", tmp_path / "m", "--dry-run")
    slow, fast = (gr2(*same, "--tflops", speed) for speed in (0.001, 0.002))
    assert list(tmp_path.iterdir()) == []
    hours = [float(said.rsplit("in all ", 1)[1].split()[0].replace(",", "")) for said in (slow, fast)]
    assert hours[0] == pytest.approx(2 * hours[1], rel=0.02) and hours[1] > 0
    rows = [line.split("  ")[0] for line in slow.splitlines()]
    known = ["docid generator", "docids", "training", "self-negatives", "training with them"]
    assert [row for row in rows if row in known] == (known if command == "index" else ["training"])
    with pytest.raises(SystemExit, match="tflops above 0"):
        gr2(*same, "--tflops", 0)


def test_a_dry_run_of_look_ahead_is_refused(gr2, shop, t5, tmp_path):
    with pytest.raises(SystemExit, match="--preset paper or --preset decoder"):
        gr2("index", shop, "--backbone", t5, "--out", tmp_path / "m", "--dry-run")


def test_look_ahead_is_not_computed_in_parts(gr2, shop, bert, tmp_path):
    same = ("index", shop, "--preset", "residual", "--backbone", bert, "--out", tmp_path / "m")
    with pytest.raises(SystemExit, match=r"set optimiser.accumulate to 1"):
        gr2(*same, "--optimiser.accumulate", 2)
    assert not (tmp_path / "m.training").exists()


def test_what_would_fail_is_refused_before_any_work(gr2, t5, tmp_path):
    data = tiny.graded()
    nothing = {q: dict.fromkeys(row, 0) for q, row in data.split("train").items()}
    for name, train in (("without", {}), ("irrelevant", {"train": nothing})):
        write_folder(replace(data, qrels={"test": data.split("test"), **train}), tmp_path / name)
        same = ("index", tmp_path / name, "--preset", "paper", "--backbone", t5, "--out", tmp_path / "m")
        with pytest.raises(SystemExit, match=r"self-negatives .* set schedule.self_negative_steps to 0"):
            gr2(*same)
    write_folder(data, tmp_path / "whole")
    same = ("index", tmp_path / "whole", "--preset", "paper", "--backbone", t5, "--out", tmp_path / "m")
    with pytest.raises(SystemExit, match="no-fusion needs docids of the scheme query, not fusion"):
        gr2(*same, "--variant", "no-fusion")
    assert not (tmp_path / "m.training").exists()


def test_every_setting_of_fusion_is_an_option(gr2, shop, t5, tmp_path, monkeypatch):
    given = {
        "steps": 7,
        "pairs": 11,
        "batch": 5,
        "document_tokens": 300,
        "query_tokens": 9,
        "radius": 1.5,
        "optimiser.learning_rate": 0.002,
        "optimiser.pretrained_rate": 0.25,
        "optimiser.accumulate": 3,
        "optimiser.gradient_checkpointing": True,
        "optimiser.decay_from": 0.2,
        "optimiser.warmup": 0.05,
        "fusion.alpha": 0.5,
        "fusion.beta": 3.0,
        "fusion.smoothing": 0.2,
        "fusion.dropout": True,
        "fusion.similarity": "dot",
    }
    seen = []

    def record(context):
        seen.append(context.config)
        raise ValueError("enough")

    monkeypatch.setattr("gr2.schemes.registry.build", record)
    with pytest.raises(SystemExit, match="enough"):
        gr2(
            *("docids", "build", shop, "--scheme", "fusion", "--backbone", t5, "--out", tmp_path / "d"),
            *options(given, "generation."),
        )
    wanted = with_settings(SchemeConfig(scheme="fusion"), {f"generation.{n}": v for n, v in given.items()})
    assert seen == [wanted]
    assert as_json(wanted) != as_json(SchemeConfig(scheme="fusion"))
