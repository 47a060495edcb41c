"""A T5 and a collection → a model that generates titles: trained weights for `benchmarks/decode.py`.

    python benchmarks/decode_training.py --model T5-FOLDER --collection FOLDER --out FOLDER --train-minutes 10

The model reads pieces of documents and training queries, and learns to generate the title of the document. A
few minutes on one core give what the benchmark needs: peaked distributions over real docids. The result is
not meant to be a good model.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gr2.data.collection import Collection
from gr2.data.formats import open_collection

LONGEST_DOCID, LONGEST_INPUT, PIECE = 24, 64, 40
BATCH, RATE = 16, 5e-4


def load_t5(folder: Path) -> Any:
    """A T5 with the output layer of its file: transformers 5 would tie it to the embeddings.

    If told not to, transformers also unties the embeddings of both stacks and fills them with noise.
    """
    import transformers
    from safetensors import safe_open

    hf: Any = transformers
    config = hf.T5Config.from_pretrained(folder)
    with safe_open(folder / "model.safetensors", framework="pt") as tensors:
        config.tie_word_embeddings = "lm_head.weight" not in tensors.keys()  # noqa: SIM118, no mapping
    model = hf.T5ForConditionalGeneration.from_pretrained(folder, config=config).eval()
    model.set_input_embeddings(model.shared)
    return model


def title_docids(collection: Collection, tokenizer: Any) -> dict[str, tuple[int, ...]]:
    """Docno → tokens of its title, cut; one with the same tokens as another is followed by a number."""
    taken: dict[tuple[int, ...], int] = {}
    docids = {}
    for document in collection.documents:
        text = document.title or " ".join(document.text.split()[:12])
        tokens = tuple(tokenizer(text, add_special_tokens=False).input_ids[:LONGEST_DOCID])
        copy = taken[tokens] = taken.get(tokens, 0) + 1
        if copy > 1:
            tokens = (*tokens, *tokenizer(str(copy), add_special_tokens=False).input_ids)
        docids[document.docno] = tokens
    return docids


def examples(collection: Collection) -> list[tuple[str, str]]:
    """(text, docno): pieces of every document, and each training query four times."""
    pairs = []
    for document in collection.documents:
        words = document.contents.split()
        pieces = [" ".join(words[i : i + PIECE]) for i in range(0, min(len(words), 6 * PIECE), PIECE)]
        pairs += [(piece, document.docno) for piece in pieces]
    train = collection.qrels.get("train", {})
    judged = [(collection.queries[q], d) for q, grades in train.items() for d, g in grades.items() if g > 0]
    return pairs + 4 * judged


def train(
    model: Any, tokenizer: Any, collection: Collection, docids: dict[str, tuple[int, ...]], minutes: float
) -> int:
    """Fine-tune in place until the time is up; returns the number of steps."""
    pairs = examples(collection)
    rng = np.random.default_rng(0)
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    model.train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    begun, steps = time.monotonic(), 0
    while (spent := (time.monotonic() - begun) / 60 / minutes) < 1:
        chosen = [pairs[i] for i in rng.integers(0, len(pairs), BATCH)]
        inputs = tokenizer(
            [text for text, _ in chosen],
            padding=True,
            truncation=True,
            max_length=LONGEST_INPUT,
            return_tensors="pt",
        )
        targets = [torch.tensor([*docids[docno], tokenizer.eos_token_id]) for _, docno in chosen]
        labels = torch.nn.utils.rnn.pad_sequence(targets, batch_first=True, padding_value=-100)
        for group in optimiser.param_groups:
            group["lr"] = RATE * min(1.0, (steps + 1) / 50, 2 * (1 - spent))
        loss = model(**inputs, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        steps += 1
        if steps % 20 == 0:
            print(f"{spent:.0%} step {steps} loss {loss.item():.3f}", flush=True)
    model.eval()
    return steps


def main() -> None:
    """Train and save model, tokenizer, docids and test queries."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True, help="folder of a pretrained T5")
    parser.add_argument("--collection", required=True, help="folder, `pydocs` or `ir:ID`")
    parser.add_argument(
        "--out", type=Path, required=True, help="folder of the trained model, outside the repository"
    )
    parser.add_argument("--train-minutes", type=float, default=10, help="wall-clock minutes (default: 10)")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    from transformers import AutoTokenizer

    collection = open_collection(args.collection)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = load_t5(args.model)
    docids = title_docids(collection, tokenizer)
    steps = train(model, tokenizer, collection, docids, args.train_minutes)
    model.save_pretrained(args.out)
    tokenizer.save_pretrained(args.out)
    asked = [collection.queries[q] for q in collection.qrels["test"]]
    about = {"collection": collection.name, "steps": steps, "docids": list(docids.values()), "queries": asked}
    (args.out / "docids.json").write_text(json.dumps(about), encoding="utf-8")


if __name__ == "__main__":
    main()
