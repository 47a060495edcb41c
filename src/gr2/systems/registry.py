"""All systems that can be run on a collection, by name: one protocol, one registry, one command.

A system answers queries: `search(queries, k) -> Run`. A row of the registry defines how to build it for a
collection, its options, and what it needs. Adding one takes a decorated function, also from outside the
package:

>>> @register_system("alphabet", "documents in alphabetical order")
... def alphabet(context, options):
...     docnos = sorted(context.collection.docnos)
...     class Alphabet:
...         def search(self, queries, k):
...             ranking = {docno: -rank for rank, docno in enumerate(docnos[:k])}
...             return Run.from_dict(dict.fromkeys(queries, ranking), "alphabet")
...     return Alphabet()
>>> del SYSTEMS["alphabet"]

Imports nothing heavy, because `gr2 systems` and the command line are generated from it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from typing import Any, Protocol

from gr2.data.collection import Collection, Qrels
from gr2.data.runs import Run
from gr2.extras import MissingExtra


class System(Protocol):
    """Anything that answers queries; `str(system)` may describe its settings."""

    def search(self, queries: Mapping[str, str], k: int) -> Run:
        """The k best documents of each query (qid → text)."""


@dataclass(frozen=True, kw_only=True)
class SystemContext:
    """What a system is built from."""

    collection: Collection
    folder: Path | None = None
    """Holds unfinished work of a system that trains, so that it can be resumed; None: a temporary folder."""
    train: str = "train"
    """The split that a system may use for training."""
    resume: bool = False
    progress: bool = False

    @property
    def judgements(self) -> Qrels:
        """The judgements that a system may use for training; an error if the collection has none."""
        return self.collection.split(self.train)


@dataclass(frozen=True)
class NoOptions:
    """A system without options."""


@dataclass(frozen=True, kw_only=True)
class SystemRow:
    """A row of the registry."""

    summary: str
    """One line."""
    build: Callable[[SystemContext, Any], System]
    options: type
    """A dataclass; its fields are the options of `gr2 run`."""
    needs: tuple[str, ...] = ()
    """What it needs, in words, such as a backbone or a model folder."""
    uses_judgements: bool = False
    """Whether it requires training judgements."""
    learns: bool = False
    """Whether it learns from training judgements where there are some."""
    packages: tuple[str, ...] = ()
    """Packages that must be installed."""
    extra: str = ""
    """The extra of gr2 that installs them."""

    @property
    def needs_text(self) -> str:
        """All requirements, as one phrase."""
        judgements = ("training judgements",) if self.uses_judgements else ()
        extras = (f"extra {self.extra}",) if self.extra else ()
        return ", ".join((*self.needs, *judgements, *extras)) or "nothing"


SYSTEMS: dict[str, SystemRow] = {}
"""All systems by name; filled by `systems.rows`, and open to users."""
Builder = Callable[[SystemContext, Any], System]


def register_system(
    name: str,
    summary: str,
    *,
    options: type = NoOptions,
    needs: tuple[str, ...] = (),
    uses_judgements: bool = False,
    learns: bool = False,
    packages: tuple[str, ...] = (),
    extra: str = "",
) -> Callable[[Builder], Builder]:
    """Add a system: a decorator for a function from a context and options to a `System`.

    Args:
        name: the name for `gr2 run`.
        summary: one line for `gr2 systems`.
        options: a dataclass; its fields become options of `gr2 run NAME`.
        needs: what it needs, in words.
        uses_judgements: whether it requires training judgements.
        learns: whether it learns from training judgements where there are some.
        packages: packages that must be installed.
        extra: the extra of gr2 that installs them.
    """
    if name in SYSTEMS:
        raise ValueError(f"a system {name!r} already exists: {SYSTEMS[name].summary}")

    def add(build: Builder) -> Builder:
        SYSTEMS[name] = SystemRow(
            summary=summary,
            build=build,
            options=options,
            needs=needs,
            uses_judgements=uses_judgements,
            learns=learns or uses_judgements,
            packages=packages,
            extra=extra,
        )
        return build

    return add


def build_system(name: str, context: SystemContext, options: object | None = None) -> System:
    """A system by name, ready to search; the error for an unknown name lists the known ones."""
    if name not in SYSTEMS:
        raise ValueError(f"no system is called {name!r}; there are: {', '.join(SYSTEMS)}")
    row = SYSTEMS[name]
    missing = [package for package in row.packages if find_spec(package) is None]
    if missing:
        raise MissingExtra(f"{name} needs {', '.join(missing)}: pip install 'gr2[{row.extra}]'")
    system = row.build(context, row.options() if options is None else options)
    if not callable(getattr(system, "search", None)):
        raise ValueError(f"the system {name} was built as {type(system).__name__}, which has no `search`")
    return system


def checked_run(system: System, collection: Collection, queries: Mapping[str, str], k: int) -> Run:
    """The k best documents of each query, as a system finds them; what is no proper run is refused."""
    run = system.search(queries, k)
    if not isinstance(run, Run):
        raise ValueError(f"expected `search` to return a Run, found {type(run).__name__}")
    if strange := sorted(set(run.rankings) - set(queries)):
        raise ValueError(f"the run answers a query that was not asked: {strange[0]!r}")
    for qid, ranking in run.rankings.items():
        for docno, score in ranking[:k]:
            if docno not in collection.docnos:
                raise ValueError(f"query {qid!r}: {collection.name} has no document {docno!r}")
            if not isfinite(score):
                raise ValueError(f"query {qid!r}: the score of {docno!r} is {score}, not a finite number")
    return Run({qid: run.rankings.get(qid, ())[:k] for qid in queries}, run.name)
