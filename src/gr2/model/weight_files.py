"""The weight files of a checkpoint → a model, or one tensor by name: safetensors or .bin, whole or in shards.

A .bin file is read as weights only: a pickle that would run code is refused by torch.
"""

import json
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor

from gr2.model.families import transformers
from gr2.model.quiet import quiet

FILES = ("model.safetensors", "pytorch_model.bin")
INDEX = ".index.json"


def read_weights(kind: Any, backbone: str | Path, config: Any) -> Any:
    """A model of a class of transformers with the checkpoint's weights."""
    try:
        with quiet():
            return kind.from_pretrained(backbone, config=config)
    except UnpicklingError as error:
        raise ValueError(f"{backbone}: its .bin file holds more than weights, so it is not read") from error


def stored_tensor(backbone: str | Path, name: str) -> Tensor | None:
    """The tensor with a name, as 32-bit floats; None if the checkpoint stores none with that name."""
    for file in FILES:
        if (path := _found(backbone, file)) is not None:
            return _tensor(path, name)
        if (index := _found(backbone, file + INDEX)) is not None:
            shards: dict[str, str] = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            shard = _found(backbone, shards[name]) if name in shards else None
            return None if shard is None else _tensor(shard, name)
    raise ValueError(f"{backbone}: has no weights; expected {' or '.join(FILES)}, or its {INDEX}")


def _found(backbone: str | Path, file: str) -> Path | None:
    path: Any = transformers().utils.hub.cached_file(
        str(backbone), file, _raise_exceptions_for_missing_entries=False
    )
    return None if path is None else Path(path)


def _tensor(path: Path, name: str) -> Tensor | None:
    if path.suffix == ".bin":
        stored = torch.load(path, map_location="cpu", weights_only=True)
        return stored[name].float() if name in stored else None
    from safetensors import safe_open

    with safe_open(path, framework="pt") as content:
        return content.get_tensor(name).float() if name in content.keys() else None  # noqa: SIM118
