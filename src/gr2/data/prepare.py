"""The name of a collection → the collection, if the user has the source data.

`paper.toml` describes the paper's collections, most of which ir_datasets reads, and `public.toml` those made
of files that anybody can download. If something is missing, the error says how to obtain it and where to put
it.
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from gr2.data.collection import Collection
from gr2.data.formats import irds
from gr2.data.formats.antique import read_antique
from gr2.data.formats.cranfield import read_cranfield, source_documents
from gr2.data.formats.esci import read_esci
from gr2.data.formats.folder import read_files
from gr2.data.formats.medquad import read_medquad
from gr2.data.formats.movies import read_movies
from gr2.data.formats.natural_questions import read_natural_questions
from gr2.data.formats.nfcorpus import read_nfcorpus
from gr2.extras import extra

Recipe = Mapping[str, Any]
Files = Mapping[str, tuple[Path, ...]]
OR = " | "
"""Between the names that a file may have."""


class DataMissing(ValueError):
    """The source data of a collection is missing; the message says how to get it and where to put it."""


def recipes() -> dict[str, Recipe]:
    """All collections that can be prepared: name → how it is built."""
    found: dict[str, Recipe] = {}
    for name in ("paper.toml", "public.toml"):
        found |= tomllib.loads(resources.files("gr2.data").joinpath(name).read_text(encoding="utf-8"))
    return found


def prepare(name: str, recipe: Recipe, *, source: Sequence[Path] = (), seed: int = 0) -> Collection:
    """Build a collection from its recipe; `source` has the files it needs, or folders that contain them."""
    if "reader" not in recipe:
        return _from_irds(name, recipe, seed)
    files = _located(name, recipe, source)
    return replace(READERS[recipe["reader"]](files, recipe), name=name)


def left_out(name: str, recipe: Recipe, source: Sequence[Path] = ()) -> dict[str, set[str]]:
    """Query → documents that no evaluation should count, such as the paper that a question was made from."""
    if recipe.get("reader") != "cranfield":
        return {}
    return source_documents(_one(_located(name, recipe, source), "qrels"))


def _natural_questions(files: Files, recipe: Recipe) -> Collection:
    return read_natural_questions({split: path for split, (path,) in files.items()})


def _beir(files: Files, recipe: Recipe) -> Collection:
    return read_files("beir", _one(files, "documents"), _one(files, "queries"), _by_split(files, "qrels"))


def _cranfield(files: Files, recipe: Recipe) -> Collection:
    return read_cranfield(
        _one(files, "documents"), _one(files, "queries"), _one(files, "qrels"), folds=recipe["folds"]
    )


def _nfcorpus(files: Files, recipe: Recipe) -> Collection:
    return read_nfcorpus(
        _by_split(files, "documents").values(),
        {split: path for split, path in _by_split(files, "queries").items() if split != "plain"},
        {split: path for split, path in _by_split(files, "qrels").items() if split != "plain"},
        _one(files, "plain_queries"),
        _one(files, "plain_qrels"),
    )


def _medquad(files: Files, recipe: Recipe) -> Collection:
    return read_medquad(
        files["pages"], _one(files, "judged"), _one(files, "questions"), whole=recipe["whole"]
    )


def _antique(files: Files, recipe: Recipe) -> Collection:
    queries, qrels = _by_split(files, "queries"), _by_split(files, "qrels")
    return read_antique(_one(files, "documents"), queries, qrels, recipe["train"].split())


def _esci(files: Files, recipe: Recipe) -> Collection:
    return read_esci(
        _one(files, "judgements"), _one(files, "products"), train=recipe["train"], seed=recipe["seed"]
    )


def _movies(files: Files, recipe: Recipe) -> Collection:
    held_out, seed = recipe["held_out"], recipe["seed"]
    return read_movies(_one(files, "documents"), _one(files, "judgements"), held_out=held_out, seed=seed)


READERS: Mapping[str, Callable[[Files, Recipe], Collection]] = {
    "natural_questions": _natural_questions,
    "beir": _beir,
    "cranfield": _cranfield,
    "nfcorpus": _nfcorpus,
    "medquad": _medquad,
    "antique": _antique,
    "esci": _esci,
    "movies": _movies,
}


def _one(files: Files, key: str) -> Path:
    (path,) = files[key]
    return path


def _by_split(files: Files, what: str) -> dict[str, Path]:
    """The files called SPLIT_what, by their splits."""
    end = f"_{what}"
    return {key.removesuffix(end): path for key, (path,) in files.items() if key.endswith(end)}


def _located(name: str, recipe: Recipe, source: Sequence[Path]) -> Files:
    """Find each file of a recipe among files and folders; what is missing is named, with how to obtain it."""
    wanted: Mapping[str, str] = recipe["files"]
    if not source:
        raise DataMissing(
            f"{name}: name with --source the files, or folders that contain them: "
            f"{', '.join(wanted.values())}\n{_obtain(recipe)}"
        )
    given = [path for each in source for path in (sorted(each.rglob("*")) if each.is_dir() else [each])]
    given = [path for path in given if path.is_file()]
    found = {key: _matching(given, names) for key, names in wanted.items()}
    if missing := [names for key, names in wanted.items() if not found[key]]:
        places = ", ".join(map(str, source))
        raise DataMissing(f"{name}: missing in {places}: {', '.join(missing)}\n{_obtain(recipe)}")
    for key, names in wanted.items():
        if "*" not in names and len(found[key]) > 1:
            several = ", ".join(map(str, found[key]))
            raise ValueError(f"{name}: expected one file {names}, found {several}; name one with --source")
    return found


def _obtain(recipe: Recipe) -> str:
    checksums = [f"{file} {checksum}" for file, checksum in recipe.get("md5", {}).items()]
    return "\n".join([recipe["obtain"].strip(), *([f"MD5: {', '.join(checksums)}"] if checksums else [])])


def _matching(given: Sequence[Path], names: str) -> tuple[Path, ...]:
    """The files with one of several names, plain or .gz; of several names the first that is there counts."""
    for name in names.split(OR):
        plain = name.removesuffix(".gz")
        if found := tuple(path for path in given if path.match(plain) or path.match(f"{plain}.gz")):
            return found
    return ()


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
    with extra("data", "these collections need ir_datasets"):
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
