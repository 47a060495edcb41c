"""`gr2 docids ...`: the identifiers of documents, made, looked at and compared."""

import json
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg
from tyro.extras import SubcommandApp

from gr2.cli.app import BACKBONE, Folder, Name, app, open_named, progress

Scheme = Literal["title", "url", "summary", "terms", "number", "kmeans", "pq", "rq", "query", "fusion"]
Docno = Annotated[Positional[str], arg(metavar="DOCNO")]

docids = SubcommandApp()
app.command(docids, name="docids", help="Build the identifiers of documents, or look at them.")


@docids.command
def build(
    name: Name,
    /,
    *,
    out: Path,
    backbone: str = BACKBONE,
    scheme: Scheme = "title",
    words: int = 12,
    branches: int = 10,
    leaf: int = 100,
    places: int = 0,
    codes: int = 256,
    encoder: str = "",
    generator: str = "",
    generator_steps: int = 1000,
    radius: float = 2.0,
    seed: int = 0,
    resume: bool = False,
) -> None:
    """Give every document its docid.

    Args:
        name: The collection: a folder, `pydocs`, `ir:ID`.
        backbone: gr2-mini, or folder or hub name of a checkpoint: its tokenizer reads text docids (train
            with the same one).
        out: The folder to write; what is kept between interruptions is beside it, in OUT.making.
        scheme: Read off the document: title (else the leading words), url, summary, terms;
            number: an arbitrary one; from its vector: kmeans (a path), pq and rq (codes); written by a model
            that learns it here: query (a plain pseudo-query) and fusion (the paper's).
        words: Words at which a docid is cut that is read off the document.
        branches: Clusters of a level of kmeans (DSI: 10, NCI: 30).
        leaf: Documents of a cluster that kmeans does not split again (DSI: 100, NCI: 30).
        places: Codes of a docid of pq or rq; 0 is the scheme's own: 24 and 32.
        codes: Codes to choose from at each of these places, a power of 2.
        encoder: Folder or hub name of the checkpoint that makes the vectors which kmeans, pq and rq cluster;
            empty: the backbone.
        generator: Folder or hub name of the checkpoint that learns to write docids; empty: the backbone.
        generator_steps: Optimiser steps in which it learns.
        radius: |r|, how far from its document fusion samples; `gr2 docids radius` compares some.
        seed: The same seed gives the same docids.
        resume: Go on after an interruption.
    """
    from gr2.docids.schemes import Making
    from gr2.docids.schemes import build as make
    from gr2.docids.writing import WritingConfig
    from gr2.store import check_replaceable

    check_replaceable(out)
    making = Making(
        collection=open_named(name, show=True),
        backbone=backbone,
        folder=out.with_name(out.name + ".making"),
        words=words,
        branches=branches,
        leaf=leaf,
        places=places,
        codes=codes,
        encoder=encoder,
        generator=generator,
        writing=WritingConfig(steps=generator_steps, radius=radius),
        seed=seed,
        resume=resume,
        progress=progress(),
    )
    made = make(scheme, making)
    made.save(out)
    counts = ", ".join(f"{count:,} {kind}" for kind, count in made.clashes.items())
    print(f"{scheme}: {len(made):,} docids ({counts}), written to {out}")


@docids.command
def report(
    folder: Folder,
    name: Name,
    /,
    *,
    json: Path | None = None,
    plot: Path | None = None,
    sample: int | None = None,
) -> None:
    """Tell how healthy docids are: clashes, lengths, shared prefixes, balance, self-retrieval.

    Args:
        folder: What `gr2 docids build` wrote.
        name: The collection they were made for: a folder, `pydocs`, `ir:ID`.
        json: A file to write the figures to, as JSON.
        plot: A .png or .svg file to draw them in; needs the extra `plots`.
        sample: How many documents BM25 searches for, at most; without it all.
    """
    from gr2.docids import Docids
    from gr2.docids.drawing import check_drawable, draw_healths
    from gr2.docids.report import health
    from gr2.store import write_json

    if plot:
        check_drawable(plot)
    known, data = Docids.load(folder), open_named(name, show=True)
    made_for = str(known.about.get("fingerprint"))
    if made_for != data.fingerprint:
        raise ValueError(
            f"{folder} was made for a collection with the fingerprint {made_for[:12]}, "
            f"but {name} has {data.fingerprint[:12]}"
        )
    found = health(known, data, sample=sample, progress=progress())
    print(found.as_text())
    if json:
        write_json(json, found.as_dict())
        print(f"\nfigures written to {json}")
    if plot:
        draw_healths({found.scheme: found}, plot)
        print(f"\ndrawn in {plot}")


@docids.command
def radius(
    name: Name,
    /,
    *,
    out: Path,
    backbone: str = BACKBONE,
    generator: str = "",
    generator_steps: int = 1000,
    radii: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0, 3.0, 4.0),
    sample: int = 600,
    json: Path | None = None,
    plot: Path | None = None,
    seed: int = 0,
    resume: bool = False,
) -> None:
    """Compare radii |r| of fusion docids: do they find their documents, and are they distinct?

    The model that writes them is trained in OUT.making, where `gr2 docids build --scheme fusion --out OUT
    --resume` with the same options finds it.

    Args:
        name: The collection: a folder, `pydocs`, `ir:ID`.
        backbone: gr2-mini, or folder or hub name of the checkpoint that the docids are for.
        out: The folder of the docids to be.
        generator: Folder or hub name of the checkpoint that learns to write docids; empty: the backbone.
        generator_steps: Optimiser steps in which it learns.
        radii: To be compared.
        sample: Documents to write for at each radius, at most.
        json: A file to write the figures to, as JSON.
        plot: A .png or .svg file to draw them in; needs the extra `plots`.
        seed: The same seed gives the same docids.
        resume: Go on after an interruption, or use the model that is there.
    """
    from gr2.docids.drawing import check_drawable, draw_radii
    from gr2.docids.radius import as_dicts, as_table, compare_radii, suggested
    from gr2.docids.schemes import Making, learned
    from gr2.docids.writing import WritingConfig
    from gr2.store import write_json

    if plot:
        check_drawable(plot)
    making = Making(
        collection=open_named(name, show=True),
        backbone=backbone,
        folder=out.with_name(out.name + ".making"),
        generator=generator,
        writing=WritingConfig(steps=generator_steps),
        seed=seed,
        resume=resume,
        progress=progress(),
    )
    writer = learned(making)
    rows = compare_radii(
        writer, making.collection, radii, making.folder, sample=sample, progress=making.progress
    )
    print(as_table(rows))
    print(f"most unique of those that keep 95% of both relevances: --radius {suggested(rows):g}")
    if json:
        write_json(json, as_dicts(rows))
    if plot:
        draw_radii(rows, plot)


@docids.command
def show(folder: Folder, docno: Docno, /) -> None:
    """Print a document's docid and its tokens.

    Args:
        folder: What `gr2 docids build` wrote.
        docno: The document.
    """
    from gr2.docids import Docids

    known = Docids.load(folder)
    if docno not in known.index:
        raise ValueError(f"{folder} has no docid for {docno!r}")
    at = known.index[docno]
    print(
        json.dumps({"docno": docno, "docid": known.texts[at], "tokens": known.tokens[at]}, ensure_ascii=False)
    )
