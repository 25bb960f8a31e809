"""Weights in several HDF5 files with an index: Keras's own (`.weights.json`) and transformers' (`.h5.index.json`)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Final

import msgspec

from tensorkeep.errors import TensorkeepError, UnsafeError
from tensorkeep.formats import FileContents
from tensorkeep.formats.hdf5 import parse_hdf5
from tensorkeep.formats.keras import parse_shard_index, parse_shards
from tensorkeep.kinds.base import (
    Files,
    FileSet,
    Kind,
    Opened,
    OpenOptions,
    Place,
    SharedBytesFile,
    find_indexed,
    refuse_disagreement,
    refuse_missing_shards,
)
from tensorkeep.kinds.safetensors import read_index
from tensorkeep.limits import MAX_INDEX_NBYTES
from tensorkeep.transport import ByteRange, ByteSource, join, open_source, split

_KERAS: Final = ".weights.json"
_SUFFIX: Final = ".h5"
_FORM: Final = "an HDF5 file"


class _Index(msgspec.Struct, frozen=True):
    """Where an index is.

    Attributes:
        path: Its path.
        is_of_keras: Whether Keras wrote it, which numbers variables; otherwise transformers did.
    """

    path: str
    is_of_keras: bool


def _find(place: Place) -> _Index | None:
    if place.path is None:
        return None
    if not place.is_directory and place.is_named(_KERAS):
        return _Index(place.path, is_of_keras=True)
    found = find_indexed(place, _SUFFIX)
    if found is not None and found.index is not None:
        return _Index(join(found.directory, found.index), is_of_keras=False)
    names = [name for name in place.names if name.endswith(_KERAS)]
    return _Index(join(place.path, names[0]), is_of_keras=True) if len(names) == 1 else None


def _open(where: _Index, options: OpenOptions) -> Opened:
    with ExitStack() as opened:
        try:
            contents, sources = (_read_keras if where.is_of_keras else _read_transformers)(
                where.path, options, opened
            )
            for name, each in contents.items():
                each.check_ranges(sources[name])
        except TensorkeepError as error:
            raise error if error.path is not None else error.with_fields(path=where.path) from None
        files = {name: SharedBytesFile(_FORM, sources[name], each, options) for name, each in contents.items()}
        found = FileSet(where.path, files)
        if options.strict and found.unknowns:
            texts = ", ".join(f"{unknown} at `{at}`" for at, unknown in found.unknowns.items())
            raise UnsafeError("objects that are not known to be data", path=where.path, found=texts)
        opened.pop_all()
        return found


_Read = tuple[Mapping[str, FileContents], Mapping[str, ByteSource]]


def _read_keras(path: str, options: OpenOptions, opened: ExitStack) -> _Read:
    index = parse_shard_index(_text_of(path))
    sources = _sources(path, index.files, options, opened)
    return parse_shards(index, sources), sources


def _read_transformers(path: str, options: OpenOptions, opened: ExitStack) -> _Read:
    index = read_index(path)
    sources = _sources(path, index.files, options, opened)
    contents = {name: parse_hdf5(source) for name, source in sources.items()}
    names = {name for each in contents.values() for name in each.tensors}
    weight_map = _with_names_of_files(index.weight_map, names)
    refuse_disagreement(path, {name: each.tensors for name, each in contents.items()}, weight_map)
    return contents, sources


def _with_names_of_files(weight_map: Mapping[str, str], names: set[str]) -> dict[str, str]:
    """Return an index by the names in the files, from which transformers leaves out the name of the model.

    Two names that would become one stay as they are: the files have only one of them.
    """
    found = {name: file for name, file in weight_map.items() if name in names}
    for name, file in weight_map.items():
        if name not in names:
            short = name.partition("/")[2]
            found[name if not short or short in found else short] = file
    return found


def _sources(path: str, names: tuple[str, ...], options: OpenOptions, opened: ExitStack) -> dict[str, ByteSource]:
    directory = split(path)[0]
    refuse_missing_shards(path, directory, names)
    sources = {}
    for name in names:
        sources[name] = open_source(join(directory, name), backend=options.backend)
        opened.callback(sources[name].close)
    return sources


def _text_of(path: str) -> bytes:
    source = open_source(path, backend="pread")
    try:
        return bytes(source.read(ByteRange(0, min(source.nbytes, MAX_INDEX_NBYTES + 1))))
    finally:
        source.close()


def _files(where: _Index) -> Files:
    directory, name = split(where.path)
    if not where.is_of_keras:
        return Files(directory, name, (), name, (name,), suffixes=(_SUFFIX,))
    return Files(directory, name, (name, *parse_shard_index(_text_of(where.path)).files), opens_alone=False)


KERAS_SHARDS: Final[Kind[_Index]] = Kind("shards of HDF5", _find, _open, files=_files, suffixes=(_KERAS,))
