"""A graded collection → a backbone that has learned to write docids: pre-training (GR²P, paper §3.3).

The same loss and loop as `learn`, on titles as docids; what comes out is the network without the docids, for
`gr2 train --backbone THAT`. The rows of docid tokens stand still, so that any docids of the fine-tuning find
rows that the decoder knows how to use: those of the backbone's own vocabulary.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from gr2.backbone import FreshDecoder, parts_of, save_backbone, tokenizer_of
from gr2.data import Collection
from gr2.docids.schemes import Making, build
from gr2.embed import Vectors
from gr2.learn import Plan, learn
from gr2.network import Network
from gr2.ranks import accelerator
from gr2.store import check_replaceable
from gr2.weights import Storage

TABLES = ("decoder.embed_tokens.weight", "head.weight")


def pretrain(
    collection: Collection,
    backbone: str,
    out: Path,
    plan: Plan,
    *,
    words: int = 12,
    vectors: Vectors | None = None,
    storage: Storage = "fp32",
    resume: bool = False,
    progress: bool = False,
) -> None:
    """Train on the collection with titles as docids, and write the backbone.

    The trained model with its docids stays in OUT.model, its checkpoints in OUT.model.training.

    Args:
        collection: with a `train` split of several grades; see `gr2 collection from-wikipedia`, `from-links`.
        backbone: what to start from.
        out: the folder to write.
        plan: of the training; its node prior is left out of the backbone.
        words: at which a title is cut.
        vectors: of the documents in the order of docnos, for the plan's node prior, as `learn` takes them.
        storage: how the weights are stored.
        resume: go on after an interruption.
        progress: whether to show bars.
    """
    check_replaceable(out)
    making = Making(collection=collection, backbone=backbone, folder=out, words=words)
    docids = build("title", making)
    plan = replace(plan, freeze_tables=True)
    model = learn(
        collection,
        docids,
        backbone,
        out.with_name(out.name + ".model"),
        plan,
        vectors=vectors,
        resume=resume,
        progress=progress,
    )
    if accelerator().is_main_process:
        export(model.network, backbone, out, {"made from": dict(model.provenance)}, storage=storage)
    accelerator().wait_for_everyone()  # whoever returns finds the folder


def export(
    network: Network,
    backbone: str,
    out: Path,
    about: Mapping[str, Any],
    *,
    storage: Storage = "fp32",
    card: str = "",
) -> None:
    """Write a network that was trained with fixed rows from this backbone as a backbone of its own."""
    parts = parts_of(backbone, network_shape(network))
    words = parts.encoder.get_input_embeddings().weight.detach()
    tables: dict[str, Tensor] = {}
    if parts.embedding.shape != words.shape or not parts.embedding.equal(words):
        tables["embedding"] = parts.embedding
    if parts.scale is None:
        tables["head"] = parts.head
    else:
        about = {"scale": parts.scale, **about}
    weights = {n: v for n, v in network.weights().items() if n not in TABLES and not n.startswith("prior.")}
    save_backbone(
        out,
        network.family,
        network.encoder,
        network.decoder,
        weights,
        tables,
        tokenizer_of(backbone),
        {"special": list(parts.special), **about},
        storage=storage,
        card=card,
    )


def network_shape(network: Network) -> FreshDecoder:
    """The shape of a fresh decoder like the network's own, whose head stood still."""
    if network.family != "encoder":
        return FreshDecoder()
    shape = network.decoder.config
    return FreshDecoder(layers=shape.num_layers, heads=shape.num_heads, feed_forward=shape.d_ff, loud=True)
