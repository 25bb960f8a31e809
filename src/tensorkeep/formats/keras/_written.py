"""The way back: where tensors are to be written so that Keras finds its weights. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate

import msgspec

from tensorkeep.formats.hdf5 import ROOT
from tensorkeep.formats.keras._names import (
    LAYER_NAMES,
    VARS,
    is_variable,
    may_be_legacy,
    names_of_variables,
    names_of_weights,
    paths_of_variables,
)


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
    elif may_be_legacy(written) and not attributes.get(ROOT, {}).keys().isdisjoint(LAYER_NAMES):
        again = names_of_weights(written)
    return Written(paths, {name: again[path] for name, path in paths.items()}, attributes, groups)
