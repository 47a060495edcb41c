"""`PYTHONPATH=tests python -m mutants`: the table of mutants, and whether the tests notice each.

The exit code is 1 if a change survives that is not explained in `EQUIVALENT`.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from mutants.by_hand import MUTANTS
from mutants.equivalent import EQUIVALENT
from mutants.mechanical import sampled
from mutants.running import ROOT, Copy

SEED, NUMBER = 0, 60
MECHANICAL = {
    "training/losses.py": (
        (
            "training/test_losses_oracle.py::test_mgcc_by_hand",
            "training/test_losses_oracle.py::test_log_likelihood_losses_by_hand",
            "training/test_losses_oracle.py::test_gradient_by_hand",
            "training/test_losses_not_in_the_paper.py::test_decoupled_by_hand",
            "training/test_losses_not_in_the_paper.py::test_listwise_by_hand",
            "training/test_losses_not_in_the_paper.py::test_soft_by_hand",
        ),
        (
            "training/test_losses_oracle.py",
            "training/test_losses.py",
            "training/test_losses_not_in_the_paper.py",
            "training/test_regression.py::test_lr_is_lambda_rank_alone",
        ),
    ),
    "training/objective.py": (
        ("training/test_objective.py", "training/test_wiring.py"),
        (
            "training/test_gradients.py::test_the_gradient_of_parts_is_that_of_the_whole_batch",
            "training/test_fit.py::test_documents_alone_are_learned_with_a_frozen_encoder_too",
            "training/test_distributed.py::test_two_ranks_end_with_the_weights_of_one_process_that_has_both_batches",
            "test_device.py",
            "test_extend.py",
        ),
    ),
}
"""Files that are changed mechanically, and their tests: the others run if the first ones notice nothing."""


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    kind: str
    file: str
    what: str
    killed: bool
    seconds: float
    why: str = ""
    """Why a change that survives is none."""


@dataclass(frozen=True)
class Task:
    """A change to try."""

    kind: str
    file: str
    what: str
    source: str
    tests: tuple[tuple[str, ...], ...]
    """Run one after the other until some test fails."""
    why: str = ""
    """Why no test can fail."""


def tasks() -> Iterator[Task]:
    """Every change, with the whole text of its file."""
    for mutant in MUTANTS:
        before = source_of(mutant.file)
        if before.count(mutant.old) != 1:
            raise ValueError(
                f"{mutant.file}: the text of the mutant {mutant.what!r} does not occur exactly once"
            )
        yield Task(
            "by hand", mutant.file, mutant.what, before.replace(mutant.old, mutant.new), (mutant.tests,)
        )
    for file, tests in MECHANICAL.items():
        for change in sampled(source_of(file), NUMBER, SEED):
            why = EQUIVALENT.get((file, change.text, change.what), "")
            yield Task("mechanical", file, f"line {change.line}: {change.what}", change.source, tests, why)


def source_of(file: str) -> str:
    """The text of a file of the package."""
    return (ROOT / "src" / "gr2" / file).read_text(encoding="utf-8")


def tried(chosen: list[Task]) -> Iterator[Row]:
    """Every change with what its tests said; first the tests must pass without any change."""
    with tempfile.TemporaryDirectory() as folder:
        copy, log = Copy(Path(folder)), Path(folder) / "log.txt"
        needed = sorted({test for task in chosen for tests in task.tests for test in tests})
        if copy.run(needed, log)[0]:
            sys.exit(f"the tests fail without any change:\n{log.read_text(encoding='utf-8')[-4000:]}")
        copy.prepare()
        for task in chosen:
            with copy.changed(task.file, task.source):
                killed, seconds = copy.run_until_one_fails(task.tests, log)
            yield Row(task.kind, task.file, task.what, killed, seconds, "" if killed else task.why)


def summary(rows: list[Row]) -> list[dict[str, str | int]]:
    """The number of changes and of noticed ones: by hand for each package, mechanical for each file."""
    found: list[dict[str, str | int]] = []
    for kind, place in dict.fromkeys((row.kind, _place(row)) for row in rows):
        some = [row for row in rows if (row.kind, _place(row)) == (kind, place)]
        killed, equivalent = sum(row.killed for row in some), sum(bool(row.why) for row in some)
        counts = {"changes": len(some), "killed": killed, "equivalent": equivalent}
        found.append({"kind": kind, "place": place, **counts})
    return sorted(found, key=lambda each: (each["kind"], each["place"]))


def _place(row: Row) -> str:
    return row.file.split("/")[0] if row.kind == "by hand" else row.file


def as_table(rows: list[Row]) -> str:
    """The summary as it stands in docs/tests.md."""
    lines = ["| changes | of | made | noticed | equivalent |", "|---|---|---:|---:|---:|"]
    line = "| {kind} | `{place}` | {changes} | {killed} | {equivalent} |"
    return "\n".join([*lines, *(line.format(**each) for each in summary(rows))])


def main() -> None:
    """Try the changes and print the table."""
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("--json", type=Path, help="a file to write the results to")
    parser.add_argument("--kind", choices=["by hand", "mechanical"], help="only these")
    parser.add_argument("--files", nargs="*", default=[""], help="only these, such as cli/")
    given = parser.parse_args()
    files = tuple(given.files)
    chosen = [t for t in tasks() if given.kind in (None, t.kind) and t.file.startswith(files)]
    rows = [shown(row) for row in tried(chosen)]
    left = [row for row in rows if not row.killed and not row.why]
    print(as_table(rows))
    minutes = sum(row.seconds for row in rows) / 60
    print(f"{len(rows)} changes, {len(left)} survived; {minutes:.1f} CPU-minutes")
    if given.json:
        changes = [{name: value for name, value in asdict(row).items() if name != "seconds"} for row in rows]
        content = {"seed": SEED, "summary": summary(rows), "changes": changes}
        given.json.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    sys.exit(bool(left))


def shown(row: Row) -> Row:
    """Print a line of the table."""
    said = "killed" if row.killed else "equivalent" if row.why else "SURVIVED"
    print(f"{said:10}  {row.seconds:6.1f} s  {row.file}: {row.what}", flush=True)
    return row


if __name__ == "__main__":
    main()
