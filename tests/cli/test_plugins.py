"""Mistakes in a plugin, a name or a device are one sentence, before anything is written."""

import pytest
from helpers import tiny

from gr2.data.formats import write_folder
from gr2.schemes.registry import SCHEMES
from gr2.systems import SYSTEMS
from gr2.training.variants import QUERY_LOSSES, VARIANTS

HEAD = """
from dataclasses import dataclass
from gr2 import Run
from gr2.schemes.registry import register_scheme
from gr2.systems import register_system
from gr2.training.variants import register_variant
"""
SCHEME = f"""{HEAD}
@register_scheme("bad", "bad")
def bad(context):
    rows = {{docno: [(docno, 0.0)] for docno in context.docnos}}
"""
SYSTEM = HEAD + "class Bad:\n    def search(self, queries, k):\n        return RETURNED\n"
SYSTEM += "@register_system('bad', 'bad')\ndef bad(context, options):\n    return Bad()\n"


@pytest.fixture(autouse=True)
def _registries():
    """Whatever a test registers is gone after it."""
    kept = [(registry, dict(registry)) for registry in (SCHEMES, SYSTEMS, VARIANTS, QUERY_LOSSES)]
    yield
    for registry, before in kept:
        registry.clear()
        registry.update(before)


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "shop"
    write_folder(tiny.with_dev(12), folder)
    return folder


@pytest.fixture
def refused(gr2, tmp_path):
    def run(plugin: str, *words: object) -> str:
        (tmp_path / "plugin.py").write_text(plugin, encoding="utf-8")
        with pytest.raises(SystemExit) as stop:
            gr2("--plugin", tmp_path / "plugin.py", *words)
        return str(stop.value)

    return run


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("    return None", "the scheme bad must return Docids, not NoneType"),
        ("    return rows", "the scheme bad must return Docids, not dict"),
        (
            "    rows.popitem()\n    return context.resolve(rows)",
            "has no docid for 1 documents, such as 'd11'",
        ),
        (
            "    rows['ghost'] = [('g', 0.0)]\n    return context.resolve(rows)",
            "'ghost', which is no document",
        ),
        ("    return context.resolve({d: [d] for d in rows})", "expected proposals as (text, score) pairs"),
        ("    return context.resolve({d: [] for d in rows})", "has no proposal"),
    ],
)
def test_a_bad_scheme_is_refused_and_writes_nothing(body, message, refused, shop, checkpoints, tmp_path):
    words = ("docids", "build", shop, "--scheme", "bad", "--backbone", checkpoints["t5"])
    assert message in refused(SCHEME + body + "\n", *words, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("{}", "expected `search` to return a Run, found dict"),
        ("Run.from_dict({q: {'ghost': 1.0} for q in queries})", "has no document 'ghost'"),
        ("Run.from_dict({q: {'d00': float('nan')} for q in queries})", "is nan, not a finite number"),
        ("Run.from_dict({'other': {'d00': 1.0}})", "a query that was not asked: 'other'"),
    ],
)
def test_a_bad_run_is_refused(returned, message, refused, shop, tmp_path):
    found = refused(SYSTEM.replace("RETURNED", returned), "run", "bad", shop, "--output", tmp_path / "b.run")
    assert message in found and not (tmp_path / "b.run").exists()


def test_a_run_is_cut_at_k_and_counts_every_query(gr2, shop, tmp_path):
    two = "Run({next(iter(queries)): (('d00', 2.0), ('d01', 1.0))})"
    (tmp_path / "p.py").write_text(SYSTEM.replace("RETURNED", two))
    out = gr2("--plugin", tmp_path / "p.py", "run", "bad", shop, "--output", tmp_path / "b.run", "--k", "1")
    assert "bad: 1 of 10 queries answered" in out
    assert len((tmp_path / "b.run").read_text().splitlines()) == 1


def test_a_plugin_with_options_explains_them(gr2, tmp_path, capsys):
    options = "@dataclass(frozen=True)\nclass Options:\n    luck: int = 3\n    '''How lucky.'''\n"
    system = (
        "@register_system('lucky', 'luck', options=Options)\ndef lucky(context, options):\n    return None\n"
    )
    (tmp_path / "p.py").write_text("from __future__ import annotations\n" + HEAD + options + system)
    with pytest.raises(SystemExit) as stop:
        gr2("--plugin", tmp_path / "p.py", "run", "lucky", "--help")
    assert not stop.value.code and "--luck" in capsys.readouterr().out
    SYSTEMS.pop("lucky")  # the plugin is loaded again
    with pytest.raises(SystemExit, match="built as NoneType, which has no `search`"):
        gr2("--plugin", tmp_path / "p.py", "run", "lucky", "pydocs", "--output", tmp_path / "l.run")


def test_an_error_in_a_plugin_has_its_line(refused):
    assert "plugin.py:3 failed: SyntaxError" in refused("\n\ndef broken(:\n", "systems")
    assert "plugin.py:2 failed: ZeroDivisionError" in refused("\n1 / 0\n", "systems")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("log_likelihoods.sum()", "must give a value per query"),
        ("log_likelihoods", "must give a value per query"),
        ("None", "not NoneType"),
        ("grades.sum(1) * 1.0", "no gradient"),
    ],
)
def test_a_bad_loss_is_refused(value, message, refused, gr2, shop, checkpoints, tmp_path):
    same = ("--backbone", checkpoints["t5"])
    gr2("docids", "build", shop, "--out", tmp_path / "docids", *same)
    loss = f"register_variant('bad', 'bad', query_loss=lambda log_likelihoods, grades, levels: {value})\n"
    words = ("train", shop, "--docids", tmp_path / "docids", "--out", tmp_path / "model", *same)
    words += ("--preset", "decoder", "--schedule.steps", "1")
    assert message in refused(HEAD + loss, *words, "--variant", "bad")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--docids.scheme", "titel"), "no docid scheme is called 'titel'"),
        (("--device", "cuda:7"), "there is no device 'cuda:7'"),
        (("--device", "warp"), "expected a device such as auto"),
        (("--variant", "gr3"), "no variant is called 'gr3'"),
        (("--compare-with", "MLE", "--variant", "MLE"), "a variant is named twice"),
    ],
)
def test_a_mistake_leaves_nothing_behind(words, message, gr2, shop, tmp_path, checkpoints):
    with pytest.raises(SystemExit) as stop:
        gr2("index", shop, "--out", tmp_path / "out", "--backbone", checkpoints["encoder"], *words)
    assert message in str(stop.value)
    assert not list(tmp_path.iterdir())


def test_a_variant_has_its_own_name_in_the_table(gr2, shop, tmp_path, checkpoints):
    same = ("--backbone", checkpoints["encoder"], "--preset", "decoder", "--schedule.steps", "1")
    out = gr2("index", shop, "--out", tmp_path / "out", "--variant", "MLE", *same)
    assert " MLE " in out and "GR²" not in out
    assert "MLE on" in (tmp_path / "out" / "report.md").read_text(encoding="utf-8")


def test_a_model_folder_is_a_system_and_one_of_another_collection_is_refused(
    gr2, shop, tmp_path, checkpoints
):
    gr2(
        "index",
        shop,
        "--out",
        tmp_path / "model",
        "--backbone",
        checkpoints["encoder"],
        "--preset",
        "decoder",
        "--schedule.steps",
        "1",
    )
    assert "10 of 10 queries" in gr2("run", tmp_path / "model", shop, "--output", tmp_path / "a.run")
    write_folder(tiny.with_dev(10), tmp_path / "other")
    with pytest.raises(SystemExit, match="it is a model of another collection"):
        gr2("run", tmp_path / "model", tmp_path / "other", "--output", tmp_path / "b.run")
    with pytest.raises(SystemExit, match="no system is called 'bm52'"):
        gr2("run", "bm52", shop, "--output", tmp_path / "b.run")


def test_the_minutes_between_checkpoints_are_an_option_of_train(
    gr2, shop, tmp_path, checkpoints, monkeypatch
):
    from gr2.training import loop

    saved: list[object] = []
    save = loop.save
    monkeypatch.setattr(loop, "save", lambda *rest: saved.append(rest[3].step) or save(*rest))
    same = ("--backbone", checkpoints["encoder"])
    gr2("docids", "build", shop, "--out", tmp_path / "docids", *same)
    same += ("--docids", tmp_path / "docids", "--preset", "decoder", "--schedule.steps", "4")
    for name, options in (("often", ("--schedule.checkpoint-minutes", "0")), ("usual", ())):
        gr2("train", shop, "--out", tmp_path / name, *same, *options)
        saved.append(name)
    assert saved == [1, 2, 3, 4, "often", 4, "usual"]
