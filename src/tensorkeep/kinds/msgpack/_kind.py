"""The kind of Flax's files: one file, by its suffix or its content, or an index and its shards."""

from __future__ import annotations

from typing import Final

from tensorkeep.formats.msgpack import is_msgpack
from tensorkeep.kinds.base import Files, IndexedFiles, Kind, Opened, OpenOptions, Place, file_kind, find_indexed
from tensorkeep.kinds.msgpack._contents import parse_msgpack
from tensorkeep.kinds.msgpack._file import MsgpackFile
from tensorkeep.kinds.msgpack._set import MsgpackSet
from tensorkeep.kinds.safetensors import read_index
from tensorkeep.transport import join

_SUFFIX: Final = ".msgpack"
_FILE: Final = file_kind("a MessagePack file of Flax", parse_msgpack, suffixes=(_SUFFIX,), opens=MsgpackFile)


def _find(place: Place) -> IndexedFiles | Place | None:
    found = find_indexed(place, _SUFFIX)
    if found is not None or place.is_directory:
        return found
    return place if place.is_named(_SUFFIX) or is_msgpack(place.source) else None


def _open(where: IndexedFiles | Place, options: OpenOptions) -> Opened:
    def open_one(path: str) -> Opened:
        return _FILE.open(Place(path, backend=options.backend), options)

    if isinstance(where, Place):
        return _FILE.open(where, options)
    if where.index is None:
        return open_one(join(where.directory, where.name))
    index_path = join(where.directory, where.index)
    index = read_index(index_path)
    weight_map = {name.replace("/", "."): file for name, file in index.weight_map.items()}
    return MsgpackSet(index_path, where.open_shards(index.files, open_one), weight_map)


def _files(where: IndexedFiles | Place) -> Files | None:
    if isinstance(where, IndexedFiles):
        return where.files()
    return None if _FILE.files is None else _FILE.files(where)


MSGPACK: Final[Kind[IndexedFiles | Place]] = Kind(
    _FILE.name, _find, _open, files=_files, suffixes=(_SUFFIX,), is_converted=True, only_tensors=True
)
