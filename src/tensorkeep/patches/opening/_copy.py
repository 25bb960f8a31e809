"""Copies of served patches on this machine: all of a patch is read, in blocks, which would each be a request."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from typing import Final

from tensorkeep.errors import as_transport_error
from tensorkeep.limits import READ_NBYTES
from tensorkeep.transport import ByteSource, is_remote, open_source

_PIECE_NBYTES: Final = 4 * READ_NBYTES
"""Bytes that are read at once."""


def copy_to(source: ByteSource, path: str) -> None:
    """Write the bytes of a source to a new file."""
    with as_transport_error("could not write the patch", path), open(path, "xb") as file:
        for start in range(0, source.nbytes, _PIECE_NBYTES):
            data = bytearray(min(_PIECE_NBYTES, source.nbytes - start))
            source.read_into([(start, memoryview(data))])
            file.write(data)


def on_this_machine(path: str, stack: ExitStack) -> str:
    """Return the path of a local file, or of a copy of a served one, which goes with the stack."""
    if not is_remote(path):
        return path
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tensorkeep-patch-"))
    copy = os.path.join(folder, "patch.safetensors")
    copy_to(open_source(path), copy)
    return copy
