"""Every way a collection comes in and goes out, behind one function: `open_collection`."""

from pathlib import Path

from gr2.data import Collection
from gr2.formats.folder import read_folder, write_folder
from gr2.formats.lines import FormatError

__all__ = ["FormatError", "open_collection", "read_folder", "write_folder"]


def open_collection(name: str, *, progress: bool = False) -> Collection:
    """A collection by what a user types: a folder, `pydocs`, `pydocs:PACKAGE` or `ir:ID`."""
    scheme, colon, rest = name.partition(":")
    if scheme == "pydocs":
        from gr2.pydocs import pydocs

        return pydocs(rest)
    if scheme == "ir" and colon:
        from gr2.formats.irds import read_irds

        return read_irds(rest)
    return read_folder(Path(name), progress=progress)
