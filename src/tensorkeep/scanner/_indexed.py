"""The files that an index names: who scans an index wants to know what loading it would run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from tensorkeep.errors import TensorkeepError
from tensorkeep.limits import MAX_INDEX_NBYTES
from tensorkeep.paths import is_plain_name
from tensorkeep.transport import ByteRange, join, open_source, split

_SUFFIXES: Final = (".index.json", ".weights.json")


class _Document(msgspec.Struct, frozen=True):
    weight_map: dict[str, Any]


def shards_of(path: str) -> list[str]:
    """Return the paths of the files that an index names, in order; empty if it is not an index or cannot be read."""
    if not path.lower().endswith(_SUFFIXES):
        return []
    try:
        text = _read(path)
        named = msgspec.json.decode(text, type=_Document).weight_map.values()
    except (TensorkeepError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []
    directory, _ = split(path)
    names = list(dict.fromkeys(name for each in named for name in _names(each)))
    return [join(directory, name) for name in names] if all(map(is_plain_name, names)) else []


def _names(named: Any) -> Iterable[str]:
    """Give the names of files of one tensor: Keras lists them where a variable is in several."""
    return map(str, named if isinstance(named, list) else [named])


def _read(path: str) -> bytes:
    source = open_source(path)
    try:
        return bytes(source.read(ByteRange(0, min(source.nbytes, MAX_INDEX_NBYTES))))
    finally:
        source.close()
