"""`gr2 index`, `train`, `pretrain`, `demo`: from a collection to a model."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from gr2.cli.app import Name, Settings, app, first, hiding_settings, open_named, progress, say
from gr2.systems.config import PRESETS, GenerativeConfig
from gr2.systems.config import preset as preset_of
from gr2.training.config import TrainingConfig
from gr2.workflows.config import PRETRAIN_PRESETS, PretrainConfig

if TYPE_CHECKING:
    from gr2.data.collection import Collection

PRESET = next(iter(PRESETS))
TFLOPS = 100.0
"""What an A100 reaches in bfloat16, roughly; the default of `--tflops`."""


def register(chosen: str = PRESET, *, brief: bool = False) -> None:
    """Add the commands whose defaults come from a preset; `brief` hides the settings from their help."""
    usual = preset_of(chosen)
    pretraining = PRETRAIN_PRESETS.get(chosen, PRETRAIN_PRESETS[PRESET])

    @app.command
    @hiding_settings(brief)
    def index(
        name: Name,
        /,
        *,
        out: Path,
        preset: str = chosen,
        config: Annotated[GenerativeConfig, Settings] = usual,
        budget: str = "",
        compare_with: tuple[str, ...] = (),
        curve: tuple[int, ...] = (),
        fold: int | None = None,
        dry_run: bool = False,
        tflops: float = TFLOPS,
        resume: bool = False,
    ) -> None:
        """Index a collection: encode it, learn from its judgements, measure, and write a report.

        The result is a model folder to search and serve. With `--preset decoder` a decoder is trained
        instead of look-ahead. All settings of docids, look-ahead, training and search are options too:
        `--help-all`.

        Args:
            name: The collection: a folder, `pydocs`, or `ir:ID`.
            out: The model folder to write, with report.html; unfinished work is kept in OUT.training.
            preset: Where the defaults come from: default, fast, residual, decoder or paper.
            config: The settings of docids, training and search.
            budget: With `--preset decoder`: the time for everything, such as 90s, 30m or 1h30m. What does not
                fit is left out and named at the end. Empty: no limit.
            compare_with: Variants (see `gr2 variants`) to train with the same settings and to measure beside
                it.
            curve: Numbers of judged queries for a learning curve in the report, such as 25 50 100.
            fold: Cross-validation: learn from the other folds, and measure on this one.
            dry_run: Print how long the training of a decoder would take, and stop.
            tflops: Sustained speed in TFLOP/s that `--dry-run` assumes; 100 is about an A100 in bfloat16.
            resume: Continue after an interruption.
        """
        from gr2.workflows.budget import seconds
        from gr2.workflows.index import IndexJob
        from gr2.workflows.index import index as make

        data = open_named(name, show=first(), fold=fold)
        if dry_run:
            say(_cost(data, config, tflops))
            return
        job = IndexJob(
            collection=data,
            out=out,
            config=config,
            seconds=seconds(budget) if budget else None,
            compare_with=compare_with,
            curve=curve,
            resume=resume,
            progress=progress(),
        )
        make(job, say)
        say(f"try it: gr2 search {out} 'a query'; gr2 serve {out}")

    @app.command
    @hiding_settings(brief)
    def train(
        name: Name,
        /,
        *,
        docids: Path,
        out: Path,
        preset: str = chosen,
        backbone: str = usual.backbone,
        config: Annotated[TrainingConfig, Settings] = usual.training,
        pseudo_queries: Path | None = None,
        fold: int | None = None,
        resume: bool = False,
    ) -> None:
        """Train a model with docids that `gr2 docids build` made; nothing is measured.

        With several processes: `torchrun --nproc_per_node N -m gr2 train ...`; a step then reads N batches.
        All settings are options too: `--help-all`.

        Args:
            name: The collection: a folder, `pydocs`, or `ir:ID`. Its split `train` is learned from.
            docids: What `gr2 docids build` wrote for this collection, or for this fold of it.
            out: The folder to write; checkpoints and metrics.jsonl are kept in OUT.training.
            preset: Where the defaults come from: default, fast, residual, decoder or paper.
            backbone: gr2-mini, or folder or hub name of a T5, BART or encoder checkpoint.
            config: The settings of the training; `gr2 variants` lists the variants.
            pseudo_queries: A TSV or CSV file without a header: a docno and a generated query on each line.
            fold: Cross-validation: learn from the queries of the other folds.
            resume: Continue after an interruption.
        """
        from gr2.data.formats.records import read_grouped
        from gr2.docids.docids import Docids
        from gr2.systems.generative import train as make

        data, known = open_named(name, show=first(), fold=fold), Docids.load(docids)
        if "train" not in data.qrels:
            say(f"{data.name} has no split `train`: it is learned from its documents alone")
        model = make(
            data,
            out,
            replace(usual, backbone=backbone, training=config),
            docids=known,
            pseudo_queries=read_grouped(pseudo_queries) if pseudo_queries else None,
            resume=resume,
            progress=progress(),
        )
        if model.look_ahead is not None:
            learned = model.provenance["look_ahead"]["chosen"]
            say(f"look-ahead: {len(model.docids):,} docids, learned: {learned}, written to {out}")
            say(model.look_ahead.sizes)
            return
        steps = config.schedule.steps + config.schedule.frozen_steps + config.schedule.self_negative_steps
        say(f"variant {config.variant}: {len(model.docids):,} docids, {steps:,} steps, written to {out}")
        if model.network.prior is not None:
            say(f"node prior: {model.network.prior.nbytes:,} bytes")

    @app.command
    @hiding_settings(brief)
    def pretrain(
        name: Name,
        /,
        *,
        out: Path,
        preset: str = chosen,
        config: Annotated[PretrainConfig, Settings] = pretraining,
        dry_run: bool = False,
        tflops: float = TFLOPS,
        resume: bool = False,
    ) -> None:
        """Pre-train a backbone on a graded collection (GR²P), for `gr2 index` and `gr2 train --backbone`.

        Docids are titles. All settings are options too: `--help-all`.

        Args:
            name: The collection, with a split `train` of several grades: links of Wikipedia, for instance.
            out: The folder to write, a backbone. The trained model with its docids stays in OUT.model, its
                checkpoints in OUT.model.training.
            preset: Where the defaults come from: default or paper.
            config: The settings of docids and training.
            dry_run: Print what it would cost, and stop.
            tflops: Sustained speed in TFLOP/s that `--dry-run` assumes; 100 is about an A100 in bfloat16.
            resume: Continue after an interruption.
        """
        from gr2.workflows.pretrain import pretrain as make

        data = open_named(name, show=first())
        if dry_run:
            alike = replace(usual, backbone=config.backbone, docids=config.docids, training=config.training)
            say(_cost(data, alike, tflops))
            return
        make(data, out, config, resume=resume, progress=progress())
        steps = config.training.schedule.steps + config.training.schedule.frozen_steps
        say(f"{config.training.variant}: a backbone after {steps:,} steps, written to {out}")


def _cost(data: "Collection", config: GenerativeConfig, tflops: float) -> str:
    """What training would cost, as text."""
    from gr2.workflows.cost import as_text, costs

    if tflops <= 0:
        raise ValueError(f"expected --tflops above 0, found {tflops:g}")
    return as_text(*costs(data, config), tflops)


@app.command
def demo(*, fast: bool = False, out: Path | None = None) -> None:
    """Index and measure the documentation of your own Python: a tour in a few minutes.

    If it was interrupted, it continues. Afterwards, `gr2 serve OUT` opens the search page.

    Args:
        fast: Read only the first 48 tokens of each document: quicker, and a little worse.
        out: The model folder to write, with report.html; by default gr2-demo, or gr2-demo-fast.
    """
    from gr2.workflows.demo import demo

    folder = out or Path("gr2-demo-fast" if fast else "gr2-demo")
    demo(folder, fast=fast, progress=progress(), say=lambda text: print(text, end="\n\n", flush=True))
