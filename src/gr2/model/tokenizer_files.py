"""A tokenizer → its files, the same bytes wherever and however it was loaded."""

from pathlib import Path
from typing import Any

from gr2.store import read_json, write_json

SETTINGS = "tokenizer_config.json"
OF_THE_LOADING = ("is_local", "local_files_only")
"""What transformers notes of how a tokenizer was loaded: from a folder, and with the hub or without."""


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Write the files of a transformers tokenizer into a new folder."""
    tokenizer.save_pretrained(folder)
    settings = read_json(folder / SETTINGS, dict[str, Any])
    kept = {name: value for name, value in settings.items() if name not in OF_THE_LOADING}
    write_json(folder / SETTINGS, kept)
