"""The built-in collection: documentation of the running Python's standard library or of an installed package.

Every module, class, function, method and property with a docstring becomes a document: its docno is the
public name that users know (names.py), its title that name with the signature, its text the docstring. Python
modules are parsed, not imported (source.py); the standard library's C modules are imported and inspected
(compiled.py). The splits `train`, `dev` and `test` are questions written and judged by hand, for the standard
library only (README.md in this folder). `earlier` has older judgements of some test questions. The split
`sentences` is derived from structure (sentences.py); nothing is learned from it unless it is asked for.

Left out: tests, vendored copies, `__main__` modules, IDLE, codec tables, modules removed since Python 3.12
(distutils, lib2to3), and the C extensions of packages other than the standard library.
"""

import csv
import importlib.resources
import importlib.util
import inspect
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from gr2.data.collection import Collection, Document
from gr2.data.pydocs.compiled import Inspector, is_compiled
from gr2.data.pydocs.names import Named, Names
from gr2.data.pydocs.sentences import Entry, sentences
from gr2.data.pydocs.source import Module, Ref, read_package

logger = logging.getLogger(__name__)

LEFT_OUT = frozenset(
    "antigravity this idlelib lib2to3 turtledemo ensurepip distutils encodings pydoc_data test nturl2path "
    "sre_compile sre_constants sre_parse xxlimited xxlimited_35 xxsubtype __hello__ __phello__".split()
)
"""Top-level modules of the standard library without anything that a programmer would look for."""
SPLITS = ("train", "dev", "test", "earlier")
"""Of the hand-written questions; `earlier` repeats test questions with the judgements that they had first."""

_HEAD = re.compile(r"(?:\w+\.)*(\w+)(\(.*\))(?:\s*-+>[^.]*)?")  # a line with only a call signature


def pydocs(package: str = "") -> Collection:
    """The documentation of the standard library, or of one installed package, as a collection.

    Args:
        package: A top-level package, parsed but not imported; empty for the standard library.

    Raises:
        ValueError: There is no such package, or it has no Python source.
    """
    rows = _standard_library() if not package else _installed(package)
    documents = tuple(_document(row) for row in rows)
    entries = (
        Entry(document.docno, document.text, row.module, row.owner)
        for document, row in zip(documents, rows, strict=True)
    )
    queries, judged = sentences(entries)
    qrels: dict[str, Mapping[str, Mapping[str, int]]] = {"sentences": judged}
    if not package:
        texts, splits = _judgements({document.docno for document in documents})
        queries |= texts
        qrels = splits | qrels
    name = f"pydocs:{package}" if package else "pydocs"
    return Collection(name=name, documents=documents, queries=queries, qrels=qrels)


def judgements() -> Iterator[tuple[str, str, str, dict[str, int]]]:
    """The hand-written questions: qid, split, text and the grade of each judged name."""
    grades = _grades("qrels.tsv")
    for row in _table("queries.tsv"):
        yield row["qid"], row["split"], row["query"], grades.get(row["qid"], {})


def missing_judgements(collection: Collection) -> list[tuple[str, str]]:
    """The judged (qid, docno) pairs that this Python does not have; `pydocs` logs and drops them."""
    return [
        (qid, docno)
        for qid, _, _, grades in judgements()
        for docno in grades
        if docno not in collection.docnos
    ]


def _judgements(docnos: set[str]) -> tuple[dict[str, str], dict[str, dict[str, dict[str, int]]]]:
    """The questions and judgements whose documents exist."""
    queries: dict[str, str] = {}
    qrels: dict[str, dict[str, dict[str, int]]] = {name: {} for name in SPLITS}
    earlier = _grades("earlier.tsv")
    for qid, split, query, grades in judgements():
        there = {docno: grade for docno, grade in grades.items() if docno in docnos}
        if gone := sorted(grades.keys() - there.keys()):
            logger.info("%s: Python %s has no %s", qid, sys.version.split()[0], ", ".join(gone))
        if there:
            queries[qid] = query
            qrels[split][qid] = there
        before = {docno: grade for docno, grade in earlier.get(qid, {}).items() if docno in docnos}
        if there and before:
            qrels["earlier"][qid] = before
    return queries, qrels


def _grades(name: str) -> dict[str, dict[str, int]]:
    """The judgements of a table: qid → docno → grade."""
    found: dict[str, dict[str, int]] = {}
    for row in _table(name):
        found.setdefault(row["qid"], {})[row["docno"]] = int(row["grade"])
    return found


def _table(name: str) -> list[dict[str, str]]:
    text = (importlib.resources.files(__name__) / name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))


def _standard_library() -> list[Named]:
    folder = Path(os.__file__).parent
    other_systems = {"ntpath", "posixpath"} - {os.path.__name__}
    modules: list[Module] = []
    inspector = Inspector()
    for name in sorted(sys.stdlib_module_names - LEFT_OUT - other_systems):
        if (folder / name / "__init__.py").is_file():
            modules += read_package(folder / name, name)
        elif (folder / f"{name}.py").is_file():
            modules += read_package(folder / f"{name}.py", name)
        elif not name.startswith("_") and is_compiled(name) and (module := inspector.read(name)):
            modules.append(module)
    read = {module.name: module for module in modules}
    for home, key, thing in inspector.hidden():
        read[home].bound[key] = [thing]
    _bind_multiprocessing(read)
    return Names(modules, inspector.read).documented()


def _bind_multiprocessing(modules: Mapping[str, Module]) -> None:
    """Bind the names that multiprocessing takes from its default context when it is imported."""
    if not {"multiprocessing", "multiprocessing.context"} <= modules.keys():
        return
    package, context = modules["multiprocessing"], modules["multiprocessing.context"]
    for owner in ("DefaultContext", "BaseContext"):
        for thing in context.bound[owner]:
            for name in [] if isinstance(thing, Ref) else thing.members:
                package.bind(name, Ref((owner, name), context.name))
    for name in ("AuthenticationError", "BufferTooShort", "ProcessError", "TimeoutError"):
        package.bind(name, Ref((name,), context.name))
    for name in ("active_children", "current_process", "parent_process"):
        package.bind(name, Ref((name,), "multiprocessing.process"))
    package.bind("Process", Ref(("BaseProcess",), "multiprocessing.process"))


def _installed(package: str) -> list[Named]:
    if not package.isidentifier() or package == "__main__":
        raise ValueError(f"pydocs:{package}: expected the name of a top-level package, such as numpy")
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise ValueError(f"pydocs:{package}: no package with this name is installed")
    roots = [Path(place) for place in spec.submodule_search_locations or ()]
    if not roots and spec.origin and spec.origin.endswith(".py"):
        roots = [Path(spec.origin)]
    modules = [module for root in sorted(roots) if root.exists() for module in read_package(root, package)]
    if not modules:
        raise ValueError(f"pydocs:{package}: has no Python source to read (C modules have none)")
    return Names(modules, lambda name: None).documented()


def _document(row: Named) -> Document:
    """The document of an object; a signature at the start of its docstring moves to the title."""
    own = row.docno.rpartition(".")[2]
    lines = inspect.cleandoc(row.doc).splitlines()
    heads: list[str] = []
    while lines and (head := _HEAD.fullmatch(lines[0].rstrip())) and head[1] == own:
        heads.append(head[2])
        lines.pop(0)
    signature = row.signature or (heads[0] if heads else "")
    text = "\n".join(lines).strip() or inspect.cleandoc(row.doc)
    return Document(_clean(row.docno), _clean(f"{row.docno}{signature}"), _clean(text))


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()  # half a surrogate pair cannot be written to any file
