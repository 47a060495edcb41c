"""The name of a model → its folder: a local one, or a copy of one on the Hugging Face hub."""

import re
from pathlib import Path

_ON_HUB = re.compile(r"\w[\w.-]*/\w[\w.-]*")


def located(name: str | Path) -> Path:
    """The folder of a model; one that is not here, named `owner/model`, is downloaded and kept.

    A folder `owner` in the working directory makes it the name of a folder.

    >>> located("shop-model").name
    'shop-model'
    """
    folder = Path(name)
    if folder.parent.exists() or not _ON_HUB.fullmatch(str(name)):
        return folder
    from huggingface_hub import snapshot_download  # transformers depends on it

    try:
        return Path(snapshot_download(str(name)))
    except (OSError, ValueError) as error:
        cause = str(error).strip().splitlines()[0]
        raise ValueError(f"{name}: no such folder, and no such model on the hub either: {cause}") from error
