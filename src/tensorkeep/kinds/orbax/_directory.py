"""Directories of checkpoints, local and on servers: which names are in them, and small files whole."""

from __future__ import annotations

import os
from typing import Final

from tensorkeep.errors import FormatError, SourceMissingError
from tensorkeep.transport import ByteRange, exists, is_remote, join, list_names, open_source

TREE: Final = "_METADATA"
MANIFEST: Final = "manifest.ocdbt"
STEP: Final = "_CHECKPOINT_METADATA"
TEXTS: Final = "_strings.json"
JSON: Final = "metadata"

_ASKED_FOR: Final = (STEP, TREE, MANIFEST)
"""Files that are asked for by name where a server lists nothing."""


def names_in(directory: str) -> list[str]:
    """Return the names in a directory; on a server that lists nothing, which of the important files exist."""
    if not is_remote(directory):
        return list_names(directory) or [] if os.path.isdir(directory) else []
    try:
        names = list_names(directory)
    except SourceMissingError:
        return []
    return [name for name in _ASKED_FOR if exists(join(directory, name))] if names is None else names


def read_file(path: str, most_nbytes: int) -> bytes:
    """Read a small file whole."""
    source = open_source(path)
    try:
        if source.nbytes > most_nbytes:
            raise FormatError(
                "the file is too long",
                path=path,
                expected=f"at most {most_nbytes:,} bytes",
                found=f"{source.nbytes:,}",
            )
        return bytes(source.read(ByteRange(0, source.nbytes)))
    finally:
        source.close()
