"""`gr2 generator ...`: models that ask questions about texts, from which docid generators start."""

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg
from tyro.extras import SubcommandApp

from gr2.cli.app import Settings, app, progress
from gr2.workflows.config import QuestionsConfig

Files = Annotated[Positional[tuple[Path, ...]], arg(metavar="PAIRS [PAIRS ...]")]

generator = SubcommandApp()
app.command(generator, name="generator", help="Train a model that asks questions about texts.")


@generator.command
def train(
    files: Files,
    /,
    *,
    backbone: str,
    out: Path,
    config: Annotated[QuestionsConfig, Settings] = QuestionsConfig(),  # noqa: B008
    resume: bool = False,
) -> None:
    """Learn to ask about any text, for `gr2 docids build --generator OUT` and whatever else needs questions.

    Its loss on people's questions about held-out texts is measured, and how often BM25 finds a text by the
    question that the generator asks about it, before and after.

    Args:
        files: Tables (.tsv or .csv, plain or .gz) of two columns: a text, and a question about it.
        backbone: Folder or hub name of a T5 or BART checkpoint to start from.
        out: The folder to write, a backbone. Unfinished work is kept in OUT.making.
        config: The settings of training.
        resume: Continue after an interruption.
    """
    from gr2.data.formats.records import read_pairs_of_texts
    from gr2.workflows.generator import train_generator

    pairs = [pair for path in files for pair in read_pairs_of_texts(path)]
    if not pairs:
        raise ValueError("expected at least one file of texts and questions")
    found = train_generator(pairs, backbone, out, config, resume=resume, progress=progress())
    (loss, learned), (before, after) = found.loss, found.found
    print(f"{len(pairs):,} pairs; measured on {found.texts:,} texts that were held out")
    print(f"loss of people's questions: {loss:.2f} before, {learned:.2f} after")
    print(
        f"MRR of the text, with the generator's question as the query: {before:.3f} before, {after:.3f} after"
    )
    print(f"Written to {out}")
