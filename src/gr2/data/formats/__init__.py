"""Files of every supported format ↔ collections; `open_collection` opens any of them by name."""

from pathlib import Path

from gr2.data.collection import Collection
from gr2.data.formats.folder import read_folder, write_folder
from gr2.data.formats.lines import FormatError

__all__ = ["FormatError", "open_collection", "read_folder", "write_folder"]


def open_collection(name: str, *, progress: bool = False) -> Collection:
    """Open a collection by name: a folder, `pydocs`, `pydocs:PACKAGE` or `ir:ID`."""
    scheme, colon, rest = name.partition(":")
    if scheme == "pydocs":
        from gr2.data.pydocs import pydocs

        return pydocs(rest)
    if scheme == "ir" and colon:
        from gr2.data.formats.irds import read_irds

        return read_irds(rest)
    return read_folder(Path(name), progress=progress)
