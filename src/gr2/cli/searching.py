"""`gr2 search`, `gr2 show`: ask a model, and look at a document."""

import json as json_format
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from gr2.cli.app import Folder, Settings, announce, app, open_named, write_run
from gr2.model.config import SearchConfig

if TYPE_CHECKING:
    from gr2.data.collection import Document
    from gr2.model.gr2 import GR2
    from gr2.model.searcher import SearchResult

Query = Annotated[Positional[str], arg(metavar="QUERY")]
Place = Annotated[Positional[str], arg(metavar="MODEL|COLLECTION")]
Docno = Annotated[Positional[str], arg(metavar="DOCNO")]


@app.command
def search(
    folder: Folder,
    query: Query = "",
    /,
    *,
    topics: Path | None = None,
    output: Path | None = None,
    k: int = 10,
    config: Annotated[SearchConfig, Settings] = SearchConfig(),  # noqa: B008
    device: str = "auto",
    json: bool = False,
) -> None:
    """Search with a model: one query, or a file of queries.

    Each line has rank, score (log P of the document), docno and title. A last line, on standard error, says
    how long the search took (without loading) and whether a better document may have been missed.

    Args:
        folder: The folder that `gr2 index` or `gr2 train` wrote, or the name of a model on the Hugging Face
            hub.
        query: The query; without one, give a file of queries with --topics.
        topics: A file of queries (TREC topics, JSONL, TSV or CSV); needs `--output`.
        output: The run file to write.
        k: Documents to return for each query.
        config: How to search.
        device: Device to search on: auto takes cuda, then mps, else cpu.
        json: Print the results of a query as JSON, with docids and what each view contributes.
    """
    if bool(query) == bool(topics) or bool(topics) != bool(output):
        raise ValueError("give either a query, or --topics FILE with --output RUN")
    announce(folder)
    from gr2.data.formats.folder import read_query_file
    from gr2.model.gr2 import GR2
    from gr2.model.hub import located
    from gr2.model.searcher import SearchRequest

    folder = located(folder)
    model = GR2.from_pretrained(folder, device=device)
    searcher = model.searcher(config)
    if topics and output:
        run = searcher.search_many(read_query_file(topics), k, name=folder.resolve().name)
        write_run(run, output, str(folder))
        return
    searcher.answer(
        [SearchRequest(query, k)]
    )  # the first search of a process compiles; a service has done so
    started = time.perf_counter()
    (found,) = searcher.answer([SearchRequest(query, k)])
    milliseconds = (time.perf_counter() - started) * 1000
    rows = _rows(model, found, folder)
    if json:
        _print_json(query, rows, found, milliseconds)
        return
    for row in rows:
        print(f"{row['rank']:2}  {row['score']:8.3f}  {row['docno']}  {row['title'] or row['docid']}")
    how = "no other document scores better" if found.proven else "documents that score better may be missing"
    cut = "; the query was too long, and only its beginning was used" if found.truncated else ""
    print(
        f"{len(rows)} result{'s' * (len(rows) != 1)} in {milliseconds:,.0f} ms; {how}{cut}", file=sys.stderr
    )


@app.command
def show(name: Place, docno: Docno, /) -> None:
    """Print a document: docno, title, URL and text.

    Args:
        name: A model folder that contains its documents, or a collection (a folder, `pydocs`, or `ir:ID`).
        docno: The key of the document.
    """
    document = _document(name, docno)
    if document is None:
        raise ValueError(f"{name} has no document {docno!r}")
    for part in (document.docno, document.title, document.url):
        if part:
            print(part)
    print(f"\n{document.text}")


def _document(name: str, docno: str) -> "Document | None":
    from gr2.data.documents import NAME, DocumentStore

    stored = Path(name) / NAME
    if stored.is_file():
        return DocumentStore(stored).get([docno]).get(docno)
    if (Path(name) / "network.safetensors").is_file():
        raise ValueError(f"{name}: this model folder has no {NAME}; name its collection instead")
    documents = open_named(name).documents
    return next((document for document in documents if document.docno == docno), None)


def _rows(model: "GR2", found: "SearchResult", folder: Path) -> list[dict[str, Any]]:
    """The results with their titles, if the folder has the documents."""
    from gr2.data.documents import NAME, DocumentStore

    docids = model.docids
    docnos = [docids.docnos[index] for index in found.docids]
    known = DocumentStore(folder / NAME).get(docnos) if (folder / NAME).is_file() else {}
    views = found.views or ({},) * len(docnos)
    rows = zip(docnos, found.docids, found.scores, views, strict=True)
    return [
        {
            "rank": rank,
            "docno": docno,
            "title": known[docno].title if docno in known else "",
            "score": score,
            "docid": docids.texts[index],
            "views": dict(each),
        }
        for rank, (docno, index, score, each) in enumerate(rows, start=1)
    ]


def _print_json(query: str, rows: list[dict[str, Any]], found: "SearchResult", milliseconds: float) -> None:
    content = {
        "query": query,
        "milliseconds": round(milliseconds, 1),
        "proven": found.proven,
        "truncated": found.truncated,
        "results": rows,
    }
    print(json_format.dumps(content, ensure_ascii=False, indent=1))
