"""Files of orbax checkpoints: JSON, a database (OCDBT), compressed chunks of zarr arrays. None of them is a program.

Orbax looks the handlers that `_CHECKPOINT_METADATA` names up among its own, and imports none. The metadata that users
save is JSON. Which file is a chunk is said by the files around it, so this looks at paths; the content was scanned as
every other format before.
"""

from __future__ import annotations

import os
import re
from typing import Final

from tensorkeep.scanner._compression import ZSTANDARD, report_compression
from tensorkeep.scanner._content import Content
from tensorkeep.scanner._findings import FindingLog
from tensorkeep.scanner.models._base import ModelForm
from tensorkeep.transport import is_remote

_TEXTS: Final = frozenset({"_METADATA", "_CHECKPOINT_METADATA", "_sharding", "_strings.json", ".zarray", "zarr.json"})
_DATABASE: Final = "manifest.ocdbt"
_DATABASE_MAGIC: Final = b"\x0c\xdb"
_match_key = re.compile(r"[0-9a-f]{32}").fullmatch
_match_chunk = re.compile(r"[0-9]+(?:\.[0-9]+)*").fullmatch
_MAX_NDIM: Final = 64


def _is_part(content: Content) -> bool:
    """Say whether a file is part of a checkpoint: by its name, and for data by the files around it."""
    path = content.source.name
    if content.place or is_remote(path):
        return False
    folder, name = os.path.split(path)
    if name in _TEXTS:
        return content.read(min(1, content.nbytes)) == b"{"
    if name == _DATABASE:
        return content.read(min(2, content.nbytes)) == _DATABASE_MAGIC
    if _match_key(name):
        return os.path.basename(folder) == "d" and _has(os.path.dirname(folder), _DATABASE)
    if _match_chunk(name) and _has(folder, ".zarray"):
        return True
    return _is_chunk_of_zarr3(folder, name)


def _is_chunk_of_zarr3(folder: str, name: str) -> bool:
    """Say whether a path is `c/0/1` beside a `zarr.json`, or `c` alone for an array without dimensions."""
    for _ in range(_MAX_NDIM):
        if name == "c":
            return _has(folder, "zarr.json")
        if not (name.isascii() and name.isdigit()):
            return False
        folder, name = os.path.split(folder)
    return False


def _has(folder: str, name: str) -> bool:
    return os.path.isfile(os.path.join(folder, name))


def _scan_part(content: Content, log: FindingLog) -> bool:
    """Return True: nothing in it runs, unless it is compressed as Orbax does not, and joblib would unpack it."""
    report_compression(content, log, but=ZSTANDARD)
    return True


ORBAX: Final = ModelForm("part of an orbax checkpoint", _is_part, _scan_part)
