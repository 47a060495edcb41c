"""`gr2 judge`: judge documents of several systems in the terminal."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from gr2.cli.app import Name, app, open_named, progress
from gr2.cli.keys import typed_words
from gr2.judge.query_list import Order

if TYPE_CHECKING:
    from gr2.data.collection import Collection, Document
    from gr2.data.documents import DocumentStore
    from gr2.judge.query_list import QueryToJudge
    from gr2.judge.session import Pool, Session
    from gr2.judge.store import JudgeConfig
    from gr2.systems.registry import System

HELP = "u undo, s skip the document, n next query, q quit, ? this help"


@app.command
def judge(
    name: Name,
    /,
    *,
    queries: Path,
    out: Path,
    judge: str,
    pool: tuple[str, ...] = ("bm25", "dense"),
    depth: int = 10,
    order: Order = "file",
    grades: int | None = None,
    words: tuple[str, ...] = (),
) -> None:
    """Judge documents in the terminal; started again, it continues.

    What several systems find is mixed in one list that does not say who found what. Every grade is saved at
    once. `gr2 serve MODEL --judge FOLDER` does the same on a page.

    Args:
        name: The collection: a folder, `pydocs`, or `ir:ID`.
        queries: Topics, a table of queries, or a log: a query, or a query, a tab and a count on each line.
        out: The folder of judgements to add to; it is made if it does not exist.
        judge: Your name. Several people may judge at the same time.
        pool: Systems (see `gr2 systems`) and model folders.
        depth: How many documents of each system to judge.
        order: As the file has them (a log: most frequent first), or first those on which the systems disagree
            most; then every query is asked at the start.
        grades: The highest grade of a new folder; 4 unless given. An existing folder keeps its own.
        words: A word for each grade of a new folder, from 0 on; by default the numbers are shown.
    """
    from gr2.data.documents import NAME, DocumentStore, write_documents
    from gr2.judge.query_list import by_disagreement, read_query_list
    from gr2.judge.session import Session
    from gr2.judge.store import JudgementStore, config_of
    from gr2.systems.registry import checked_run

    config, todo = config_of(out, grades, words), read_query_list(queries)
    data = open_named(name, show=True)
    systems = [_system(each, data) for each in pool]
    if order == "disagreement":
        texts = {query.text: query.text for query in todo}
        runs = [checked_run(system, data, texts, depth) for system in systems]
        todo = by_disagreement(todo, [{text: run.docnos(text) for text in texts} for run in runs])
    pooled = _pool(systems, data, depth)
    store = JudgementStore(out, config, docnos=data.docnos)
    with TemporaryDirectory() as folder:
        write_documents(data.documents, Path(folder) / NAME)
        documents = DocumentStore(Path(folder) / NAME)
        session = Session(store, judge, todo, pooled)
        print(_help(config))
        _judge(session, documents)
        documents.close()
    print(f"{len(session.graded()):,} judged by {judge}, kept in {out}")


def _system(name: str, data: "Collection") -> "System":
    """A system of the registry, or a model folder."""
    from gr2.systems import SYSTEMS
    from gr2.systems.registry import SystemContext, build_system
    from gr2.systems.rows import ModelOptions

    context = SystemContext(collection=data, progress=progress())
    if name not in SYSTEMS and (Path(name) / "config.json").is_file():
        return build_system("model", context, ModelOptions(folder=Path(name)))
    return build_system(name, context)


def _pool(systems: Sequence["System"], data: "Collection", depth: int) -> "Pool":
    """What the systems find for a query, as one list."""
    from gr2.judge.pool import pool
    from gr2.systems.registry import checked_run

    if not systems:
        raise ValueError("expected at least one system or model folder: --pool bm25")

    def pooled(query: "QueryToJudge") -> list[str]:
        runs = [checked_run(system, data, {"q": query.text}, depth) for system in systems]
        return pool(query.text, [[docno for docno, _ in run.rankings["q"]] for run in runs], depth)

    return pooled


def _judge(session: "Session", documents: "DocumentStore") -> None:
    """Show documents and follow what is typed, until `q` or the end of the input."""
    _show(session, documents)
    for word in typed_words(single_keys=session.store.config.grades <= 9):
        if word == "q":
            return
        try:
            said = _follow(session, word)
        except ValueError as error:
            print(error, flush=True)
        else:
            print(said)
            _show(session, documents)


def _follow(session: "Session", word: str) -> str:
    """Do what was typed; returns what to say about it."""
    config = session.store.config
    if word == "s":
        session.skip()
        return "skipped"
    if word == "n":
        session.next_query()
        return "next query"
    if word == "u":
        retracted = session.undo()
        return f"undone: {_grade(config, retracted.grade)} for {retracted.docno}"
    if word.isascii() and word.isdigit():
        return f"saved: {_grade(config, session.grade(int(word)).grade)}"
    return _help(config)


def _show(session: "Session", documents: "DocumentStore") -> None:
    """Print the present document, or that there is none left."""
    place = session.place
    if place is None:
        print(f"\nno document is left to judge, {len(session.graded()):,} judged\nu q ?", flush=True)
        return
    found = documents.get([place.docno])
    print(f"\nquery {place.query_number:,} of {len(session.queries):,}: {_clean(place.query.text)}")
    print(
        f"document {place.document_number} of {place.documents}, {len(session.graded()):,} judged\n"
        f"{_described(found[place.docno], place.query.text)}\n"
        f"grade 0-{session.store.config.grades}, or u s n q ?",
        flush=True,
    )


def _described(document: "Document", query: str) -> str:
    from gr2.data.documents import snippet

    text = "".join(part for part, _ in snippet(document.text, query))
    lines = (document.title or document.docno, text, document.url)
    return "\n".join(f"  {_clean(line)}" for line in lines if line)


def _clean(text: str) -> str:
    """Without control characters, which could move the cursor."""
    return "".join(sign if sign.isprintable() else " " for sign in text)


def _help(config: "JudgeConfig") -> str:
    grades = ", ".join(_grade(config, grade) for grade in range(config.grades + 1))
    return f"grades: {grades}; {HELP}"


def _grade(config: "JudgeConfig", grade: int) -> str:
    """A grade with its word."""
    return f"{grade} {config.words[grade]}" if config.words else str(grade)
