"""Runs many trials, several in parallel, each in its own process with one thread.

Finished trials are skipped, so an interrupted sweep continues when it is started again.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from gr2.experiments.trial import Trial, perform


def sweep(trials: Iterable[Trial], out: Path, *, workers: int = 2) -> None:
    """Run all unfinished trials, `workers` at a time."""
    from tqdm import tqdm

    waiting = [trial for trial in trials if not (out / trial.name).exists()]
    running: list[tuple[Trial, subprocess.Popen[bytes]]] = []
    out.mkdir(parents=True, exist_ok=True)
    with tqdm(total=len(waiting), unit="trial") as bar:
        try:
            while waiting or running:
                while waiting and len(running) < workers:
                    trial = waiting.pop(0)
                    running.append((trial, _start(trial, out)))
                for trial, process in [pair for pair in running if pair[1].poll() is not None]:
                    running.remove((trial, process))
                    bar.update()
                    if process.returncode:
                        raise RuntimeError(f"{trial.name} failed; see {out / trial.name}.log")
                time.sleep(0.5)
        finally:
            for _, process in running:
                process.kill()


def _start(trial: Trial, out: Path) -> "subprocess.Popen[bytes]":
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, "-m", "gr2.experiments.executors", json.dumps(asdict(trial)), str(out)]
    with (out / f"{trial.name}.log").open("wb") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log)


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    perform(Trial(**json.loads(sys.argv[1])), Path(sys.argv[2]))
