"""The name of one of the paper's collections → the collection, if the user has the source data.

`paper.toml` describes how each collection is built. Some sources need a licence; if one is missing, the error
says how to obtain it and where to put it.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from gr2.data.collection import Collection
from gr2.data.formats import irds
from gr2.data.formats.natural_questions import read_natural_questions

Recipe = Mapping[str, Any]


class DataMissing(ValueError):
    """The source data of a collection is missing; the message says how to get it and where to put it."""


def recipes() -> dict[str, Recipe]:
    """The paper's collections: name → how it is built."""
    return tomllib.loads(resources.files("gr2.data").joinpath("paper.toml").read_text(encoding="utf-8"))


def prepare(name: str, recipe: Recipe, *, source: Path | None = None, seed: int = 0) -> Collection:
    """Build a collection from its recipe; `source` is the folder of files that are not in ir_datasets."""
    if "natural_questions" in recipe:
        return _from_files(name, recipe, source)
    return _from_irds(name, recipe, seed)


def _from_files(name: str, recipe: Recipe, source: Path | None) -> Collection:
    wanted: Mapping[str, str] = recipe["natural_questions"]
    if source is None:
        raise DataMissing(
            f"{name}: name with --source the folder that contains {_listed(wanted)}.\n{recipe['obtain']}"
        )
    missing = [source / file for file in wanted.values() if not (source / file).is_file()]
    if missing:
        raise DataMissing(f"{name}: missing: {', '.join(map(str, missing))}\n{recipe['obtain']}")
    return replace(read_natural_questions({split: source / f for split, f in wanted.items()}), name=name)


def _from_irds(name: str, recipe: Recipe, seed: int) -> Collection:
    _require(name, recipe)
    splits = {split: [irds.load(id) for id in ids] for split, ids in recipe["splits"].items()}
    folds: int | list[str] = recipe.get("folds", 0)
    try:
        whole = known_only(irds.from_irds(name, recipe["documents"], splits))
        if isinstance(folds, list):
            whole = replace(whole, folds=tuple(_qids(id, whole) for id in folds))
    except ValueError as error:
        raise DataMissing(f"{name}: {error}\n{recipe['obtain']}") from error
    collection = replace(whole.subset(recipe["size"], seed=seed), name=name)
    return collection.with_folds(folds, seed=seed) if isinstance(folds, int) and folds else collection


def known_only(collection: Collection) -> Collection:
    """The collection without judgements of documents that are not in its corpus.

    TREC judges the pooled documents: for ClueWeb09 they come from category A, of which category B is a part.
    A query that loses all its judgements is dropped from its split.
    """
    known = collection.docnos
    qrels = {
        split: {
            qid: kept
            for qid, row in judged.items()
            if (kept := {docno: grade for docno, grade in row.items() if docno in known})
        }
        for split, judged in collection.qrels.items()
    }
    return replace(collection, qrels=qrels, scanned=collection.scan)


def _require(name: str, recipe: Recipe) -> None:
    if not recipe["needs"]:
        return
    irds.load(recipe["documents"])
    import ir_datasets

    home = Path(ir_datasets.util.home_path())
    missing = [home / need for need in recipe["needs"] if not (home / need).exists()]
    if missing:
        raise DataMissing(
            f"{name}: the documents need a licence and were not found.\n{recipe['obtain']}\n"
            f"Put or link it at: {', '.join(map(str, missing))}"
        )


def _qids(id: str, collection: Collection) -> tuple[str, ...]:
    judged = collection.split("test")
    queries = irds.explained(id, irds.load(id).queries_iter)
    return tuple(sorted(query.query_id for query in queries if query.query_id in judged))


def _listed(files: Mapping[str, str]) -> str:
    return " and ".join(files.values())
