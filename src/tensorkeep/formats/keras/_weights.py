"""HDF5 files of weights: where the tensors are, and what they are called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

import msgspec

from tensorkeep.formats._contents import FileContents, TensorPlace
from tensorkeep.formats._searched import Find
from tensorkeep.formats.hdf5 import Hdf5File, Hdf5Search, ObjectHeader
from tensorkeep.formats.keras._names import (
    LAYER_NAMES,
    MODEL_WEIGHTS,
    VARS,
    in_order,
    is_variable,
    may_be_legacy,
    names_of_variables,
    names_of_weights,
)
from tensorkeep.formats.keras._shard_index import ShardIndex
from tensorkeep.transport import ByteSource


def parse_weights(source: ByteSource) -> FileContents:
    """Read the headers of an HDF5 file; one that Keras did not write keeps its own names."""
    file = Hdf5File(source)
    contents = file.contents()
    paths = _paths_of(contents)
    if any(map(is_variable, paths)):
        return _renamed(contents, names_of_variables(paths, _layers_of([file])))
    if may_be_legacy(paths) and _is_legacy(file):
        return _renamed(contents, names_of_weights(paths))
    return contents


def search_weights(source: ByteSource) -> Find:
    """Return a function that finds one tensor of an HDF5 file as `parse_weights` does, unless Keras may rename it."""
    search = Hdf5Search(source)

    def find(name: str) -> TensorPlace | None:
        way = search.way_to(name)
        return search.place(name, way[-1]) if way and not _may_be_renamed(search, way[1:-1]) else None

    return find


def _may_be_renamed(search: Hdf5Search, groups: list[ObjectHeader]) -> bool:
    """Say whether what is in some groups may have another name: by a layer's name, or without their names."""
    if not groups:
        return False
    is_legacy = search.link(search.root, MODEL_WEIGHTS) or not search.root_attributes.isdisjoint(LAYER_NAMES)
    return bool(is_legacy or any(search.link(group, VARS) for group in groups))


def parse_shards(index: ShardIndex, sources: Mapping[str, ByteSource]) -> dict[str, FileContents]:
    """Read the headers of all shards of a model: a layer may be in several, and has its name in the first."""
    files = {name: Hdf5File(source) for name, source in sources.items()}
    found = {name: file.contents() for name, file in files.items()}
    paths = {name: _paths_of(contents) for name, contents in found.items()}
    index.check(paths)
    names = names_of_variables(chain.from_iterable(paths.values()), _layers_of(files.values()))
    return {name: _renamed(contents, names) for name, contents in found.items()}


def _layers_of(files: Iterable[Hdf5File]) -> dict[str, str]:
    """Return the path of each layer's folder, and the layer's name."""
    layers: dict[str, str] = {}
    for file in files:
        for group in file.tree.groups:
            folder, _, last = group.rpartition("/")
            if last == VARS:
                name = file.attributes[group].get("name")
                if isinstance(name, str):
                    layers.setdefault(folder, name)
    return layers


def _is_legacy(file: Hdf5File) -> bool:
    return MODEL_WEIGHTS in file.tree.groups or not file.root_attributes().keys().isdisjoint(LAYER_NAMES)


def _paths_of(contents: FileContents) -> list[str]:
    return [*contents.tensors, *contents.unknowns, *contents.strings]


def _renamed(contents: FileContents, names: Mapping[str, str]) -> FileContents:
    """Return the same contents under other names, and variables in the order of their numbers."""
    return msgspec.structs.replace(
        contents,
        tensors={names[path]: contents.tensors[path] for path in in_order(contents.tensors)},
        unknowns={names[path]: unknown for path, unknown in contents.unknowns.items()},
        strings={names[path]: strings for path, strings in contents.strings.items()},
    )
