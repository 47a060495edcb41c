"""`gr2 learn`, `rollback`, `versions`: a model learns from judgements, and earlier models come back."""

from pathlib import Path

from gr2.cli.app import Judgements, Model, app, say


@app.command
def learn(
    model: Model, judgements: Judgements, /, *, out: Path, queries: Path | None = None, device: str = "auto"
) -> None:
    """Learn from judgements in seconds to minutes, and say what that gains on queries not learned from.

    If nothing is gained, the model stays as it is and nothing is written.

    Args:
        model: What `gr2 index`, `gr2 train` or `gr2 learn` wrote.
        judgements: A folder of judgements, a BEIR folder, TREC qrels, or a CSV export of Quepid.
        out: The folder to write; it may be MODEL itself. The model that was there is kept: `gr2 rollback`.
        queries: The texts of the queries of TREC qrels: topics, or a table (.jsonl, .tsv).
        device: Device to encode queries on: auto takes cuda, then mps, else cpu.
    """
    from gr2.judge.judged_queries import JudgedQueries
    from gr2.workflows.learn import learn as make

    found = make(model, JudgedQueries.read(judgements, queries), out, device=device, progress=say)
    if found.learned:
        say(f"chosen: {found.chosen}; written to {found.out}")
    else:
        say(f"which queries to judge next: gr2 judgements next --model {model} --queries LOG --judged FOLDER")
    say(found.sentence)  # last, where the service reads it


@app.command
def rollback(model: Model, /, *, to: int | None = None) -> None:
    """Go back to an earlier version of a model; the present one is kept, so this can be undone.

    Args:
        model: The model folder.
        to: The number of the version, as `gr2 versions` shows it; by default the one before.
    """
    from gr2.workflows.versions import rollback as make

    found = make(model, to)
    print(f"{model}: now version {found.number}, learned: {found.learned}")


@app.command
def versions(model: Model, /) -> None:
    """List the kept versions of a model, and what each had learned.

    Args:
        model: The model folder.
    """
    from gr2.evaluate.tables import render
    from gr2.workflows.versions import versions as known

    rows = [
        [
            str(each.number),
            f"{each.time:%Y-%m-%d %H:%M} UTC",
            "present" if each.current else "",
            f"{each.queries:,}" if each.queries else "",
            "" if each.gain is None else f"{each.gain:+.4f}",
            each.learned,
            each.weights,
        ]
        for each in known(model)
    ]
    print(render(["version", "written", "", "judged queries", "nDCG@20", "learned", "weights"], rows))
