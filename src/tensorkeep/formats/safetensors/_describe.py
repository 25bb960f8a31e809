"""A file as its header declares it, for `tensorkeep inspect`."""

from __future__ import annotations

import os

from tensorkeep.errors import IntegrityError, UnsupportedError
from tensorkeep.formats._description import Description, Digests, FileDescription
from tensorkeep.formats.safetensors._metadata import free_text
from tensorkeep.formats.safetensors._parse import Header
from tensorkeep.formats.safetensors._read import read_header, read_seal
from tensorkeep.formats.safetensors._state import STATE_KEY
from tensorkeep.transport import ByteSource


def describe_file(source: ByteSource, header: Header | None = None) -> Description:
    """Describe a file, even one whose header does not match its digests."""
    header = header or read_header(source)
    file = FileDescription(
        os.path.basename(source.name),
        source.nbytes,
        header.data_start,
        header.entries,
        free_text(header.metadata),
        _digests(source, header),
    )
    return Description((file,), state=(header.metadata or {}).get(STATE_KEY), stored=header.entries)


def _digests(source: ByteSource, header: Header) -> Digests:
    try:
        return "none" if read_seal(source, header) is None else "all"
    except (IntegrityError, UnsupportedError):
        return "stale"
