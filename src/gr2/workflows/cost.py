"""A collection and a configuration → what training costs, before it starts: tokens, FLOPs, memory, hours.

The real networks are moved to torch's meta device, where tensors have shapes but no numbers. One batch of
mean lengths runs forward and backward there, and its matrix products and saved tensors are counted. Lengths
are those of a sample of documents and queries. Not counted: padding, states that are cached for a frozen
encoder, measuring, and reports.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from math import ceil
from typing import Any

import torch
from torch import Tensor, nn

from gr2.data.collection import Collection
from gr2.evaluate.tables import render
from gr2.model.backbone import tokenizer_of
from gr2.model.network import Network, recompute_activations
from gr2.schemes.fusion.network import Fusion
from gr2.systems.config import GenerativeConfig
from gr2.training.augment import capitalised_entities, queries_of, texts_of
from gr2.training.config import OptimiserConfig, TrainingConfig

SAMPLE = 500
"""Documents and queries whose tokens are counted, at most."""
GENERATED = ("fusion", "query")
"""Schemes whose docids a trained model writes."""
META = torch.device("meta")


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The sizes of a collection that a training meets."""

    documents: int
    queries: int
    """Training queries, and texts of documents that are used as queries."""
    judged: int
    """Training queries with a relevant document."""
    rows: float
    """Docids per query in a batch."""
    query_tokens: float
    text_tokens: float
    document_tokens: float
    """Of a whole document, as far as the docid generator reads it."""
    docid_tokens: float
    vocabulary: int
    """Different tokens in the sampled documents."""


@dataclass(frozen=True, kw_only=True)
class StageCost:
    """What a stage costs."""

    name: str
    steps: int
    """Optimiser steps; 0 for decoding."""
    tokens: float
    """Tokens that are read and written."""
    flops: float
    gigabytes: float
    """Peak memory of weights, optimiser and saved tensors."""


def workload(collection: Collection, config: GenerativeConfig) -> Workload:
    """Measure a sample of the collection."""
    how, generation = config.training, config.docids.generation
    documents = list(islice(collection.documents, 0, None, max(1, len(collection.docnos) // SAMPLE)))
    tokenizer, entities = tokenizer_of(config.backbone), capitalised_entities(documents)

    def tokens(texts: Sequence[str], most: int, *, special: bool = True) -> list[list[int]]:
        how = {"truncation": True, "max_length": most, "add_special_tokens": special}
        read: Any = tokenizer(list(texts), **how)["input_ids"] if texts else []
        return list(read)

    extra = [text for one in documents for text in queries_of(one, how.augment, entities)]
    per_document = len(extra) / max(1, len(documents))
    train = collection.qrels.get("train", {})
    judged = {q: row for q, row in train.items() if any(grade > 0 for grade in row.values())}
    asked = [collection.queries[qid] for qid in islice(judged, 0, None, max(1, len(judged) // SAMPLE))]
    made = round(per_document * len(collection.docnos))
    total = max(1, len(judged) + made)
    own = sum(_rows(row.values(), how.batches.per_grade) for row in judged.values())
    whole = tokens([one.contents for one in documents], generation.document_tokens)
    words = [" ".join(one.contents.split()[: config.docids.words]) for one in documents]
    written = (
        generation.query_tokens if _generated(config) else _mean(tokens(words, how.max_tokens, special=False))
    )
    asked_tokens, made_tokens = (_mean(tokens(texts, how.max_tokens)) for texts in (asked, extra))
    return Workload(
        documents=len(collection.docnos),
        queries=len(judged) + made,
        judged=len(judged),
        rows=(own + made) / total,
        query_tokens=(len(judged) * asked_tokens + made * made_tokens) / total,
        text_tokens=_mean(
            tokens([t for one in documents for t in texts_of(one, how.augment, entities)], how.max_tokens)
        ),
        document_tokens=_mean(whole),
        docid_tokens=written,
        vocabulary=len({token for row in whole for token in row}),
    )


def costs(collection: Collection, config: GenerativeConfig) -> tuple[Workload, list[StageCost]]:
    """The stages of docids and training; a configuration with look-ahead is refused."""
    if config.training.look_ahead.enabled:
        raise ValueError("the cost is that of training a decoder: add --preset paper or --preset decoder")
    work = workload(collection, config)
    stages = _docid_stages(work, config) if _generated(config) else []
    return work, [*stages, *_training_stages(work, config)]


def as_text(work: Workload, stages: Sequence[StageCost], tflops: float) -> str:
    """The costs as a table with its assumptions."""
    rows = [
        [
            one.name,
            f"{one.steps:,}" if one.steps else "",
            f"{one.tokens / 1e6:,.1f}",
            f"{one.flops / 1e15:,.2f}",
            f"{one.gigabytes:.1f}",
            f"{one.flops / (tflops * 1e12) / 3600:,.2f}",
        ]
        for one in stages
    ]
    hours = sum(one.flops for one in stages) / (tflops * 1e12) / 3600
    lines = [
        f"{work.documents:,} documents of {work.text_tokens:.0f} tokens, {work.queries:,} queries "
        f"({work.judged:,} judged) of {work.query_tokens:.0f}, docids of {work.docid_tokens:.0f}",
        render(["stage", "steps", "million tokens", "PFLOP", "GB", f"hours at {tflops:g} TFLOP/s"], rows),
        f"in all {hours:,.2f} hours at {tflops:g} TFLOP/s",
    ]
    return "\n".join(lines)


def _training_stages(work: Workload, config: GenerativeConfig) -> list[StageCost]:
    how, schedule = config.training, config.training.schedule
    network = Network.build(config.backbone, work.vocabulary, how.network).to(META)
    tokens = how.batches.queries * (work.query_tokens + work.rows * work.docid_tokens)
    tokens += how.batches.texts * (work.text_tokens + work.docid_tokens)

    def stage(name: str, steps: int, *, frozen: bool = False) -> StageCost:
        network.freeze(encoder=frozen, embeddings=how.freeze_embeddings)
        step = _step(
            network,
            lambda part: _likelihoods(network, work, how, part, frozen=frozen),
            how.optimiser,
            twice=how.objective.gamma > 0,
        )
        return _cost(name, steps, tokens * steps, step[0] * steps, step[1])

    found = []
    if schedule.frozen_steps:
        found.append(stage("training, frozen encoder", schedule.frozen_steps, frozen=True))
    if schedule.steps:
        found.append(stage("training", schedule.steps))
    if schedule.self_negative_steps:
        found.append(
            _writing(network, work.judged, work.query_tokens, config.search.beams, work, "self-negatives")
        )
        found.append(stage("training with them", schedule.self_negative_steps))
    return found


def _docid_stages(work: Workload, config: GenerativeConfig) -> list[StageCost]:
    how, backbone = config.docids.generation, config.docids.generator or config.backbone
    fusion = Fusion.build(backbone, range(work.vocabulary), how.fusion).to(META)
    fusion.freeze(encoder=False)
    flops, memory = _step(
        fusion,
        lambda part: _pairs(fusion, work, ceil(how.batch * part)),
        how.optimiser,
        twice=how.fusion.regularised,
    )
    tokens = how.batch * how.steps * (work.document_tokens + 3 * work.docid_tokens)
    writer, read = fusion.generator, work.document_tokens
    return [
        _cost("docid generator", how.steps, tokens, flops * how.steps, memory),
        _writing(writer, work.documents, read, how.beams, work, "docids"),
    ]


def _likelihoods(
    network: Network, work: Workload, how: TrainingConfig, part: float, *, frozen: bool
) -> Tensor:
    """What a part of a batch computes: docids of queries and of texts under teacher forcing."""
    total = torch.zeros((), device=META)
    length = ceil(work.docid_tokens) + 1
    for texts, read, rows in (
        (how.batches.queries, work.query_tokens, work.rows),
        (how.batches.texts, work.text_tokens, 1.0),
    ):
        count = ceil(texts * part)
        if frozen:  # the states are cached
            states = torch.zeros(count, ceil(read), network.head.in_features, device=META)
        else:
            states = network.encode(_tokens(count, read), None)  # type: ignore[arg-type]
        owner = torch.arange(ceil(count * rows), device=META) % max(1, count)
        hidden = network.decode(states[owner], None, _tokens(len(owner), length))  # type: ignore[arg-type]
        total = total + network.head(hidden).logsumexp(-1).sum()
    return total


def _pairs(fusion: Fusion, work: Workload, count: int) -> Tensor:
    """What a part of a batch of pairs computes: both encoders, and the shared decoder twice."""
    targets = _tokens(count, work.docid_tokens + 1)
    memories = [fusion.generator.encode(_tokens(count, work.document_tokens), None)]  # type: ignore[arg-type]
    if fusion.config.regularised:
        states = fusion.autoencoder(input_ids=_tokens(count, work.docid_tokens)).last_hidden_state
        slots = fusion.slots(fusion.into["query"](states.mean(1))).view(count, fusion.config.slots, -1)
        memories = [torch.cat([slots, memories[0]], 1), slots]
    hidden = [fusion.generator.decode(memory, None, targets) for memory in memories]  # type: ignore[arg-type]
    return sum(
        (fusion.generator.head(one).logsumexp(-1).sum() for one in hidden), torch.zeros((), device=META)
    )


def _writing(network: Network, count: int, read: float, beams: int, work: Workload, name: str) -> StageCost:
    """Beam search over docids of the mean length, once per text."""
    with torch.no_grad():

        def once() -> None:
            states = network.encode(_tokens(1, read), None)  # type: ignore[arg-type]
            rows = _tokens(beams, work.docid_tokens)
            network.head(network.decode(states.expand(beams, -1, -1), None, rows))  # type: ignore[arg-type]

        flops = _counted(once)
    tokens = count * (read + beams * work.docid_tokens)
    return _cost(name, 0, tokens, flops * count, _bytes(network.parameters()))


def _step(
    module: nn.Module, loss: Callable[[float], Tensor], how: OptimiserConfig, *, twice: bool
) -> tuple[float, float]:
    """FLOPs and bytes of an optimiser step whose batch is computed in parts."""
    module.train()
    part, checkpointing = 1 / how.accumulate, how.gradient_checkpointing
    recompute_activations(module.modules(), enabled=False)
    flops, kept = _forward_backward(module, lambda: loss(part))
    if checkpointing:  # what lies between layers is kept, and one layer at a time is recomputed
        recompute_activations(module.modules(), enabled=True)
        flops, between = _forward_backward(module, lambda: loss(part))
        kept = between + kept / max(1, len(_layers(module)))
    if twice and how.accumulate > 1:
        with torch.no_grad():
            flops += _counted(lambda: loss(part))
    moving = _bytes(weight for weight in module.parameters() if weight.requires_grad)
    state = moving * (3 + (how.average > 0))  # gradient, two moments of Adam, averaged weights
    return flops * how.accumulate, _bytes(module.parameters()) + state + kept


def _forward_backward(module: nn.Module, loss: Callable[[], Tensor]) -> tuple[float, float]:
    """FLOPs of both passes, and bytes that are kept between them: saved tensors, and inputs of layers."""
    weights = {weight.untyped_storage()._cdata for weight in module.parameters()}
    kept: dict[int, Tensor] = {}  # the tensors themselves, so that no storage is freed and used again

    def keep(tensor: Tensor) -> Tensor:
        if (key := tensor.untyped_storage()._cdata) not in weights:
            kept[key] = tensor
        return tensor

    def keep_input(layer: nn.Module, given: tuple[Any, ...]) -> None:
        keep(given[0])

    hooks = [layer.register_forward_pre_hook(keep_input) for layer in _layers(module)]

    def both() -> None:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            found = loss()
        found.backward()  # type: ignore[no-untyped-call]

    flops = _counted(both)
    for hook in hooks:
        hook.remove()
    return flops, float(sum(tensor.untyped_storage().nbytes() for tensor in kept.values()))


def _layers(module: nn.Module) -> list[nn.Module]:
    """The layers whose activations can be recomputed."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    return [one for one in module.modules() if isinstance(one, GradientCheckpointingLayer)]


def _counted(function: Callable[[], object]) -> float:
    """The FLOPs of the matrix products of a function."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        function()
    return float(counter.get_total_flops())


def _cost(name: str, steps: int, tokens: float, flops: float, size: float) -> StageCost:
    return StageCost(name=name, steps=steps, tokens=tokens, flops=flops, gigabytes=size / 1e9)


def _tokens(rows: int, length: float) -> Tensor:
    return torch.zeros(rows, ceil(length), dtype=torch.long, device=META)


def _bytes(tensors: Any) -> float:
    return float(sum(tensor.numel() * tensor.element_size() for tensor in tensors))


def _generated(config: GenerativeConfig) -> bool:
    return config.docids.scheme in GENERATED


def _mean(rows: Sequence[Sequence[int]]) -> float:
    return sum(map(len, rows)) / len(rows) if rows else 0.0


def _rows(grades: Any, per_grade: int) -> int:
    """Docids of a query in a batch."""
    known = [grade for grade in grades if grade > 0]
    return sum(min(per_grade, known.count(grade)) for grade in set(known))
