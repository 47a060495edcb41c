"""Generating docids: documents/s of gr2 and of transformers' `generate`; same model, documents and beams.

    python benchmarks/docids.py --generator T5-FOLDER --collection FOLDER [--docids MAKING-FOLDER]

The generator of a fusion model writes pseudo-queries with 10 beams for chunks of 16 documents, in one thread.
Both systems read the same encoder states and slots, may write the same tokens (those of the collection) and
stop by the same rule; they take turns on each chunk, and their results are compared. The encoder is timed
separately. An untrained model writes until it is cut off, so give the folder of a trained one (OUT.making of
`gr2 docids build --scheme fusion`); otherwise one is trained for a few steps first.

  ours      `free_beam` on the decoder's prepared weights
  generate  `T5ForConditionalGeneration.generate` with the same stack and head, cached keys and values
  stock     the same with a head as wide as the checkpoint's whole vocabulary, which is the usual setting; the
            additional rows are zeros and suppressed, so its scores and its results differ
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from machine import facts
from torch import Tensor

from gr2.data.formats import open_collection
from gr2.decode.free import free_beam
from gr2.model.network import END, START
from gr2.model.padding import padded
from gr2.schemes.config import GeneratorConfig
from gr2.schemes.fusion.generator import CHUNK, DocidGenerator
from gr2.schemes.fusion.latent import on_sphere
from gr2.store import write_json

Ask = Callable[[Tensor, Tensor], list[list[tuple[int, ...]]]]


def ours(generator: DocidGenerator) -> Ask:
    """`free_beam` as `DocidGenerator.write` calls it."""
    decoder, config = generator.fusion.generator.decoder_for_search(), generator.config

    def ask(states: Tensor, mask: Tensor) -> list[list[tuple[int, ...]]]:
        found = free_beam(
            decoder,
            states,
            mask,
            end=END,
            beams=config.beams,
            longest=config.query_tokens,
            length_penalty=config.length_penalty,
            never=(START,),
        )
        return [[one.tokens for one in row] for row in found]

    return ask


def generate(generator: DocidGenerator, extra: int = 0) -> Ask:
    """The peer: transformers' own T5 around the same decoder, with `extra` additional rows in its head."""
    hf: Any = import_module("transformers")
    network, config = generator.fusion.generator, generator.config
    size = network.head.out_features + extra
    shape = replace_config(network.decoder.config, size)
    model: Any = hf.T5ForConditionalGeneration(shape).eval()
    model.decoder.load_state_dict(
        {n: v for n, v in network.decoder.state_dict().items() if "embed_tokens" not in n}, strict=False
    )
    for table, rows in (
        (model.shared, network.decoder.embed_tokens.weight),
        (model.lm_head, network.head.weight),
    ):
        padding = torch.zeros(extra, rows.shape[1])
        table.weight = torch.nn.Parameter(torch.cat([rows.detach(), padding]))
    model.decoder.embed_tokens = model.shared
    settings = hf.GenerationConfig(
        num_beams=config.beams,
        num_return_sequences=config.beams,
        max_new_tokens=config.query_tokens + 1,
        length_penalty=config.length_penalty,
        early_stopping="never",
        do_sample=False,
        decoder_start_token_id=START,
        eos_token_id=END,
        pad_token_id=START,
        suppress_tokens=[START, *range(size - extra, size)],
    )

    def ended(ids: Tensor, scores: Tensor) -> Tensor:
        """After the longest docid only the end token is allowed, as in ours."""
        if ids.shape[1] <= config.query_tokens:
            return scores
        only = torch.full_like(scores, -torch.inf)
        only[:, END] = scores[:, END]
        return only

    def ask(states: Tensor, mask: Tensor) -> list[list[tuple[int, ...]]]:
        out = model.generate(
            encoder_outputs=hf.modeling_outputs.BaseModelOutput(last_hidden_state=states),
            attention_mask=mask,
            generation_config=settings,
            logits_processor=hf.LogitsProcessorList([ended]),
        )
        rows = [tuple(t for t in row[1:] if t > END) for row in out.tolist()]
        return [rows[i : i + config.beams] for i in range(0, len(rows), config.beams)]

    return ask


def replace_config(config: Any, size: int) -> Any:
    """The decoder's configuration as that of a whole T5 with an untied head over `size` tokens."""
    from transformers import T5Config

    kept = {k: v for k, v in config.to_dict().items() if k not in ("is_decoder", "is_encoder_decoder")}
    known = {"vocab_size": size, "tie_word_embeddings": False, "scale_decoder_outputs": False}
    return T5Config(**kept | known | {"num_decoder_layers": config.num_layers, "is_encoder_decoder": True})


def memory(generator: DocidGenerator, chunk: list[tuple[str, list[int]]]) -> tuple[Tensor, Tensor]:
    """What the decoder attends to for a chunk of documents."""
    ids, mask = padded([row for _, row in chunk])
    states, e_d = generator.fusion.read_documents(ids, mask)
    z = None if e_d is None else on_sphere(e_d, generator.noise(chunk, 0), generator.config.radius)
    return generator.fusion.memory(z, states, mask)


def measure(generator: DocidGenerator, documents: dict[str, str], systems: dict[str, Ask]) -> dict[str, Any]:
    """Every system on every chunk, in turns; medians over chunks of CPU seconds per document."""
    seconds: dict[str, list[float]] = {name: [] for name in ("encoder", *systems)}
    same = {name: 0 for name in systems}
    best = 0
    for number, chunk in enumerate(generator.chunks(documents)):
        begun = time.process_time()
        with torch.inference_mode():
            states, mask = memory(generator, chunk)
        seconds["encoder"].append((time.process_time() - begun) / len(chunk))
        found = {}
        for name in sorted(systems, key=lambda name: (list(systems).index(name) + number) % len(systems)):
            begun = time.process_time()
            found[name] = systems[name](states, mask)
            seconds[name].append((time.process_time() - begun) / len(chunk))
        best += len(chunk)
        for name, rows in found.items():
            same[name] += sum(a[0] == b[0] for a, b in zip(rows, found["ours"], strict=True))
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    return {
        "cpu_seconds_a_document": middle,
        "documents_a_second": {name: 1 / value for name, value in middle.items()},
        "ratio_to_ours": {name: middle[name] / middle["ours"] for name in systems},
        "ratio_with_encoder": {
            name: (middle[name] + middle["encoder"]) / (middle["ours"] + middle["encoder"])
            for name in systems
        },
        "same_first_docid": {name: count / best for name, count in same.items()},
    }


def main() -> None:
    """Train or load a model, measure, and save the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--generator", required=True, help="folder or hub name of a T5 checkpoint")
    parser.add_argument("--collection", required=True, help="folder")
    parser.add_argument("--docids", type=Path, help="OUT.making of fusion docids, which has the model")
    parser.add_argument("--steps", type=int, default=60, help="training steps of the model (60)")
    parser.add_argument(
        "--pairs", type=int, default=20_000, help="maximal number of training pairs of the model (20,000)"
    )
    parser.add_argument("--tokens", type=int, default=128, help="tokens at which a document is cut (128)")
    parser.add_argument("--documents", type=int, default=160, help="documents that get docids (160)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "docids.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    collection = open_collection(options.collection)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.docids / "generator" if options.docids else Path(temporary)
        config = GeneratorConfig(
            steps=options.steps, pairs=options.pairs, document_tokens=options.tokens, device="cpu"
        )
        generator = DocidGenerator.of(collection, options.generator, config)
        generator.fit(folder, resume=True)
    texts = {document.docno: document.contents for document in collection.documents}
    step = max(1, len(texts) // options.documents)
    documents = {docno: texts[docno] for docno in sorted(texts)[::step][: options.documents]}
    extra = max(0, generator.tokenizer.vocab_size - generator.fusion.generator.head.out_features)
    systems = {"ours": ours(generator), "generate": generate(generator), "stock": generate(generator, extra)}
    with torch.inference_mode():
        figures = measure(generator, documents, systems)
    settings = {
        "beams": config.beams,
        "longest": config.query_tokens,
        "chunk": CHUNK,
        "documents": len(documents),
    }
    settings |= {"vocabulary": generator.fusion.generator.head.out_features}
    settings |= {"steps": options.steps, "tokens": options.tokens}
    write_json(
        options.out, {"settings": settings, "figures": figures, "machine": facts("torch", "transformers")}
    )
    for name, ratio in figures["ratio_to_ours"].items():
        rate, same = figures["documents_a_second"][name], figures["same_first_docid"][name]
        print(f"{name:10} {rate:6.2f} documents/s, {ratio:.2f}× our time, same first docid {same:.3f}")


if __name__ == "__main__":
    main()
