"""`gr2 run`, `systems`, `variants`, `evaluate`, `cross-validate`: run any system, and measure runs."""

from collections.abc import Callable
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg
from tyro.extras import SubcommandApp

from gr2.cli.app import (
    Name,
    Runs,
    Settings,
    announce,
    app,
    hiding_settings,
    note,
    open_named,
    progress,
    queries_of,
    write_run,
)
from gr2.evaluate.config import EvaluateConfig
from gr2.systems import SYSTEMS
from gr2.systems.config import PRESETS, GenerativeConfig, preset
from gr2.systems.registry import SystemRow

if TYPE_CHECKING:
    from gr2.evaluate.page import Page

Systems = Annotated[Positional[tuple[str, ...]], arg(metavar="[SYSTEM ...]")]

run = SubcommandApp()
app.command(
    run, name="run", help="Run a system on a collection and write a TREC run; `gr2 systems` lists them."
)


def register(chosen: str = next(iter(PRESETS)), *, brief: bool = False) -> None:
    """Add a subcommand of `gr2 run` for every system of the registry; a preset sets the defaults of `gr2`."""
    for name, row in SYSTEMS.items():
        usual = preset(chosen) if row.options is GenerativeConfig else None
        run.command(name=name, help=f"{row.summary}; needs {row.needs_text}.")(_command(name, row, usual))
    defaults = preset(chosen)

    @app.command(name="cross-validate")
    @hiding_settings(brief)
    def cross_validate(
        name: Name,
        systems: Systems = ("bm25", "gr2"),
        /,
        *,
        out: Path,
        preset: str = chosen,
        config: Annotated[GenerativeConfig, Settings] = defaults,
        k: int = 1000,
        evaluation: EvaluateConfig = EvaluateConfig(),  # noqa: B008
        style: Literal["text", "markdown", "csv", "json"] = "text",
        resume: bool = False,
    ) -> None:
        """Run systems on all folds of a collection, and measure them in one table with significance.

        The settings of the system gr2 are options too: `--help-all`.

        Args:
            name: The collection, with folds: a folder, or `ir:ID`.
            systems: Systems of `gr2 systems`; those that learn learn from the other folds.
            out: The folder of the runs, and of the models of systems that train.
            preset: Where the defaults of the system gr2 come from: default, fast, residual, decoder or paper.
            config: The settings of the system gr2; other systems run with their defaults.
            k: Documents to return for each query.
            evaluation: What to measure.
            style: How to print it; JSON has every query's values.
            resume: Continue after an interruption.
        """
        from gr2.evaluate.page import report
        from gr2.experiments.cross_validation import CrossValidation

        data = open_named(name)
        job = CrossValidation(
            collection=data,
            systems={system: config if system == "gr2" else None for system in systems},
            folder=out,
            k=k,
            resume=resume,
            progress=progress(),
            say=note,
        )
        _show(report(data, job.run(), evaluation, style))


def with_model_folder(arguments: list[str]) -> list[str]:
    """Let `gr2 run FOLDER COLLECTION` mean the system `model`; an unknown system lists the known ones."""
    if len(arguments) < 2 or arguments[0] != "run" or arguments[1].startswith("-") or arguments[1] in SYSTEMS:
        return arguments
    if (Path(arguments[1]) / "config.json").is_file():
        return ["run", "model", *arguments[2:], "--folder", arguments[1]]
    raise ValueError(
        f"no system is called {arguments[1]!r}, and it is no model folder; there are: {', '.join(SYSTEMS)}"
    )


def _command(system: str, row: SystemRow, usual: object | None) -> Callable[..., None]:
    """The subcommand of a system: the arguments of all systems, and its own options."""
    required = any(
        field.default is MISSING and field.default_factory is MISSING for field in fields(row.options)
    )

    def command(
        name: Name,
        /,
        *,
        output: Path,
        options: Any,
        split: str = "test",
        train: str = "train",
        k: int = 1000,
        fold: int | None = None,
        work: Path | None = None,
        resume: bool = False,
    ) -> None:
        from gr2.store import writable
        from gr2.systems.registry import SystemContext, build_system, checked_run

        writable(output)
        if row.learns and split == train and fold is None:
            raise ValueError(
                f"{system} knows the judgements of {train!r}, so it says nothing about {train!r} itself"
            )
        data = open_named(name, show=True, fold=fold, split=split)
        queries = queries_of(data, "test" if fold is not None else split)
        context = SystemContext(collection=data, folder=work, train=train, resume=resume, progress=progress())
        announce(system)
        built = build_system(system, context, options)
        described = type(built).__str__ is not object.__str__
        write_run(checked_run(built, data, queries, k), output, str(built) if described else system)

    command.__doc__ = _HELP
    command.__annotations__ = {**command.__annotations__, "options": Annotated[row.options, Settings]}
    if not required:
        command.__kwdefaults__ = {**(command.__kwdefaults__ or {}), "options": usual or row.options()}
    return command


_HELP = """Run a system on a collection and write a TREC run.

Args:
    name: The collection: a folder, `pydocs`, or `ir:ID`.
    output: The run file to write.
    options: Its own options.
    split: Which queries to answer.
    train: The split that a system may learn from.
    k: Documents to return for each query.
    fold: Cross-validation: answer the queries of this fold, learn from the others.
    work: Folder that keeps the model and unfinished work of a system that trains; by default nothing is kept.
    resume: Continue an interrupted training.
"""


@app.command
def systems() -> None:
    """List the systems that `gr2 run` knows, one per line, with what each needs."""
    from gr2.evaluate.tables import render

    rows = [[name, row.summary, row.needs_text] for name, row in SYSTEMS.items()]
    print(render(["system", "", "needs"], rows))


@app.command
def variants() -> None:
    """List the variants of the training objective, one per line."""
    from gr2.evaluate.tables import render
    from gr2.training.variants import VARIANTS

    print(render(["variant", ""], [[name, each.summary] for name, each in VARIANTS.items()]))


@app.command
def evaluate(
    name: Name,
    runs: Runs,
    /,
    *,
    config: Annotated[EvaluateConfig, Settings] = EvaluateConfig(),  # noqa: B008
    fold: int | None = None,
    style: Literal["text", "markdown", "csv", "json"] = "text",
) -> None:
    """Measure runs and compare them with significance tests; seen and unseen queries are also shown apart.

    A query is seen if one of its relevant documents was relevant to a training query.

    Args:
        name: The collection: a folder, `pydocs`, or `ir:ID`.
        runs: TREC run files, or CSV with the columns qid, docno and score.
        config: What to measure.
        fold: Measure on the queries of this fold alone; those of the others count as training queries.
        style: How to print it; JSON has every query's values, CSV leaves the notes to standard error.
    """
    from gr2.evaluate.page import report

    baseline = config.baseline
    paths = [*runs, *([baseline] if baseline is not None and baseline not in runs else [])]
    data = open_named(name, fold=fold, split=config.split)
    _show(report(data, paths, config if fold is None else replace(config, split="test"), style))


def _show(page: "Page") -> None:
    """Print a page of measures, and its notes apart from it."""
    print(page.text)
    for line in page.notes:
        note(line)
