"""Atomic, checksummed files and folders: everything gr2 saves is written here, and nothing is pickled.

| file | |
|---|---|
| files.py | one file: written under another name, flushed, renamed |
| writing.py | one writer at a time; two folders exchanged in one step; what a killed writer left |
| folders.py | a folder with a manifest: written whole, verified, read in one version |
| typed.py | a JSON file read as a given type |
| workspace.py | where unfinished work is kept |

A reader sees either the old or the new one, whenever a writer is killed or the power fails.
"""

from gr2.store.files import atomic_file, flush_folder, sha256, writable, write_json, write_text
from gr2.store.folders import (
    MANIFEST,
    atomic_folder,
    check_replaceable,
    extended_folder,
    link_files,
    steady,
    verify,
    write_manifest,
)
from gr2.store.typed import read_json, readable, typed
from gr2.store.workspace import Workspace
from gr2.store.writing import AlreadyWriting, writer_lock

__all__ = [
    "MANIFEST",
    "AlreadyWriting",
    "Workspace",
    "atomic_file",
    "atomic_folder",
    "check_replaceable",
    "extended_folder",
    "flush_folder",
    "link_files",
    "read_json",
    "readable",
    "sha256",
    "steady",
    "typed",
    "verify",
    "writable",
    "write_json",
    "write_manifest",
    "write_text",
    "writer_lock",
]
