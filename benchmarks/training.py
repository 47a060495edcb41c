"""Training steps: pairs/s and peak memory of gr2 and of transformers' Seq2SeqTrainer on the same pairs.

    python benchmarks/training.py --backbone T5-FOLDER --collection FOLDER [--encoder ENCODER-FOLDER]

Both minimise MLE^q + MLE^d (variant MLE, no smoothing, no dropout, fp32, AdamW, clipping at 1) on the pairs
of the same batches, in one thread. Each run is a separate process, so that peak memory can be compared;
systems take turns. The first step of a run and the saving of weights are not counted.

  ours          normaliser `vocabulary`: softmax over the tokens of docids
  stock         Seq2SeqTrainer with an unchanged T5 (all tokens); each pair is an example
  cut           the same with the vocabulary of docids; a check confirms that its loss equals that of `ours`
  ours, trie    softmax over the children of a trie node
  ours, frozen  `ours` with a frozen encoder
  ours, encoder a text encoder with a new decoder of two layers, on docids of its own tokenizer

The peers get the pairs of the whole run sorted by length, the best that their grouping by length could do,
and as many pairs per step. Tokens are counted as the stacks read them, padding included.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from machine import facts, peak_mb

from gr2.store import write_json

SYSTEMS = ("ours", "stock", "cut", "ours, trie", "ours, frozen", "ours, encoder")
RATE, DECAY = 1e-4, 0.01
Pair = tuple[list[int], int]  # source tokens and the index of the docid


def prepare(collection: str, backbone: str, folder: Path) -> None:
    """Save docids and examples of a collection in the backbone's tokens, for all runs."""
    from gr2.data.formats import open_collection
    from gr2.model.config import GR2Config
    from gr2.model.gr2 import GR2
    from gr2.schemes.config import SchemeConfig
    from gr2.schemes.registry import SchemeContext, build
    from gr2.training.config import AugmentConfig
    from gr2.training.examples import examples_of

    data = open_collection(collection)
    titles = SchemeConfig(scheme="title", words=12)
    docids = build(SchemeContext(collection=data, backbone=backbone, folder=Path(), config=titles))
    model = GR2.fresh(backbone, docids, GR2Config(normaliser="vocabulary", max_tokens=64))
    docids.save(folder / "docids")
    augment = AugmentConfig(paragraphs=3, sentences=3, entities=3)
    examples = examples_of(data, docids, model.read, augment=augment)
    write_json(folder / "examples.json", asdict(examples) | {"grades": data.grades})


def read_examples(folder: Path) -> tuple[Any, int]:
    """The examples that `prepare` saved, and the number of grades; JSON keys are strings."""
    from gr2.training.batches import Examples

    content = json.loads((folder / "examples.json").read_text(encoding="utf-8"))
    levels = content.pop("grades")
    judged = [{int(grade): found for grade, found in row.items()} for row in content.pop("judged")]
    return Examples(judged=judged, **content), levels


class Setting:
    """What a run reads: the prepared pairs and our model of them."""

    def __init__(self, options: argparse.Namespace, system: str) -> None:
        """Load it; all systems with the same backbone get the same batches."""
        import torch

        from gr2.docids.docids import Docids
        from gr2.model.config import GR2Config
        from gr2.model.gr2 import GR2
        from gr2.training.batches import Batches
        from gr2.training.config import BatchConfig

        torch.set_num_threads(1)
        encoder = system == "ours, encoder"
        self.backbone: str = options.encoder if encoder else options.backbone
        prepared = options.folder / ("encoder" if encoder else "t5")
        self.docids = Docids.load(prepared / "docids")
        examples, self.levels = read_examples(prepared)
        self.model = GR2.fresh(self.backbone, self.docids, GR2Config(normaliser="vocabulary", max_tokens=64))
        sizes = BatchConfig(queries=options.queries, texts=options.texts)
        self.batches = Batches(examples, sizes, seed=options.seed)
        self.steps: int = options.steps

    def objective(self, normaliser: Any = "vocabulary") -> Any:
        """The variant MLE without smoothing."""
        from gr2.training.config import ObjectiveConfig
        from gr2.training.objective import Objective
        from gr2.training.variants import variant_objective

        config = variant_objective("MLE", ObjectiveConfig(normaliser=normaliser, smoothing=0.0))
        return Objective(self.model.tokens, self.model.trie, self.levels, config)

    def pairs(self, step: int) -> list[Pair]:
        """The (query, docid) and (text, docid) pairs of a step's batch."""
        batch = self.batches[step]
        sources = [*batch.queries[batch.owner], *batch.texts]
        masks = [*batch.query_mask[batch.owner], *batch.text_mask]
        docids = [*batch.docids.tolist(), *batch.text_docids.tolist()]
        return [
            (row[mask > 0].tolist(), docid) for row, mask, docid in zip(sources, masks, docids, strict=True)
        ]


class Clock:
    """CPU and wall seconds, and tokens of the stacks, from the end of the first step."""

    def __init__(self, encoder: Any, decoder: Any) -> None:
        """Count the tokens that the stacks read."""
        self.marks: list[tuple[float, float]] = []
        self.tokens = {"encoder": 0, "decoder": 0}
        for name, stack in (("encoder", encoder), ("decoder", decoder)):
            stack.register_forward_pre_hook(self._counter(name), with_kwargs=True)

    def _counter(self, name: str) -> Any:
        def count(_: Any, __: Any, inputs: dict[str, Any]) -> None:
            if self.marks:
                self.tokens[name] += inputs["input_ids"].numel()

        return count

    def tick(self) -> None:
        """A step is done."""
        self.marks.append((time.process_time(), time.perf_counter()))

    def report(self, pairs: int) -> dict[str, float]:
        """The cost of the counted steps per pair, and the peak memory of the process."""
        (cpu, wall), (cpu_end, wall_end) = self.marks[0], self.marks[-1]
        return {
            "pairs_per_cpu_second": pairs / (cpu_end - cpu),
            "pairs_per_second": pairs / (wall_end - wall),
            "peak_mb": peak_mb(),
            "pairs_per_step": pairs / (len(self.marks) - 1),
            "source_tokens_per_pair": self.tokens["encoder"] / pairs,
            "docid_tokens_per_pair": self.tokens["decoder"] / pairs,
        }


def run_ours(setting: Setting, system: str, folder: Path) -> dict[str, float]:
    """Our unchanged loop; the figures are taken before it saves its checkpoint."""
    from gr2.training.config import OptimiserConfig
    from gr2.training.loop import LoopConfig, train
    from gr2.training.progress import Progress

    network = setting.model.network
    objective = setting.objective("trie" if system == "ours, trie" else "vocabulary")
    config = LoopConfig(
        steps=setting.steps + 1,
        optimiser=OptimiserConfig(
            learning_rate=10 * RATE, pretrained_rate=0.1, weight_decay=DECAY, average=0.0, bf16=False
        ),
        freeze_encoder=system == "ours, frozen",
        log_every=1,
    )
    pairs = sum(len(setting.pairs(step)) for step in range(1, setting.steps + 1))
    clock, figures = Clock(network.encoder, network.decoder), dict[str, float]()

    def tick(now: Progress) -> None:
        clock.tick()
        if now.step == now.steps:
            figures.update(clock.report(pairs))

    train(network, objective, setting.batches, config, folder, progress=tick)
    return figures


def peer_model(setting: Setting, *, cut: bool) -> Any:
    """The T5 of transformers; if cut to docid tokens, with our decoder's embeddings and our head."""
    import torch
    import transformers

    hf: Any = transformers
    hf.logging.set_verbosity_error()
    model = hf.T5ForConditionalGeneration.from_pretrained(setting.backbone, dropout_rate=0.0)
    model.encoder.embed_tokens = model.shared
    if cut:
        network = setting.model.network
        model.decoder.embed_tokens = network.decoder.embed_tokens
        model.lm_head = network.head
        model.config.tie_word_embeddings = model.config.scale_decoder_outputs = False
        model.config.vocab_size = network.head.out_features
    setting.model.network = torch.nn.Identity()  # type: ignore[assignment]  # its memory is not the peer's
    return model


def peer_examples(setting: Setting, pairs: list[Pair], *, cut: bool) -> list[dict[str, list[int]]]:
    """What the Trainer reads; token 1 is the end in T5 and in our vocabulary."""
    tokens = setting.model.tokens if cut else setting.docids.tokens
    return [{"input_ids": source, "labels": [*tokens[docid], 1]} for source, docid in pairs]


def run_peer(setting: Setting, folder: Path, *, cut: bool) -> dict[str, float]:
    """Seq2SeqTrainer: a batch to warm up, then all pairs of the counted steps, sorted by length."""
    import transformers

    hf: Any = transformers
    counted = [pair for step in range(1, setting.steps + 1) for pair in setting.pairs(step)]
    size = -(-len(counted) // setting.steps)
    warm = (2 * setting.pairs(0))[:size]
    counted.sort(key=lambda pair: (len(pair[0]), len(setting.docids.tokens[pair[1]])))
    model = peer_model(setting, cut=cut)
    clock = Clock(model.encoder, model.decoder)

    class Ticks(hf.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            clock.tick()

    arguments = hf.Seq2SeqTrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=size,
        max_steps=setting.steps + 1,
        learning_rate=RATE,
        lr_scheduler_type="constant",
        weight_decay=DECAY,
        max_grad_norm=1.0,
        train_sampling_strategy="sequential",
        use_cpu=True,
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    trainer = hf.Seq2SeqTrainer(
        model=model,
        args=arguments,
        train_dataset=peer_examples(setting, warm + counted, cut=cut),
        data_collator=hf.DataCollatorForSeq2Seq(setting.model.tokenizer, model=model),
        callbacks=[Ticks()],
    )
    trainer.train()
    return clock.report(len(counted))


def check(setting: Setting) -> dict[str, float]:
    """−log P(docid ∣ source), mean over the pairs of a batch: ours, and the loss of the cut peer.

    The peer's loss is a mean over tokens, so it is multiplied by their number and divided by that of pairs.
    Ours is taken before MLE^q averages by grade.
    """
    import torch
    import transformers

    hf: Any = transformers
    network, batch, objective = setting.model.network, setting.batches[0], setting.objective()
    each = torch.arange(len(batch.texts))
    with torch.no_grad():
        queries = network.encode(batch.queries, batch.query_mask)
        texts = network.encode(batch.texts, batch.text_mask)
        _, on_queries = objective.forced(network, queries, batch.query_mask, batch.owner, batch.docids)
        _, on_texts = objective.forced(network, texts, batch.text_mask, each, batch.text_docids)
        ours = -float(torch.cat([on_queries, on_texts]).double().mean())
        pairs = setting.pairs(0)
        model = peer_model(setting, cut=True).eval()
        collate = hf.DataCollatorForSeq2Seq(setting.model.tokenizer, model=model)
        inputs = collate(peer_examples(setting, pairs, cut=True))
        peer = float(model(**inputs).loss) * int((inputs["labels"] >= 0).sum()) / len(pairs)
    if abs(ours - peer) > 1e-4 * max(1.0, abs(peer)):
        sys.exit(f"the losses differ: ours {ours:.6f}, peer {peer:.6f} nats per pair")
    return {"ours": ours, "cut": peer, "difference": abs(ours - peer), "pairs": len(pairs)}


def child(options: argparse.Namespace) -> None:
    """One run of one system, or the check, printed as JSON."""
    setting = Setting(options, options.child)
    with tempfile.TemporaryDirectory() as name:
        if options.child == "check":
            found = check(setting)
        elif options.child in ("stock", "cut"):
            found = run_peer(setting, Path(name), cut=options.child == "cut")
        else:
            found = run_ours(setting, options.child, Path(name) / "run")
    print(json.dumps(found))


def started(options: argparse.Namespace, folder: Path, system: str, seed: int) -> dict[str, float]:
    """A system in a separate process."""
    passed = [
        f"--{name}={getattr(options, name)}" for name in ("backbone", "encoder", "queries", "texts", "steps")
    ]
    command = [sys.executable, __file__, "--child", system, "--folder", str(folder), "--seed", str(seed)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run([*command, *passed], capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"{system} failed:\n{done.stderr[-2000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Check the loss, then let the systems take turns, with other batches in each round."""
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in SYSTEMS[: 6 if options.encoder else 5]}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(options.collection, options.backbone, folder / "t5")
        if options.encoder:
            prepare(options.collection, options.encoder, folder / "encoder")
        same = started(options, folder, "check", 0)
        print(f"nats per pair: ours {same['ours']:.5f}, cut peer {same['cut']:.5f}", flush=True)
        for seed in range(options.rounds):
            for system, found in rows.items():
                found.append(started(options, folder, system, seed))
                print(seed, system, found[-1], flush=True)
    medians = {
        system: {key: statistics.median(row[key] for row in found) for key in found[0]}
        for system, found in rows.items()
    }
    return {"loss_check": same, "medians": medians, "ratios": ratios(medians), "rounds": rows}


def ratios(medians: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Medians of ours over those of each peer (memory: theirs over ours); above 1, ours is better."""
    found = {}
    for peer in ("stock", "cut"):
        for system in (name for name in medians if name.startswith("ours")):
            ours, theirs = medians[system], medians[peer]
            found[f"{system} / {peer}"] = {
                "cpu": ours["pairs_per_cpu_second"] / theirs["pairs_per_cpu_second"],
                "wall": ours["pairs_per_second"] / theirs["pairs_per_second"],
                "memory": theirs["peak_mb"] / ours["peak_mb"],
            }
    return found


def show(results: dict[str, Any]) -> Iterator[str]:
    """The lines of the table."""
    yield "| system | pairs/CPU s | pairs/s | against stock | against cut | peak MB | tokens read, written |"
    yield "|---|---|---|---|---|---|---|"
    base = {peer: results["medians"][peer]["pairs_per_cpu_second"] for peer in ("stock", "cut")}
    for system, row in results["medians"].items():
        cpu = row["pairs_per_cpu_second"]
        against = " | ".join(f"{cpu / base[peer]:.2f}×" for peer in base)
        tokens = f"{row['source_tokens_per_pair']:.1f}, {row['docid_tokens_per_pair']:.1f}"
        rates = f"{cpu:.2f} | {row['pairs_per_second']:.2f}"
        yield f"| {system} | {rates} | {against} | {row['peak_mb']:,.0f} | {tokens} |"


def main() -> None:
    """Measure, print the table, save everything."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backbone", required=True, help="folder of a T5 checkpoint")
    parser.add_argument("--encoder", default="", help="folder of a text encoder, for another row")
    parser.add_argument("--collection", default="", help="folder, with several judged documents per query")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each system (default: 3)")
    parser.add_argument("--steps", type=int, default=2, help="counted steps of a run (default: 2)")
    parser.add_argument("--queries", type=int, default=8, help="queries of a batch (default: 8)")
    parser.add_argument("--texts", type=int, default=22, help="texts of a batch (default: 22)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "training.json")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options)
        return
    if not options.collection:
        parser.error("--collection is missing")
    results = measure(options)
    print("\n".join(show(results)))
    about = {name: getattr(options, name) for name in ("rounds", "steps", "queries", "texts")}
    about |= {"collection": Path(options.collection).name, "backbone": Path(options.backbone).name}
    about |= facts("gr2", "torch", "transformers", "accelerate")
    write_json(options.out, {"about": about, **results})


if __name__ == "__main__":
    main()
