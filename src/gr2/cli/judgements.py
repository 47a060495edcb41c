"""`gr2 judgements ...`: import, export, compare and count judgements, or derive them from clicks."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg
from tyro.extras import SubcommandApp

from gr2.cli.app import Folder, Judgements, Model, Settings, app, open_named, say
from gr2.judge.clicks import ClicksConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from gr2.judge.judgements import Judgement
    from gr2.judge.store import JudgeConfig, JudgementStore

Files = Annotated[Positional[tuple[Path, ...]], arg(metavar="FILE [FILE ...]")]
Logs = Annotated[Positional[tuple[Path, ...]], arg(metavar="LOG [LOG ...]")]

judgements = SubcommandApp()
app.command(
    judgements, name="judgements", help="Import, export or compare judgements, or make them from clicks."
)


@judgements.command(name="import")
def import_(
    files: Files,
    /,
    *,
    folder: Path,
    judge: str = "imported",
    queries: Path | None = None,
    collection: str | None = None,
    source: Literal["judged", "clicks"] = "judged",
    grades: int | None = None,
    words: tuple[str, ...] = (),
    columns: Mapping[str, str] = {},  # noqa: B006
) -> None:
    """Read judgement files into a folder of judgements; if anything is wrong, nothing is written.

    Args:
        files: BEIR folders (queries.jsonl, qrels/), TREC qrels, and Quepid's CSV exports (basic, detailed or
            book); each is recognised.
        folder: The folder of judgements to add to; it is made if it does not exist.
        judge: Who made them. The judges of a Quepid book are named in the file.
        queries: The texts of the queries of TREC qrels: topics, or a table (.jsonl, .tsv, .csv).
        collection: Refuse documents that this collection does not have; by default any docno is taken.
        source: Where the judgements come from: people (judged) or clicks.
        grades: The highest grade of a new folder; 4 unless given. An existing folder keeps its own.
        words: A word for each grade of a new folder, from 0 on; by default the numbers are shown.
        columns: Our name of a field and the name of your column, in pairs: `query search docno sku grade
            label`. Fields: query, docno and grade; of qrels qid, docno and grade.
    """
    from gr2.judge.imports import keep, read_rows
    from gr2.judge.store import config_of

    config = config_of(folder, grades, words)
    docnos = None if collection is None else open_named(collection).docnos
    rows = [row for path in files for row in read_rows(path, judge, queries, source, columns)]
    if not rows:
        raise ValueError("expected at least one file with judgements")
    kept = _added(folder, config, lambda store: keep(store, rows), docnos)
    print(f"{len(kept):,} judgements of {len({each.qid for each in kept}):,} queries added to {folder}")


def _added(
    folder: Path,
    config: "JudgeConfig",
    add: "Callable[[JudgementStore], list[Judgement]]",
    docnos: "Container[str] | None" = None,
) -> "list[Judgement]":
    """Add to a folder; for a new one it is tried elsewhere first, so that an error leaves no empty folder."""
    from gr2.judge.store import JudgementStore, is_filled

    if not is_filled(folder):
        with TemporaryDirectory() as elsewhere:
            add(JudgementStore(Path(elsewhere), config, docnos=docnos))
    return add(JudgementStore(folder, config, docnos=docnos))


@judgements.command
def export(
    folder: Folder,
    /,
    *,
    out: Path,
    format: Literal["trec", "beir"] = "trec",
    split: str = "train",
    judge: str | None = None,
    source: Literal["judged", "clicks"] | None = None,
) -> None:
    """Write one grade for each query and document, in TREC's or BEIR's form.

    The grade is the median of all judges; of two middle grades the lower one. Clicks count only for pairs
    that nobody judged.

    Args:
        folder: The folder of judgements.
        out: The folder to write; it appears whole or not at all.
        format: TREC: topics.txt and qrels.txt; BEIR: queries.jsonl and qrels/SPLIT.tsv.
        split: The name of BEIR's qrels file.
        judge: Export the latest grades of this judge only.
        source: Export only what people judged, or only what clicks say; by default both.
    """
    from gr2.judge.exports import export
    from gr2.judge.store import JudgementStore

    store = JudgementStore(folder)
    qrels = store.qrels(judge, source)
    export(store.queries(), qrels, out, format, split)
    print(f"{sum(map(len, qrels.values())):,} judgements of {len(qrels):,} queries written to {out}")


@judgements.command
def agreement(folder: Folder, /, *, conflicts: int = 20) -> None:
    """Measure how far judges agree on what they both judged: Cohen's weighted kappa, and their conflicts.

    Args:
        folder: The folder of judgements.
        conflicts: How many conflicts to show for each pair of judges, the largest first.
    """
    from gr2.evaluate.tables import render
    from gr2.judge.agreement import agreements
    from gr2.judge.store import JudgementStore

    store = JudgementStore(folder)
    found = agreements(store.current().values())
    if not found:
        judges = ", ".join(store.judges()) or "none"
        raise ValueError(
            f"{folder}: no two judges have judged the same document for a query; judges: {judges}"
        )
    rows = [
        [
            *each.judges,
            f"{each.pairs:,}",
            f"{each.same / each.pairs:.0%}",
            *map(_kappa, (each.linear, each.quadratic)),
        ]
        for each in found
    ]
    print(render(["judge", "judge", "common", "equal", "kappa linear", "kappa quadratic"], rows))
    for each in found:
        hidden = len(each.conflicts) - conflicts
        plural = "s" * (len(each.conflicts) != 1)
        print(f"\n{' and '.join(each.judges)}: {len(each.conflicts):,} conflict{plural}")
        for conflict in each.conflicts[: max(0, conflicts)]:
            print("  {} : {}  {}  {}".format(*conflict.grades, conflict.docno, conflict.query))
        if hidden > 0:
            print(f"  and {hidden:,} more")


def _kappa(value: float) -> str:
    return f"{value:.3f}" if value == value else "undefined"


@judgements.command(name="from-clicks")
def from_clicks(
    logs: Logs,
    /,
    *,
    out: Path,
    format: Literal["tsv", "ubi"] = "tsv",
    columns: Mapping[str, str] = {},  # noqa: B006
    config: Annotated[ClicksConfig, Settings] = ClicksConfig(),  # noqa: B008
    judge: str = "clicks",
) -> None:
    """Turn a click log into graded judgements, corrected for position bias.

    The log itself tells how much each position is looked at, from documents that it shows at several
    positions for the same query (position-based model, fitted by EM). Relevance is clicks divided by looks.

    Args:
        logs: TSV or CSV files with the columns query, docno, shown_at (from 1) and clicked (0 or 1); or
            records of ubi_queries and ubi_events as NDJSON.
        out: The folder of judgements to add to; it is made if it does not exist.
        format: The form of the log.
        columns: Our name of a column and yours, in pairs: `query search docno sku shown_at position`.
        config: How clicks become grades.
        judge: The name under which these judgements are kept.
    """
    from gr2.evaluate.tables import render
    from gr2.judge.click_log import read_log
    from gr2.judge.clicks import click_judgements, fit_positions, grade_pairs
    from gr2.judge.store import config_of, is_filled

    if not logs:
        raise ValueError("expected at least one log")
    highest = len(config.thresholds)
    settings = config_of(out, None if is_filled(out) else highest)
    if settings.grades < highest:
        raise ValueError(f"{out}: has grades up to {settings.grades}, too few for {highest} thresholds")
    log = read_log(logs, format, columns)
    model = fit_positions(log, config)
    pairs = grade_pairs(log, model, config)
    if not pairs:
        raise ValueError(f"{logs[0]}: nothing was shown {config.min_shown} times; see --min-shown")
    _added(out, settings, lambda store: store.append(click_judgements(pairs, judge)))
    rows = [
        [str(place), f"{value:.3f}", "" if place in model.compared else "assumed: the log cannot tell"]
        for place, value in model.propensities.items()
    ]
    print(render(["position", "propensity", ""], rows))
    everything = len({cell[:2] for cell in log.shown})
    print(
        f"\n{len(pairs):,} pairs of query and document added to {out}; "
        f"{everything - len(pairs):,} left out, shown less than {config.min_shown} times (--min-shown)"
        + (f"; {log.skipped:,} events could not be used" if log.skipped else "")
        + f"\nlearn from them: gr2 learn MODEL {out} --out MODEL"
    )


@judgements.command(name="next")
def next_(
    *,
    queries: Path,
    model: Path | None = None,
    runs: tuple[Path, ...] = (),
    judged: Path | None = None,
    top: int = 20,
) -> None:
    """Show which queries to judge next: those on which systems disagree most, unjudged ones first.

    Disagreement is 1 − the mean rank-biased overlap of the systems' first ten documents.

    Args:
        queries: The queries: topics, a table (.jsonl, .tsv, .csv), or a log with a query in each line.
        model: A model folder, whose words, vectors and all views together are three systems.
        runs: Runs of other systems on these queries.
        judged: A folder of judgements; its queries come last.
        top: How many queries to show.
    """
    from gr2.data.runs import Run
    from gr2.evaluate.tables import render
    from gr2.judge.judged_queries import JudgedQueries, same_text
    from gr2.judge.judgements import qid_of
    from gr2.judge.next_queries import DEPTH, next_queries
    from gr2.judge.query_list import read_query_list
    from gr2.model.gr2 import GR2
    from gr2.workflows.what_to_judge import view_runs

    texts = {one.qid or qid_of(one.text): one.text for one in read_query_list(queries)}
    systems = [] if model is None else view_runs(GR2.from_pretrained(model), texts)
    systems += [Run.read(path) for path in runs]
    if len(systems) < 2:
        raise ValueError("expected --model, or --runs of at least two systems")
    done = set() if judged is None else set(JudgedQueries.read(judged).keys())
    known = {qid for qid, text in texts.items() if same_text(text) in done}
    rankings = [{qid: run.docnos(qid)[:DEPTH] for qid in texts} for run in systems]
    rows = [
        [f"{one.disagreement:.3f}", "judged" if one.judged else "", one.qid, texts[one.qid]]
        for one in next_queries(rankings, list(texts), known)[: max(0, top)]
    ]
    print(f"{len(texts):,} queries, {len(known):,} of them judged; systems: ", end="")
    print(", ".join(run.name for run in systems))
    print(f"\n{render(['disagreement', '', 'qid', 'query'], rows)}")


@judgements.command
def curve(
    model: Model, file: Judgements, /, *, queries: Path | None = None, draws: int = 5, device: str = "auto"
) -> None:
    """Show how quality grows with the number of judged queries: is it worth judging more?

    The model learns from 10, 20, 40, … of them and is measured on a third that is held out, in several draws.

    Args:
        model: The model folder; it is not changed.
        file: A folder of judgements, a BEIR folder, TREC qrels, or a CSV export of Quepid.
        queries: The texts of the queries of TREC qrels: topics, or a table (.jsonl, .tsv).
        draws: How many times a third of the queries is held out.
        device: Device to encode queries on: auto takes cuda, then mps, else cpu.
    """
    from gr2.evaluate.tables import render
    from gr2.judge.judged_queries import JudgedQueries
    from gr2.workflows.what_to_judge import curve as points_of

    points = points_of(model, JudgedQueries.read(file, queries), draws=draws, device=device, progress=say)
    rows = [["0", f"{points[0].over_nothing.before:.4f}", "", "", ""]]
    for point in points:
        gain, more = point.over_nothing, point.over_previous
        band = f"{gain.low:+.4f} to {gain.high:+.4f}"
        rows.append([str(point.queries), f"{gain.after:.4f}", f"{gain.gain:+.4f}", band, f"{more.gain:+.4f}"])
    header = ["judged queries", "nDCG@20", "gain", "95 % band", "over the row before"]
    print(f"{points[0].over_nothing.queries} queries were held out in turn\n\n{render(header, rows)}")


@judgements.command
def show(folder: Folder, /) -> None:
    """Count judgements by judge and grade, and the queries and documents they are about.

    Args:
        folder: The folder of judgements.
    """
    from gr2.evaluate.tables import render
    from gr2.judge.store import JudgementStore

    store = JudgementStore(folder)
    current = store.current().values()
    header = ["judge", "source", "queries", *map(store.config.word, range(store.config.grades + 1)), "all"]
    rows = []
    for judge, source in sorted({(each.judge, each.source) for each in current}):
        own = [each for each in current if (each.judge, each.source) == (judge, source)]
        counts = [sum(each.grade == grade for each in own) for grade in range(store.config.grades + 1)]
        rows.append(
            [judge, source, *(f"{n:,}" for n in (len({each.qid for each in own}), *counts, len(own)))]
        )
    documents = len({each.docno for each in current})
    print(f"{len(current):,} judgements of {len(store.queries()):,} queries and {documents:,} documents")
    if rows:
        print(f"\n{render(header, rows)}")
