"""What takes the place of an index in a bucket while its checkpoint is being removed. Pure.

    {"tensorkeep_removed":{"files":["model-1a2b3c4d-00001-of-00001.safetensors"]}}

No reader takes it for an index. It lists what goes, so that another process can finish what a dead one began.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from tensorkeep.paths import is_plain_name

_START: Final = b'{"tensorkeep_removed":'


class _Removed(msgspec.Struct):
    files: list[str]


class _Text(msgspec.Struct):
    tensorkeep_removed: _Removed


def emit_removed(files: Iterable[str]) -> bytes:
    """Encode the names of the files that go with an index."""
    return msgspec.json.encode(_Text(_Removed(sorted(files))))


def parse_removed(text: bytes) -> tuple[str, ...] | None:
    """Return the files that go with a removed index, or None if this is something else."""
    if not text.startswith(_START):
        return None
    try:
        files = msgspec.json.decode(text, type=_Text).tensorkeep_removed.files
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()
    return tuple(filter(is_plain_name, files))
