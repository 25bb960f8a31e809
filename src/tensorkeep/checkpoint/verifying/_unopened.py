"""Files too damaged to open: a finding where they begin like a checkpoint, an error where they are something else."""

from __future__ import annotations

import os
from typing import Final

from tensorkeep.errors import TensorkeepError
from tensorkeep.formats import SNIFF_NBYTES
from tensorkeep.kinds import Finding
from tensorkeep.kinds.registry import known_suffixes
from tensorkeep.transport import ByteRange, is_directory, open_source

_LENGTH_NBYTES: Final = 8
"""Bytes of a safetensors file before the text of its header."""

_SIGNATURES: Final = (b"PK\x03\x04", b"\x93NUMPY", *(bytes([0x80, protocol]) for protocol in range(2, 6)))


def damage_of(error: TensorkeepError) -> Finding:
    """Turn an error about a damaged file into a finding; raise it if the file is of no kind that can be verified."""
    if error.path is None or not _begins_like_a_checkpoint(error.path):
        raise error
    file = os.path.basename(error.path.rstrip("/" + os.sep))
    expected, found, hint = error.expected, error.found, error.hint
    return Finding("header", error.message, file, error.tensor, expected=expected, found=found, hint=hint)


def _begins_like_a_checkpoint(path: str) -> bool:
    if is_directory(path):  # its files contradict each other
        return True
    source = open_source(path, backend="pread")
    head = bytes(source.read(ByteRange(0, min(SNIFF_NBYTES, source.nbytes))))
    if path.endswith(".json"):
        return not head or head.startswith(b"{")
    if len(head) <= _LENGTH_NBYTES:  # too short to be recognized, except by its name
        return path.endswith(known_suffixes())
    return head[_LENGTH_NBYTES : _LENGTH_NBYTES + 1] == b"{" or head.startswith(_SIGNATURES)
