"""A graded collection → a backbone trained to generate docids: pre-training (GR²P, paper §3.3).

It uses the loss and loop of `fit`, with titles as docids; the result is the network without the docids, for
`gr2 train --backbone FOLDER`. The embeddings of docid tokens are frozen at those of the backbone's
vocabulary, so that the decoder can use the tokens of any other docids in fine-tuning.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from gr2.data.collection import Collection
from gr2.model.backbone import FreshDecoder, parts_of, save_backbone, tokenizer_of
from gr2.model.encoder import Vectors
from gr2.model.network import Network
from gr2.model.quantised_io import Storage
from gr2.schemes.registry import SchemeContext, build, scheme_of
from gr2.store import Workspace, check_replaceable
from gr2.training.checks import check_training
from gr2.training.distributed import join_ranks
from gr2.training.fit import fit
from gr2.workflows.config import PretrainConfig

TABLES = ("decoder.embed_tokens.weight", "head.weight")


def pretrain(
    collection: Collection,
    out: Path,
    config: PretrainConfig | None = None,
    *,
    vectors: Vectors | None = None,
    resume: bool = False,
    progress: bool = False,
) -> None:
    """Train on the collection with titles as docids, and write the backbone.

    The trained model with its docids is kept in OUT.model, its checkpoints in OUT.model.training.

    Args:
        collection: a collection with graded judgements in the split `train`, as made by
            `gr2 collection from-wikipedia` or `from-links`.
        out: the backbone folder to write.
        config: backbone, docids and training; a node prior is not part of the backbone.
        vectors: the documents' vectors in the order of docnos, for a node prior, as in `fit`.
        resume: continue an interrupted run.
        progress: show progress bars.
    """
    config = config or PretrainConfig()
    check_replaceable(out)
    if not collection.qrels.get("train"):
        raise ValueError(f"{collection.name} has no split `train` to pre-train on")
    check_training(config.training, collection, scheme=scheme_of(config.docids.scheme))
    context = SchemeContext(
        collection=collection,
        backbone=config.backbone,
        folder=Workspace(out).making,
        config=config.docids,
        resume=resume,
        progress=progress,
    )
    model = fit(
        collection,
        build(context),
        config.backbone,
        Workspace(out).model,
        replace(config.training, freeze_embeddings=True),
        vectors=vectors,
        resume=resume,
        progress=progress,
    )
    ranks = join_ranks()
    if ranks.is_first:
        about = {"made from": dict(model.provenance)}
        export(model.network, config.backbone, out, about, storage=config.storage)
    ranks.wait()  # every process finds the folder when this returns


def export(
    network: Network,
    backbone: str,
    out: Path,
    about: Mapping[str, Any],
    *,
    tokenizer: Any = None,
    storage: Storage = "fp32",
    card: str = "",
) -> None:
    """Write a network as a backbone; it must have been trained from `backbone` with frozen embeddings.

    Its tokenizer is the backbone's unless another one is given.
    """
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
        tokenizer or tokenizer_of(backbone),
        {"special": list(parts.special), **about},
        storage=storage,
        card=card,
    )


def network_shape(network: Network) -> FreshDecoder:
    """The shape of a new decoder like the network's, with unit-norm rows because its head was frozen."""
    if network.family != "encoder":
        return FreshDecoder()
    shape = network.decoder.config
    return FreshDecoder(
        layers=shape.num_layers, heads=shape.num_heads, feed_forward=shape.d_ff, unit_norm_head=True
    )
