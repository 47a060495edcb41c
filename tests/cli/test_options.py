"""Every option reaches what it is for: a command is given all of its options at once, each with a value of
its own, and what it would work with has these values and no others.

The work itself is replaced by a function that records its arguments and stops.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from itertools import count
from pathlib import Path
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

from gr2.bm25 import BM25Config
from gr2.data.links import LinksConfig
from gr2.data.wikipedia.articles import WikipediaConfig
from gr2.evaluate.config import EvaluateConfig
from gr2.model.config import SearchConfig
from gr2.schemes.config import SchemeConfig
from gr2.serve.config import ServiceConfig
from gr2.serve.judging_config import JudgingConfig
from gr2.systems.config import LookAheadOptions, preset
from gr2.systems.rows import DenseOptions, ModelOptions
from gr2.training.config import TrainingConfig
from gr2.workflows.config import PretrainConfig, QuestionsConfig

NAMED: dict[str, Any] = {"prior": (0.5, 0.25, -1.0), "gate": (0.25, 0.75)}
"""Fields that take only certain values, by the end of their path."""


class Enough(ValueError):
    """Raised instead of the work."""


def leaves(config: object, prefix: str = "") -> Iterator[tuple[str, object, object]]:
    """Every field that is no configuration itself: its path, its type, its value."""
    types = get_type_hints(type(config))
    for each in fields(config):
        value = getattr(config, each.name)
        if is_dataclass(value):
            yield from leaves(value, f"{prefix}{each.name}.")
        else:
            yield f"{prefix}{each.name}", types[each.name], value


def other(path: str, kind: Any, value: object, number: int) -> object:
    """Another value of a field than it has; `number` differs from field to field."""
    for end, named in NAMED.items():
        if path == end or path.endswith(f".{end}"):
            return named
    if value == "english":
        return "german"  # a stemmer
    if get_origin(kind) in (Union, UnionType):  # such as int | None
        (kind,) = [each for each in get_args(kind) if each is not NoneType]
    if get_origin(kind) is Literal:
        return next(each for each in get_args(kind) if each != value)
    if get_origin(kind) is tuple:
        return (other(path, get_args(kind)[0], None, number),)
    if kind is bool:
        return not value
    made = {int: 100 + number, float: number / 1000, str: f"word{number}", Path: Path(f"file{number}")}
    return made[kind]


def typed(path: str, kind: Any, value: object) -> list[str]:
    """A value as it is typed on the command line."""
    head, dot, tail = path.replace("_", "-").rpartition(".")
    if kind is bool:
        return [f"--{head}{dot}{'' if value else 'no-'}{tail}"]
    return [f"--{head}{dot}{tail}", *map(str, value if isinstance(value, tuple) else (value,))]


def changed(config: Any, values: dict[str, object]) -> Any:
    """The configuration with all these fields changed at once, so that checks see the result alone."""
    inner: dict[str, dict[str, object]] = {}
    for path, value in values.items():
        name, _, rest = path.partition(".")
        inner.setdefault(name, {})[rest] = value
    new = {name: own[""] if "" in own else changed(getattr(config, name), own) for name, own in inner.items()}
    return replace(config, **new)


def everything(config: object, without: tuple[str, ...]) -> dict[str, object]:
    """Another value of every field of a configuration but of some."""
    numbers = dict(zip(sorted(path for path, *_ in leaves(config)), count(1)))
    return {
        path: other(path, kind, value, numbers[path])
        for path, kind, value in leaves(config)
        if path not in without
    }


@dataclass(frozen=True)
class Command:
    """A command, and where its settings arrive."""

    words: str
    """The command without settings; OUT stands for a folder that does not exist."""
    work: str
    """The function that would do the work."""
    settings: object
    """The usual settings."""
    found: Any = field(default=lambda arguments, options: arguments[-1])
    """The arguments of the work → the settings that it got."""
    without: tuple[str, ...] = ()
    """Paths of fields that are not changed here, because they would contradict others."""
    dropped: str = ""
    """The part of paths that options leave out."""

    def options(self, values: dict[str, object]) -> list[str]:
        """Values of settings as they are typed."""
        kinds = {path: kind for path, kind, _ in leaves(self.settings)}
        return [
            word
            for path, value in values.items()
            for word in typed(path.removeprefix(self.dropped), kinds[path], value)
        ]


def whole(training: str) -> tuple[str, ...]:
    """What contradicts everything else in a training."""
    return (f"{training}objective.normaliser", f"{training}look_ahead.enabled")


decoder = preset("decoder")
LEARNED = ("look_ahead.gate", "look_ahead.memory", "look_ahead.residual")
"""Settings of look-ahead that `gr2 run look-ahead` refuses, because they are learned."""
COMMANDS = {
    "docids build": Command(
        "docids build shop --out OUT",
        "gr2.schemes.registry.build",
        SchemeConfig(),
        lambda arguments, options: arguments[0].config,
    ),
    "docids radius": Command(
        "docids radius shop --out OUT",
        "gr2.schemes.registry.trained_generator",
        SchemeConfig(scheme="fusion"),
        lambda arguments, options: arguments[0].config,
    ),
    "index": Command(
        "index shop --out OUT --preset decoder",
        "gr2.workflows.index.index",
        decoder,
        lambda arguments, options: arguments[0].config,
        whole("training."),
        dropped="training.",
    ),
    "train": Command(
        "train shop --docids OUT --out OUT --preset decoder",
        "gr2.systems.generative.train",
        TrainingConfig(),
        lambda arguments, options: arguments[2].training,
        whole(""),
    ),
    "pretrain": Command(
        "pretrain shop --out OUT",
        "gr2.workflows.pretrain.pretrain",
        PretrainConfig(),
        without=whole("training."),
        dropped="training.",
    ),
    "generator train": Command(
        "generator train PAIRS --backbone t5 --out OUT",
        "gr2.workflows.generator.train_generator",
        QuestionsConfig(),
    ),
    "search": Command("search MODEL question", "gr2.model.searcher.Searcher.__init__", SearchConfig()),
    "run model": Command(
        "run model shop --output OUT --folder MODEL",
        "gr2.systems.registry.build_system",
        ModelOptions(folder=Path("MODEL")),
        without=("folder",),  # is named above
    ),
    "run bm25": Command("run bm25 shop --output OUT", "gr2.systems.registry.build_system", BM25Config()),
    "run dense": Command("run dense shop --output OUT", "gr2.systems.registry.build_system", DenseOptions()),
    "run look-ahead": Command(
        "run look-ahead shop --output OUT",
        "gr2.systems.registry.build_system",
        LookAheadOptions(),
        without=("codes", *LEARNED),  # codes have no other storage
    ),
    "run gr2": Command(
        "run gr2 shop --output OUT --preset decoder",
        "gr2.systems.registry.build_system",
        decoder,
        without=whole("training."),
        dropped="training.",
    ),
    "cross-validate": Command(
        "cross-validate shop gr2 --out OUT --preset decoder",
        "gr2.experiments.cross_validation.CrossValidation",
        decoder,
        lambda arguments, options: options["systems"]["gr2"],
        whole("training."),
        dropped="training.",
    ),
    "evaluate": Command(
        "evaluate shop a.run",
        "gr2.evaluate.page.report",
        EvaluateConfig(),
        lambda arguments, options: arguments[2],
    ),
    "serve": Command(
        "serve MODEL", "gr2.serve.serve", ServiceConfig(), lambda arguments, options: arguments[1]
    ),
    "judging": Command(
        "serve MODEL",
        "gr2.serve.serve",
        JudgingConfig(),
        lambda arguments, options: arguments[2],
        without=("depth",),  # at most 100
    ),
    "collection from-links": Command(
        "collection from-links shop --out OUT", "gr2.data.links.read_linked_folder", LinksConfig()
    ),
    "collection from-wikipedia": Command(
        "collection from-wikipedia dump.xml --out OUT",
        "gr2.data.wikipedia.build",
        WikipediaConfig(),
    ),
}
FEW = {
    "index": [{"training.look_ahead.enabled": True, "training.schedule.steps": 0}],
    "train": [{"look_ahead.enabled": True, "schedule.steps": 0}],
    "pretrain": [{"training.look_ahead.enabled": True, "training.schedule.steps": 0}],
    "judging": [{"judge": Path("judged"), "depth": 7}],
    "run look-ahead": [{"codes": 7}],
}
"""What was left out above, with what it needs."""
for _name, _at in (("index", "training."), ("train", ""), ("pretrain", "training.")):
    FEW[_name].append({f"{_at}objective.normaliser": "vocabulary", f"{_at}prior.vectors_per_document": 0.0})
ELSEWHERE = {name: set(whole("training.")) for name in ("run gr2", "cross-validate")}  # see `index`
ELSEWHERE |= {"run model": {"folder"}, "run look-ahead": set(LEARNED)}
"""What is not given to these commands."""
ROUNDS = [(name, everything(one.settings, one.without)) for name, one in COMMANDS.items()]
ROUNDS += [(name, values) for name, some in FEW.items() for values in some]


@pytest.fixture
def given(gr2, monkeypatch, tmp_path):
    """A function that runs a command and returns the arguments of the work that it would have done."""
    opened = SimpleNamespace(name="shop", qrels={"train": {}, "test": {}}, queries={}, folds=())
    opened.split = lambda name: {}

    def open_named(name, **options):
        opened.how = options
        return opened

    for module in ("models", "docids", "systems"):
        monkeypatch.setattr(f"gr2.cli.{module}.open_named", open_named)
    monkeypatch.setattr("gr2.docids.docids.Docids.load", lambda folder: None)
    monkeypatch.setattr("gr2.model.hub.located", lambda folder: folder)

    def pairs(path):
        return [("text", "question")]

    monkeypatch.setattr("gr2.data.formats.records.read_pairs_of_texts", pairs)

    def loaded(folder, device="auto"):
        from gr2.model.searcher import Searcher

        return SimpleNamespace(searcher=lambda config: Searcher(None, config), device=device)

    monkeypatch.setattr("gr2.model.gr2.GR2.from_pretrained", loaded)

    def run(words: str, work: str, *options: object) -> tuple[tuple[object, ...], dict[str, object]]:
        seen = []

        def record(*arguments, **named):
            seen.append((arguments, named))
            raise Enough("enough")

        monkeypatch.setattr(work, record)
        with pytest.raises(SystemExit, match="gr2: enough"):
            gr2(*(tmp_path / "out" if word == "OUT" else word for word in words.split()), *options)
        return seen[0]

    return run


@pytest.mark.parametrize(("name", "values"), ROUNDS, ids=[name for name, _ in ROUNDS])
def test_all_settings_arrive(given, name, values):
    command = COMMANDS[name]
    arguments, options = given(command.words, command.work, *command.options(values))
    assert command.found(arguments, options) == changed(command.settings, values)


@pytest.mark.parametrize("name", COMMANDS)
def test_no_setting_is_left_out(name):
    command = COMMANDS[name]
    rounds = {path for each, values in ROUNDS if each == name for path in values}
    left = {path for path, *_ in leaves(command.settings)} - rounds
    assert left == ELSEWHERE.get(name, set())


@pytest.mark.parametrize("name", COMMANDS)
def test_without_options_the_settings_are_the_usual_ones(given, name):
    command = COMMANDS[name]
    arguments, options = given(command.words, command.work)
    usual = None if name == "judging" else command.settings  # no folder of judgements, no judging
    assert command.found(arguments, options) == usual


INDEX = ("index shop --out OUT", "gr2.workflows.index.index")
DOCIDS = ("docids build shop --out OUT", "gr2.schemes.registry.build")
RADIUS = ("docids radius shop --out OUT", "gr2.schemes.registry.trained_generator")
TRAIN = ("train shop --docids OUT --out OUT", "gr2.systems.generative.train")
PRETRAIN = ("pretrain shop --out OUT", "gr2.workflows.pretrain.pretrain")
GENERATOR = ("generator train PAIRS --backbone t5 --out OUT", "gr2.workflows.generator.train_generator")
BM25 = ("run bm25 shop --output OUT", "gr2.systems.registry.build_system")
VALIDATE = ("cross-validate shop bm25 --out OUT", "gr2.experiments.cross_validation.CrossValidation")
EVALUATE = ("evaluate shop a.run", "gr2.evaluate.page.report")
SERVE = ("serve MODEL", "gr2.serve.serve")


def option(name: str) -> Any:
    return lambda arguments, options: options[name]


def first(name: str) -> Any:
    return lambda arguments, options: getattr(arguments[0], name)


def of_context(name: str) -> Any:
    return lambda arguments, options: getattr(arguments[1], name)


def opened(name: str) -> Any:
    """How the collection was opened."""

    def found(arguments, options):
        holders = [*arguments, *options.values()]
        data = next(getattr(each, "collection", each) for each in holders if _is_data(each))
        return data.how[name]

    return found


def _is_data(value: object) -> bool:
    return hasattr(getattr(value, "collection", value), "how")


FLAGS = [
    (*INDEX, "--budget 90s", first("seconds"), 90),
    (*INDEX, "--compare-with MLE CE", first("compare_with"), ("MLE", "CE")),
    (*INDEX, "--curve 25 50", first("curve"), (25, 50)),
    (*INDEX, "--fold 2", opened("fold"), 2),
    (*INDEX, "--resume", first("resume"), True),
    (*DOCIDS, "--backbone t5", first("backbone"), "t5"),
    (*DOCIDS, "--fold 2", opened("fold"), 2),
    (*DOCIDS, "--resume", first("resume"), True),
    (*RADIUS, "--backbone t5", first("backbone"), "t5"),
    (*RADIUS, "--resume", first("resume"), True),
    (*TRAIN, "--backbone t5", lambda arguments, options: arguments[2].backbone, "t5"),
    (*TRAIN, "--fold 2", opened("fold"), 2),
    (*TRAIN, "--resume", option("resume"), True),
    (*PRETRAIN, "--resume", option("resume"), True),
    (*GENERATOR, "--resume", option("resume"), True),
    (*BM25, "--train dev", of_context("train"), "dev"),
    (*BM25, "--work there", of_context("folder"), Path("there")),
    (*BM25, "--resume", of_context("resume"), True),
    (*BM25, "--fold 2", opened("fold"), 2),
    (*BM25, "--split dev", opened("split"), "dev"),
    (*VALIDATE, "--k 7", option("k"), 7),
    (*VALIDATE, "--resume", option("resume"), True),
    (*EVALUATE, "--style csv", lambda arguments, options: arguments[3], "csv"),
    (*EVALUATE, "--fold 2", opened("fold"), 2),
    (*SERVE, "--host 0.0.0.0", option("host"), "0.0.0.0"),
    (*SERVE, "--port 9", option("port"), 9),
]
"""A command, its work, a flag, where that arrives, and as what."""


@pytest.mark.parametrize(
    ("words", "work", "flag", "found", "value"),
    FLAGS,
    ids=[f"{words.split(' shop')[0]} {flag}" for words, _, flag, *_ in FLAGS],
)
def test_a_flag_arrives(given, words, work, flag, found, value):
    assert found(*given(words, work, *flag.split())) == value
    assert found(*given(words, work)) != value


def test_pseudo_queries_are_read_from_their_file(given, tmp_path):
    path = tmp_path / "asked.tsv"
    path.write_text("d1\tone\nd1\ttwo\nd2\tthree\n")
    _, options = given(*TRAIN, "--pseudo-queries", path)
    assert options["pseudo_queries"] == {"d1": ["one", "two"], "d2": ["three"]}


@pytest.mark.parametrize("k", [3, 8])
def test_run_returns_k_documents(given, monkeypatch, k):
    monkeypatch.setattr("gr2.systems.registry.build_system", lambda *given: object())
    arguments, _ = given(BM25[0], "gr2.systems.registry.checked_run", "--k", k)
    assert arguments[3] == k


def test_search_takes_k_and_its_device(gr2, monkeypatch):
    seen = []

    def stop(self, requests):
        seen.append([(request.text, request.k) for request in requests])
        raise Enough("enough")

    class Searcher:
        answer = stop

    def loaded(folder, device):
        seen.append(device)
        return SimpleNamespace(searcher=lambda config: Searcher())

    monkeypatch.setattr("gr2.model.hub.located", lambda folder: folder)
    monkeypatch.setattr("gr2.model.gr2.GR2.from_pretrained", loaded)
    with pytest.raises(SystemExit, match="enough"):
        gr2("search", "MODEL", "a question", "--k", 3, "--device", "cpu")
    assert seen == ["cpu", [("a question", 3)]]
