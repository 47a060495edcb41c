"""A pretrained checkpoint → encoder, decoder, tokenizer, and embedding and head tables.

Three kinds of backbone: a T5 or BART checkpoint, by folder or hub name; any text encoder, which gets a fresh
T5 decoder stack; and a backbone written by `gr2 pretrain` (`save_backbone`), an encoder-decoder trained to
generate docids but not tied to any. The rows for docid tokens are taken from its tables, so a backbone works
with any docids.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gr2.docids.docids import Tokenise
from gr2.model.families import Family, configuration, dropout_of, family_of, transformers
from gr2.model.quantised_io import Storage, load_weights, save_weights
from gr2.model.tokenizer_files import save_tokenizer
from gr2.model.weight_files import read_weights, stored_tensor
from gr2.store import (
    MANIFEST,
    atomic_folder,
    read_json,
    readable,
    sha256,
    steady,
    typed,
    verify,
    write_json,
    write_text,
)

START, END, FIRST = 0, 1, 2
"""The decoder's own vocabulary: 0 is start and padding, 1 is end, docid tokens begin at 2."""
FORMAT = 1
OWN = "backbone.json"
STATIC = "model2vec"
"""The model type of a static encoder, a table of token embeddings; see `static_encoder.py`."""
EMBEDDED = Path(__file__).parent / "backbones"
"""Backbones that come with the package, by name."""


@dataclass(frozen=True, kw_only=True)
class FreshDecoder:
    """Shape and initialisation of the decoder stack that a text encoder gets."""

    layers: int = 2
    heads: int = 6
    feed_forward: int = 1024
    unit_norm_head: bool = False
    """Start the head with unit-norm rows: a frozen head needs them, or the decoder's signal vanishes.
    Otherwise rows are scaled by 1/√width as in T5, which is a norm of about 1/20 for a text encoder."""


@dataclass(frozen=True)
class Parts:
    """The parts from which a network is built."""

    family: Family
    encoder: Any
    decoder: Any
    special: tuple[int, int]
    """The token ids whose rows become those of start and end."""
    embedding: Tensor
    """[V, W] the decoder's input embeddings, by the tokenizer's token id."""
    head: Tensor
    """[V, W] the rows of the output layer, by the tokenizer's token id."""
    more: Mapping[str, Tensor] = field(default_factory=dict)
    """Further weights of the network by name, if the checkpoint has more than encoder and decoder."""
    fresh: bool = True
    """Whether the decoder has not been trained on docids yet."""
    scale: float | None = None
    """The head is the encoder's word embeddings times this factor; None if it has a table of its own."""


def parts_of(backbone: str | Path, fresh: FreshDecoder, *, dropout: bool = False) -> Parts:
    """Load a checkpoint, with its own dropout or none; fresh parts use torch's current random state."""
    _check(backbone)
    backbone = located(backbone)
    if is_own(backbone):
        return steady(Path(backbone), lambda folder: _from_own(folder, dropout))
    family, config = family_of(backbone), configuration(backbone, dropout=dropout)
    if family == "t5":
        return _from_t5(backbone, config)
    return _from_bart(backbone, config) if family == "bart" else _from_encoder(backbone, config, fresh)


def makes_vectors(backbone: str | Path) -> bool:
    """Whether the mean of its encoder's states is a usable text vector; that of T5 and BART is not."""
    backbone = located(backbone)
    if is_static(backbone):
        return True
    if is_own(backbone):
        return read_json(Path(backbone) / OWN, dict[str, Any]).get("family") == "encoder"
    return not transformers().AutoConfig.from_pretrained(backbone).is_encoder_decoder


def tokenizer_of(backbone: str | Path) -> Any:
    """The tokenizer of a checkpoint."""
    _check(backbone)
    backbone = located(backbone)
    if not is_own(backbone):
        return transformers().AutoTokenizer.from_pretrained(backbone)
    with readable(place := Path(backbone) / "tokenizer"):
        return transformers().AutoTokenizer.from_pretrained(place)


def tokeniser(backbone: str, *, max_tokens: int = 32) -> Tokenise:
    """The backbone's tokenizer for docids: no special tokens, at most `max_tokens` tokens."""
    tokenizer = tokenizer_of(backbone)

    def tokenise(texts: list[str]) -> list[list[int]]:
        if not texts:
            return []
        rows = tokenizer(texts, add_special_tokens=False)["input_ids"]
        # A number at the end distinguishes docids with the same text, so the middle is cut.
        most = max_tokens
        return [row if len(row) <= most else [*row[: most - 4], *row[-4:]] for row in map(list, rows)]

    return tokenise


def located(backbone: str | Path) -> str | Path:
    """The folder of a backbone that comes with the package; any other name or path unchanged.

    A folder of the same name in the working directory is not meant: as a path it is `./gr2-mini`.
    """
    name = str(backbone)
    return EMBEDDED / name if Path(name).name == name and (EMBEDDED / name).is_dir() else backbone


def identity(backbone: str | Path) -> str:
    """A name that identifies a backbone: one of our own and a static one by content, any other by name."""
    if is_static(backbone):
        files = sorted(path for path in Path(backbone).iterdir() if path.suffix in (".json", ".safetensors"))
        content = "".join(f"{path.name} {sha256(path)} " for path in files).encode()
    elif is_own(backbone):
        content = (Path(located(backbone)) / MANIFEST).read_bytes()
    else:
        return str(backbone)
    return f"{Path(backbone).name} {hashlib.sha256(content).hexdigest()[:12]}"


def is_own(backbone: str | Path) -> bool:
    """Whether it is a folder that `save_backbone` wrote."""
    return (Path(located(backbone)) / OWN).is_file()


def is_static(backbone: str | Path) -> bool:
    """Whether it is a folder of a static encoder, which makes vectors but has no layers to train."""
    config = Path(located(backbone)) / "config.json"
    if not config.is_file():
        return False
    try:
        content = json.loads(config.read_text(encoding="utf-8"))
    except ValueError:
        return False
    return isinstance(content, dict) and content.get("model_type") == STATIC


def _check(backbone: str | Path) -> None:
    """Refuse what cannot be trained."""
    if is_static(backbone):
        raise ValueError(
            f"{backbone}: is a static encoder, which has no layers and cannot be the backbone of a model; "
            "look-ahead can use its vectors (--look-ahead.encoder)"
        )
    if not is_own(backbone):
        family_of(located(backbone))


def save_backbone(
    folder: Path,
    family: Family,
    encoder: Any,
    decoder: Any,
    weights: Mapping[str, Tensor],
    tables: Mapping[str, Tensor],
    tokenizer: Any,
    about: Mapping[str, Any],
    *,
    storage: Storage = "fp32",
    card: str = "",
) -> None:
    """Write a backbone as a folder with a manifest.

    Args:
        folder: the folder to write.
        family: the network's family.
        encoder: the encoder module, for its configuration.
        decoder: the decoder module, for its configuration.
        weights: the network's weights by name, without the rows of docid tokens.
        tables: `embedding` and `head` [V, W], unless they are made from the encoder's word embeddings.
        tokenizer: the tokenizer, saved with the weights.
        about: special tokens and provenance, as JSON.
        storage: 32 or 16 bits per weight, or 8 bits with a scale per row.
        card: the model card; empty for none.
    """
    with atomic_folder(folder) as temporary:
        if card:
            write_text(temporary / "README.md", card)
        encoder.config.save_pretrained(temporary / "encoder")
        decoder.config.save_pretrained(temporary / "decoder")
        save_tokenizer(tokenizer, temporary / "tokenizer")
        everything = dict(weights) | {f"tables.{name}": table for name, table in tables.items()}
        save_weights(everything, temporary / "weights.safetensors", storage)
        write_json(temporary / OWN, {"format": FORMAT, "family": family, **about})


def _from_own(folder: Path, dropout: bool) -> Parts:
    verify(folder, OWN, "weights.safetensors")
    content = read_json(folder / OWN, dict[str, Any])
    if content.get("format") != FORMAT:
        raise ValueError(f"{folder}: has format {content.get('format')}, this version reads {FORMAT}")
    family: Family = typed(content.get("family"), Family, folder / OWN, "family")  # type: ignore[arg-type]
    with readable(folder / "encoder", folder / "decoder"):
        encoder, decoder = empty_stacks(family, folder / "encoder", folder / "decoder", dropout=dropout)
    with readable(folder / "weights.safetensors"):
        stored = load_weights(folder / "weights.safetensors")
        encoder.load_state_dict(_below("encoder.", stored), strict=False)
        decoder.load_state_dict(_below("decoder.", stored), strict=False)
    words = encoder.get_input_embeddings().weight.detach()
    own = _below("tables.", stored)
    scale = typed(content.get("scale", width_of(decoder.config) ** -0.5), float, folder / OWN, "scale")
    special = typed(content.get("special"), tuple[int, int], folder / OWN, "special")
    more = {n: v for n, v in stored.items() if not n.startswith(("encoder.", "decoder.", "tables."))}
    return Parts(
        family,
        encoder,
        decoder,
        special,
        own.get("embedding", words),
        own.get("head", words * scale),
        more,
        fresh=False,
        scale=None if "head" in own else scale,
    )


def _below(prefix: str, stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): v for n, v in stored.items() if n.startswith(prefix)}


def empty_stacks(family: Family, encoder: Path, decoder: Path, *, dropout: bool = False) -> tuple[Any, Any]:
    """Encoder and decoder from stored configurations, without pretrained weights."""
    hf = transformers()
    shape, kind = (configuration(place, dropout=dropout) for place in (decoder, encoder))
    if family == "bart":
        models = hf.models.bart.modeling_bart
        return models.BartEncoder(kind), models.BartDecoder(shape)
    stack = hf.models.t5.modeling_t5.T5Stack
    reader = stack(kind) if family == "t5" else hf.AutoModel.from_config(kind)
    writer = stack(shape)
    if family == "encoder":
        reader.pooler = None
    _fuse(reader)
    _fuse(writer)
    return reader, writer


def _from_t5(backbone: str | Path, config: Any) -> Parts:
    model = read_weights(transformers().T5ForConditionalGeneration, backbone, config)
    words = model.shared.weight.detach()
    # transformers 5 ties the head to the embeddings by default, even for checkpoints with an untied head
    # (flan-T5, T5 v1.1), which then generate garbage. So the weights file decides.
    head, scale = stored_tensor(backbone, "lm_head.weight"), None
    if head is None:  # tied to the embeddings; T5 then scales the states, here the rows are scaled instead
        scale = model.config.d_model**-0.5
        head = words * scale
    _fuse(model)
    model.encoder.embed_tokens = model.shared  # with an untied head, the encoder's own may be left random
    special = (model.config.decoder_start_token_id, model.config.eos_token_id)
    return Parts("t5", model.encoder, model.decoder, special, words, head, scale=scale)


def _from_bart(backbone: str | Path, config: Any) -> Parts:
    model = read_weights(transformers().BartForConditionalGeneration, backbone, config)
    decoder = model.model.decoder
    table = decoder.embed_tokens.weight.detach() * getattr(decoder.embed_tokens, "embed_scale", 1.0)
    special = (model.config.decoder_start_token_id, model.config.eos_token_id)
    return Parts("bart", model.model.encoder, decoder, special, table, model.lm_head.weight.detach())


def _from_encoder(backbone: str | Path, config: Any, fresh: FreshDecoder) -> Parts:
    hf = transformers()
    encoder = read_weights(hf.AutoModel, backbone, config)
    encoder.pooler = None  # its parameters would never get a gradient
    width = width_of(encoder.config)
    stack = hf.models.t5.modeling_t5.T5Stack(
        hf.T5Config(
            vocab_size=FIRST,
            d_model=width,
            d_kv=width // fresh.heads,
            d_ff=fresh.feed_forward,
            num_layers=fresh.layers,
            num_heads=fresh.heads,
            feed_forward_proj="gated-gelu",
            dropout_rate=dropout_of(config),
            is_decoder=True,
            is_encoder_decoder=False,
            use_cache=False,
            pad_token_id=START,
            eos_token_id=END,
            decoder_start_token_id=START,
        )
    )
    tokenizer = hf.AutoTokenizer.from_pretrained(backbone)
    special = (
        tokenizer.cls_token_id or tokenizer.bos_token_id,
        tokenizer.sep_token_id or tokenizer.eos_token_id,
    )
    words = encoder.get_input_embeddings().weight.detach()
    _fuse(stack)
    scale = 1 / float(words.norm(dim=1).mean()) if fresh.unit_norm_head else width**-0.5
    return Parts("encoder", encoder, stack, special, words, words * scale, scale=scale)


def width_of(config: Any) -> int:
    """The width of the hidden states of an encoder or decoder."""
    return int(getattr(config, "hidden_size", None) or config.d_model)


def _fuse(model: nn.Module) -> None:
    """Compute T5's GELU in one operation; transformers uses eight, which slows training."""
    slow = import_module("transformers.activations").NewGELUActivation
    for module in list(model.modules()):
        if isinstance(getattr(module, "act", None), slow):
            module.act = nn.GELU(approximate="tanh")


def rows_of(table: Tensor, special: tuple[int, int], tokens: "list[int] | int") -> Tensor:
    """The rows of start, end and each docid token; the rows of codes are random, at the table's scale."""
    if isinstance(tokens, int):
        return torch.cat([table[list(special)], torch.randn(tokens, table.shape[1]) * table.std()])
    return table[[*special, *tokens]].clone()
