"""A generative system on a collection: docids, training and search from one configuration.

`gr2 index`, `gr2 run gr2`, and `gr2 docids build` followed by `gr2 train` take the same steps, so the same
configuration gives the same weights.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from gr2.data.collection import Collection
from gr2.data.runs import Run
from gr2.docids.docids import Docids
from gr2.model.config import SearchConfig
from gr2.model.gr2 import GR2
from gr2.model.searcher import Searcher
from gr2.schemes.registry import SchemeContext, build, scheme_of
from gr2.store import Workspace
from gr2.systems.config import GenerativeConfig, preset
from gr2.training.checks import check_training
from gr2.training.fit import fit


class GenerativeSystem:
    """A trained model as a `System`."""

    def __init__(self, model: GR2, search: SearchConfig | None = None, name: str = "gr2") -> None:
        """Search `model` with the settings of `search`."""
        self.model, self.searcher, self.name = model, Searcher(model, search), name

    def search(self, queries: Mapping[str, str], k: int) -> Run:
        """The k best documents of each query."""
        return self.searcher.search_many(queries, k, name=self.name)

    def __str__(self) -> str:
        """As printed with results."""
        how = self.searcher.config
        training = self.model.provenance.get("training", {})
        variant, count = training.get("variant", "untrained"), len(self.model.docids)
        return f"{self.name} ({variant}, {count:,} documents, {how.mode} search, {how.beams} beams)"


def make_docids(
    collection: Collection,
    config: GenerativeConfig,
    folder: Path,
    *,
    resume: bool = False,
    progress: bool = False,
) -> Docids:
    """The docids of a collection; unfinished work is kept in the folder, so that it can be resumed."""
    return build(
        SchemeContext(
            collection=collection,
            backbone=config.backbone,
            folder=folder,
            config=config.docids,
            resume=resume,
            progress=progress,
        )
    )


def train(
    collection: Collection,
    out: str | Path,
    config: GenerativeConfig | str = GenerativeConfig(),  # noqa: B008
    *,
    docids: Docids | None = None,
    pseudo_queries: Mapping[str, Sequence[str]] | None = None,
    resume: bool = False,
    progress: bool = False,
) -> GR2:
    """Make docids, unless they are given, and train a model; it is written to `out`.

    Args:
        collection: documents, and queries with graded judgements in the split `train`.
        out: the model folder to write.
        config: the settings, or the name of a preset: default, fast or paper.
        docids: existing docids of the collection.
        pseudo_queries: docno → generated queries for the document.
        resume: continue an interrupted run.
        progress: show progress bars.
    """
    out, config = Path(out), preset(config) if isinstance(config, str) else config
    scheme = scheme_of(config.docids.scheme) if docids is None else str(docids.about.get("scheme"))
    check_training(config.training, collection, scheme=scheme)
    if docids is None:
        folder = Workspace(out).training
        docids = make_docids(collection, config, folder, resume=resume, progress=progress)
    return fit(
        collection,
        docids,
        config.backbone,
        out,
        config.training,
        pseudo_queries=pseudo_queries,
        resume=resume,
        progress=progress,
    )
