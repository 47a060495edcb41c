"""`gr2 docids ...`: the identifiers of documents: made, inspected and compared."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg
from tyro.extras import SubcommandApp

from gr2.cli.app import Folder, Name, Settings, app, open_named, progress
from gr2.schemes.config import SchemeConfig
from gr2.systems.config import PRESETS
from gr2.systems.config import preset as preset_of

Docno = Annotated[Positional[str], arg(metavar="DOCNO")]
PRESET = next(iter(PRESETS))

docids = SubcommandApp()
app.command(docids, name="docids", help="Build the identifiers of documents, or inspect them.")


def register(chosen: str = PRESET) -> None:
    """Add the commands whose defaults come from a preset."""
    usual = preset_of(chosen)
    fusion = replace(usual.docids, scheme="fusion")

    @docids.command
    def build(
        name: Name,
        /,
        *,
        out: Path,
        preset: str = chosen,
        backbone: str = usual.backbone,
        config: Annotated[SchemeConfig, Settings] = usual.docids,
        fold: int | None = None,
        resume: bool = False,
    ) -> None:
        """Give every document its docid.

        Args:
            name: The collection: a folder, `pydocs`, or `ir:ID`.
            out: The folder to write; unfinished work is kept in OUT.making.
            preset: Where the defaults come from: default, fast or paper.
            backbone: gr2-mini, or folder or hub name of a checkpoint: its tokenizer reads text docids, so
                train with the same one.
            config: The scheme and its settings; `gr2 docids schemes` lists the schemes.
            fold: Cross-validation: a scheme that learns from queries sees those of the other folds alone.
            resume: Continue after an interruption.
        """
        from gr2.schemes.registry import SchemeContext
        from gr2.schemes.registry import build as make
        from gr2.store import Workspace, check_replaceable

        check_replaceable(out)
        made = make(
            SchemeContext(
                collection=open_named(name, show=True, fold=fold),
                backbone=backbone,
                folder=Workspace(out).making,
                config=config,
                resume=resume,
                progress=progress(),
            )
        )
        made.save(out)
        counts = ", ".join(f"{count:,} {kind}" for kind, count in made.clashes.items())
        print(f"{made.about['scheme']}: {len(made):,} docids ({counts}), written to {out}")
        numbered = made.clashes.get("numbered", 0)
        if numbered > len(made) / 2:
            print(f"warning: {numbered:,} docids differ from another by a number alone")

    @docids.command
    def radius(
        name: Name,
        /,
        *,
        out: Path,
        preset: str = chosen,
        backbone: str = usual.backbone,
        config: Annotated[SchemeConfig, Settings] = fusion,
        radii: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0, 3.0, 4.0),
        max_documents: int = 600,
        json: Path | None = None,
        plot: Path | None = None,
        resume: bool = False,
    ) -> None:
        """Compare radii |r| of fusion docids: do they find their documents, and are they distinct?

        The generator is trained in OUT.making, where `gr2 docids build --scheme fusion --out OUT --resume`
        with the same options finds it.

        Args:
            name: The collection: a folder, `pydocs`, or `ir:ID`.
            out: The folder of the future docids.
            preset: Where the defaults come from: default, fast or paper.
            backbone: gr2-mini, or folder or hub name of the checkpoint that the docids are for.
            config: The settings of the scheme.
            radii: Radii to compare.
            max_documents: Documents to write for at each radius, at most.
            json: A file to write the figures to, as JSON.
            plot: A .png or .svg file to draw them in; needs the extra `plots`.
            resume: Continue after an interruption, or use the existing generator.
        """
        from gr2.schemes.fusion.radius import as_dicts, as_table, compare_radii, suggested
        from gr2.schemes.plots import check_drawable, draw_radii
        from gr2.schemes.registry import SchemeContext, trained_generator
        from gr2.store import Workspace, write_json

        if plot:
            check_drawable(plot)
        context = SchemeContext(
            collection=open_named(name, show=True),
            backbone=backbone,
            folder=Workspace(out).making,
            config=config,
            resume=resume,
            progress=progress(),
        )
        generator = trained_generator(context)
        rows = compare_radii(
            generator, context.collection, radii, context.folder, sample=max_documents, progress=progress()
        )
        print(as_table(rows))
        print(f"most unique of those that keep 95% of both relevances: {suggested(rows):g}")
        if json:
            write_json(json, as_dicts(rows))
        if plot:
            draw_radii(rows, plot)


@docids.command
def schemes() -> None:
    """List the docid schemes, one per line."""
    from gr2.evaluate.tables import render
    from gr2.schemes.registry import SCHEMES

    rows = [["auto", "title if nearly all documents have one, else summary"]]
    rows += [[name, scheme.summary] for name, scheme in SCHEMES.items()]
    print(render(["scheme", "docid"], rows))


@docids.command
def report(
    folder: Folder,
    name: Name,
    /,
    *,
    json: Path | None = None,
    plot: Path | None = None,
    max_documents: int | None = None,
) -> None:
    """Report how healthy docids are: clashes, lengths, shared prefixes, balance, self-retrieval.

    Args:
        folder: What `gr2 docids build` wrote.
        name: The collection they were made for: a folder, `pydocs`, or `ir:ID`.
        json: A file to write the figures to, as JSON.
        plot: A .png or .svg file to draw them in; needs the extra `plots`.
        max_documents: How many documents BM25 searches for, at most; without it all.
    """
    from gr2.docids.docids import Docids
    from gr2.schemes.health import health
    from gr2.schemes.plots import check_drawable, draw_healths
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
    found = health(known, data, sample=max_documents, progress=progress())
    print(found.as_text())
    if json:
        write_json(json, found.as_dict())
        print(f"\nfigures written to {json}")
    if plot:
        draw_healths({found.scheme: found}, plot)
        print(f"\ndrawn in {plot}")


@docids.command
def show(folder: Folder, docno: Docno, /) -> None:
    """Print a document's docid and its tokens.

    Args:
        folder: What `gr2 docids build` wrote.
        docno: The document.
    """
    from gr2.docids.docids import Docids

    known = Docids.load(folder)
    if docno not in known.index:
        raise ValueError(f"{folder} has no docid for {docno!r}")
    at = known.index[docno]
    found = {"docno": docno, "docid": known.texts[at], "tokens": known.tokens[at]}
    print(json.dumps(found, ensure_ascii=False))
