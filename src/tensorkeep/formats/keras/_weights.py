"""HDF5 files of weights: where the tensors are, and what they are called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate, chain
from typing import Any, Final

import msgspec

from tensorkeep.formats._contents import FileContents
from tensorkeep.formats.hdf5 import ROOT, Hdf5File
from tensorkeep.formats.keras._names import (
    VARS,
    is_variable,
    may_be_legacy,
    names_of_variables,
    names_of_weights,
    paths_of_variables,
)
from tensorkeep.formats.keras._shard_index import ShardIndex
from tensorkeep.transport import ByteSource

_LAYER_NAMES: Final = ("layer_names", "layer_names0")
"""Attributes of the root group of weights alone; if there are many layers, the list is cut into numbered parts."""


def parse_weights(source: ByteSource) -> FileContents:
    """Read the headers of an HDF5 file; one that Keras did not write keeps its own names."""
    file = Hdf5File(source)
    contents = file.contents()
    paths = [*contents.tensors, *contents.unknowns]
    if any(map(is_variable, paths)):
        return _renamed(contents, names_of_variables(paths, _layers_of([file])))
    if may_be_legacy(paths) and _is_legacy(file):
        return _renamed(contents, names_of_weights(paths))
    return contents


class Written(msgspec.Struct, frozen=True):
    """How tensors and texts are to be written, so that Keras finds its weights, and this reader the same names.

    Attributes:
        paths: Name of each tensor to its path.
        names: Name of each tensor to its name when it is read again.
        attributes: Path of a group or dataset to its attributes by name.
        groups: Paths of groups that must be there even if they are empty, for the names of layers.
    """

    paths: Mapping[str, str]
    names: Mapping[str, str]
    attributes: Mapping[str, Mapping[str, str]]
    groups: tuple[str, ...]


def write_as(names: Iterable[str], metadata: Mapping[str, str]) -> Written:
    """Return how to write tensors, given the metadata of a file that was read, which has the names of layers."""
    attributes: dict[str, dict[str, str]] = {}
    for key, text in metadata.items():
        path, _, name = key.rpartition("@")
        attributes.setdefault(path or ROOT, {})[name] = text
    folders = {path.rpartition("/")[0]: path for path in attributes if path.rpartition("/")[2] == VARS}
    layers = {folder: attributes[path]["name"] for folder, path in folders.items() if "name" in attributes[path]}
    paths = paths_of_variables(names, layers)
    written = list(paths.values())
    again = dict(zip(written, written, strict=True))
    groups: tuple[str, ...] = ()
    if any(map(is_variable, written)):
        inside = {folder for path in written for folder in accumulate(path.split("/")[:-1], "{}/{}".format)}
        groups = tuple(folders[folder] for folder in layers if folder in inside and folders[folder] not in again)
        again = names_of_variables(written, layers)
    elif may_be_legacy(written) and not attributes.get(ROOT, {}).keys().isdisjoint(_LAYER_NAMES):
        again = names_of_weights(written)
    return Written(paths, {name: again[path] for name, path in paths.items()}, attributes, groups)


def parse_shards(index: ShardIndex, sources: Mapping[str, ByteSource]) -> dict[str, FileContents]:
    """Read the headers of all shards of a model: a layer may be in several, and has its name in the first."""
    files = {name: Hdf5File(source) for name, source in sources.items()}
    found = {name: file.contents() for name, file in files.items()}
    paths = {name: [*contents.tensors, *contents.unknowns] for name, contents in found.items()}
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
    return "model_weights" in file.tree.groups or not file.root_attributes().keys().isdisjoint(_LAYER_NAMES)


def _renamed(contents: FileContents, names: Mapping[str, str]) -> FileContents:
    tensors = {names[path]: place for path, place in contents.tensors.items()}
    unknowns: dict[str, Any] = {names[path]: unknown for path, unknown in contents.unknowns.items()}
    return msgspec.structs.replace(contents, tensors=tensors, unknowns=unknowns)
