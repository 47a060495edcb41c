"""Two processes that torchrun starts train as one would that had both their batches.

Run as a script, this file is what each process does.
"""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from helpers import tiny
from helpers.paths import ROOT
from safetensors.torch import load_file, save_file

from gr2.data.formats import write_folder
from gr2.model.gr2 import GR2
from gr2.store import verify
from gr2.training import losses
from gr2.training.batches import Batches
from gr2.training.checkpoints import newest_checkpoint
from gr2.training.config import BatchConfig, with_settings
from gr2.training.distributed import join_ranks
from gr2.training.loop import train

SETTINGS = ("plain", "lonely", "parts", "lonely parts")
"""Runs that are compared with one process: as it is; one rank at a time has docids of queries at all; and
both with batches that each rank computes in parts, which the reference does not."""


def setting(backbone: Path, name: str):
    """Model, objective, examples, sizes and configuration of a run."""
    data, model, objective, batches, config = tiny.prepared(backbone, steps=4)
    examples, sizes = batches.examples, BatchConfig(queries=7, texts=10)
    if "parts" in name:
        config = with_settings(config, {"optimiser.accumulate": 3})
    if "lonely" in name:
        examples = replace(
            examples, queries=examples.queries[:3], judged=[examples.judged[0], {}, examples.judged[2]]
        )
        sizes = BatchConfig(queries=1, texts=10)
    return data, model, objective, examples, sizes, config


def worker(backbone: Path, out: Path, name: str) -> None:
    """One rank: train, and leave the weights it ends with."""
    ranks = join_ranks()
    assert ranks.count == 2
    data, model, objective, examples, sizes, config = setting(backbone, name)
    batches = Batches(examples, sizes, rank=ranks.rank, ranks=2)
    folder, validate = out / name, None
    if name not in SETTINGS:
        config = with_settings(
            config,
            {"steps": 16, "optimiser.accumulate": 2, "optimiser.average": 0.5, "validate_every": 4},
        )
        some = dict(list(data.queries.items())[:5])

        def validate() -> float:
            assert ranks.is_first
            return sum(row[0][1] for row in model.search_many(some, k=1).rankings.values())

    def progress(now) -> None:
        if now.step == config.log_every:
            (out / f"{name}-{ranks.rank}.pid").write_text(str(os.getpid()))

    options = {"resume": True, "validate": validate, "progress": progress}
    train(model.network, objective, batches, config, folder, **options)
    save_file(model.network.weights(), out / f"{name}-{ranks.rank}.safetensors")


def launch(*arguments: object) -> subprocess.Popen:
    """Start two processes; standalone finds a free port."""
    options = ("--standalone", "--nproc_per_node", "2")
    own = os.pathsep.join(filter(None, [str(ROOT / "tests"), os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *options, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": own},
    )


def finish(started: subprocess.Popen) -> str:
    said, _ = started.communicate(timeout=300)
    assert started.returncode == 0, said
    return said


@pytest.fixture(scope="module")
def backbone(tmp_path_factory) -> Path:
    return tiny.save_checkpoint(tmp_path_factory.mktemp("encoder"), "encoder")


@pytest.fixture(scope="module")
def out(backbone, tmp_path_factory) -> Path:
    """What two ranks leave of every run, the last of which is killed halfway and then resumed."""
    folder = tmp_path_factory.mktemp("ranks")
    started = launch(__file__, backbone, folder, *SETTINGS, "whole", "killed")
    while started.poll() is None and tiny.step_of(folder / "killed") < 7:
        time.sleep(0.001)
    assert started.poll() is None, started.communicate()[0]
    os.kill(int((folder / "killed-0.pid").read_text()), signal.SIGKILL)
    started.communicate(timeout=300)
    assert started.returncode != 0
    assert 7 <= tiny.step_of(folder / "killed") < 16, "killed too late to show anything"
    finish(launch(__file__, backbone, folder, "killed"))
    return folder


def reference(model, objective, examples, sizes, config) -> None:
    """One process, in so many words: the mean of both ranks' losses, MGCC among the docids of both."""
    network, batches = model.network, Batches(examples, sizes)
    network.encoder.get_input_embeddings().requires_grad_(False)
    optimiser = torch.optim.AdamW(network.parameters(), weight_decay=config.optimiser.weight_decay)
    for step in range(config.steps):
        pair = [batches[2 * step], batches[2 * step + 1]]
        read = []
        for batch in pair:
            states = network.encode(batch.queries, batch.query_mask)
            f_q = network.represent_query(states, batch.query_mask)
            f_id, likelihood = torch.zeros(0, f_q.shape[1]), None
            if len(batch.docids):
                f_id, likelihood = objective.forced(
                    network, states, batch.query_mask, batch.owner, batch.docids, represent=True
                )
            read.append((f_q, f_id, likelihood))
        everywhere = torch.cat([f_id for _, f_id, _ in read])
        docids = torch.cat([batch.docids for batch in pair]).tolist()
        total = torch.zeros(())
        for rank, (batch, (f_q, _, likelihood)) in enumerate(zip(pair, read, strict=True)):
            texts = network.encode(batch.texts, batch.text_mask)
            each = torch.arange(len(texts))
            total -= objective.forced(network, texts, batch.text_mask, each, batch.text_docids)[1].mean() / 2
            if likelihood is None:
                continue
            total = total + losses.mle_q(likelihood, batch.grades, levels=2).mean() / 2
            first = len(pair[0].docids) if rank else 0
            grades = torch.zeros(len(f_q), len(docids), dtype=torch.long)
            grades[:, first : first + len(batch.docids)] = batch.grades
            negatives = torch.zeros(grades.shape, dtype=torch.bool)
            for row, (tokens, mask) in enumerate(zip(batch.queries, batch.query_mask, strict=True)):
                query = examples.queries.index(tokens[mask.bool()].tolist())
                relevant = {docid for found in examples.judged[query].values() for docid in found}
                negatives[row] = torch.tensor([docid not in relevant for docid in docids])
            similarities = losses.similarity(f_q, everywhere)
            total = total + losses.mgcc(similarities, grades, negatives, levels=2).mean() / 2
        total.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), config.optimiser.clip)
        warm = max(1, round(config.optimiser.warmup * config.steps))
        falls = (config.steps - step) / (config.steps * (1 - config.optimiser.decay_from))
        factor = (step + 1) / warm if step < warm else min(1.0, falls)
        optimiser.param_groups[0]["lr"] = config.optimiser.learning_rate * factor
        optimiser.step()
        optimiser.zero_grad()


@pytest.mark.parametrize("name", SETTINGS)
def test_two_ranks_end_with_the_weights_of_one_process_that_has_both_batches(out, backbone, name):
    _, model, objective, examples, sizes, config = setting(backbone, name)
    before = {key: value.clone() for key, value in model.network.weights().items()}
    reference(model, objective, examples, sizes, config)
    ranks = [load_file(out / f"{name}-{rank}.safetensors") for rank in range(2)]
    wanted = model.network.weights()
    assert wanted.keys() == ranks[0].keys() == ranks[1].keys()
    assert max(float((wanted[key] - before[key]).abs().max()) for key in before) > 1e-2
    for key, value in wanted.items():
        assert torch.equal(ranks[0][key], ranks[1][key]), key
        assert torch.allclose(ranks[0][key], value, atol=1e-5), key


def test_ranks_that_are_killed_and_resumed_end_with_the_same_bytes(out):
    files = {path.relative_to(out / "whole") for path in (out / "whole").rglob("*") if path.is_file()}
    assert {"metrics.jsonl", "best.safetensors", "mean.safetensors"} < {path.name for path in files}
    for path in files:
        assert (out / "whole" / path).read_bytes() == (out / "killed" / path).read_bytes(), path
    ends = [
        (out / f"{name}-{rank}.safetensors").read_bytes() for name in ("whole", "killed") for rank in range(2)
    ]
    assert len(set(ends)) == 1


def test_a_rank_knows_which_rows_of_the_others_are_negatives():
    examples, sizes = tiny.graded_examples(), BatchConfig(queries=4, texts=8)
    relevant = [{docid for found in grades.values() for docid in found} for grades in examples.judged]
    ranks = [Batches(examples, sizes, seed=5, rank=rank, ranks=3) for rank in range(3)]
    for step in range(12):
        brought = [batches[step].docids.tolist() for batches in ranks]
        for rank, batches in enumerate(ranks):
            batch = batches[step]
            rows = batch.elsewhere.view(len(batch.queries), 3, max(map(len, brought)))
            for place, query in enumerate((batch.queries[:, 0] - 100).tolist()):
                for other, docids in enumerate(brought):
                    wanted = [other != rank and docid not in relevant[query] for docid in docids]
                    assert rows[place, other].tolist() == wanted + [False] * (rows.shape[2] - len(docids))


def test_a_run_of_two_ranks_is_not_resumed_by_one(out, backbone):
    _, model, objective, examples, sizes, config = setting(backbone, "plain")
    with pytest.raises(ValueError, match="another ranks"):
        tiny.trained(model.network, objective, Batches(examples, sizes), config, out / "plain", resume=True)
    with pytest.raises(ValueError, match="rank 1 of 2"):
        batches = Batches(examples, sizes, rank=1, ranks=2)
        tiny.trained(model.network, objective, batches, config, out / "other")


def test_one_process_makes_no_process_group(backbone, tmp_path):
    _, model, objective, examples, sizes, config = setting(backbone, "plain")
    tiny.trained(model.network, objective, Batches(examples, sizes), config, tmp_path)
    assert not torch.distributed.is_initialized()


def test_the_command_line_trains_under_torchrun(gr2, backbone, tmp_path):
    folder, docids, model = tmp_path / "data", tmp_path / "docids", tmp_path / "model"
    write_folder(tiny.collection(), folder)
    gr2("docids", "build", folder, "--backbone", backbone, "--out", docids)
    options = (
        "--docids",
        docids,
        "--backbone",
        backbone,
        "--out",
        model,
        "--preset",
        "decoder",
        "--schedule.steps",
        5,
        "--batches.queries",
        5,
    )
    said = finish(launch("-m", "gr2", "train", folder, *options))
    assert said.count("50 docids, 5 steps") == said.count("50 documents") == 1
    assert len(GR2.from_pretrained(model).search("baka beke", k=3)) == 3
    assert newest_checkpoint(tmp_path / "model.training" / "joint").name.endswith("005")


def test_the_command_line_pre_trains_under_torchrun_and_writes_once(backbone, tmp_path):
    write_folder(tiny.collection(), tmp_path / "data")
    options = (
        "--backbone",
        backbone,
        "--out",
        tmp_path / "own",
        "--schedule.steps",
        2,
        "--batches.queries",
        5,
        "--batches.texts",
        5,
    )
    said = finish(launch("-m", "gr2", "pretrain", tmp_path / "data", *options))
    assert said.count("a backbone after 2 steps") == 1
    verify(tmp_path / "own")
    kept = {path.name for path in tmp_path.iterdir()}
    assert kept == {"data", "own", "own.model", "own.model.training"}


if __name__ == "__main__":
    for each in sys.argv[3:]:
        worker(Path(sys.argv[1]), Path(sys.argv[2]), each)
