"""Names of tensors: paths in the file, in which layers are called as Keras shows them. Pure.

Keras 3 calls the folder of a layer by its class and a number, and its variables by numbers:
`layers/dense_1/vars/0`. The name of the layer is an attribute of `vars`. A folder `optimizer` keeps its name.

Earlier files have a folder for each layer, in it the names of its weights, which begin with the layer's name again:
`model_weights/head/head/kernel:0` is `head/kernel:0`, and `optimizer_weights/adam/...` is `optimizer/adam/...`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

VARS: Final = "vars"
"""The folder of a layer's variables."""

_OPTIMIZER: Final = "optimizer"
_OPTIMIZER_WEIGHTS: Final = "optimizer_weights"

MODEL_WEIGHTS: Final = "model_weights"
"""The folder of all layers in a file with a model, before Keras 3."""

LAYER_NAMES: Final = ("layer_names", "layer_names0")
"""Attributes of a file of weights alone before Keras 3; if there are many layers, the list is in numbered parts."""

is_variable: Final = re.compile(rf"(?:.*/)?{VARS}/[0-9]+").fullmatch
"""Whether a path is a variable as Keras 3 writes it."""


def names_of_variables(paths: Iterable[str], layers: Mapping[str, str]) -> dict[str, str]:
    """Return path to name for Keras 3; `layers` has the path of each layer's folder, and the layer's name.

    If the names of two layers in a folder are equal, all in it are called as their folders.
    """
    shown: dict[str, dict[str, str]] = {}
    folders: dict[str, list[str]] = {}
    for path in paths:
        folder = ""
        for own in path.split("/"):
            inner = f"{folder}/{own}" if folder else own
            name = layers.get(inner, "")
            is_kept = not name or "/" in name or inner == _OPTIMIZER
            shown.setdefault(folder, {})[own] = own if is_kept else name
            folders.setdefault(path, []).append(folder)
            folder = inner
    distinct = {folder for folder, names in shown.items() if len(set(names.values())) == len(names)}
    return {
        path: "/".join(
            shown[folder][own] if folder in distinct else own
            for folder, own in zip(around, path.split("/"), strict=True)
        )
        for path, around in folders.items()
    }


def in_order(paths: Iterable[str]) -> list[str]:
    """Return paths in their order, but variables of a layer by their numbers: HDF5 sorts 10 before 2."""
    folders: dict[str, list[str]] = {}
    for path in paths:
        folders.setdefault(path.rpartition("/")[0] if is_variable(path) else path, []).append(path)
    return [path for inside in folders.values() for path in sorted(inside, key=lambda path: (len(path), path))]


def may_be_legacy(paths: Iterable[str]) -> bool:
    """Say whether paths may be in a file of Keras 2, or of the same form by a later one: each is in a layer."""
    return all("/" in path for path in paths)


def names_of_weights(paths: Iterable[str]) -> dict[str, str]:
    """Return path to name for files of Keras 2: the name of the weight, or with its layer if two would be equal."""
    parts_of = {path: path.split("/") for path in paths}
    is_model = any(parts[0] == MODEL_WEIGHTS for parts in parts_of.values())
    for n_folders in (1, 0):
        names = {path: _name_of(parts, is_model, n_folders) for path, parts in parts_of.items()}
        if len(set(names.values())) == len(names):
            return names
    return {path: path for path in parts_of}


def _name_of(parts: list[str], is_model: bool, n_folders: int) -> str:
    """Return the name of a weight without so many folders above it."""
    if is_model and parts[0] == _OPTIMIZER_WEIGHTS:
        return "/".join([_OPTIMIZER, *parts[1:]])
    below = parts[1:] if is_model and parts[0] == MODEL_WEIGHTS else parts
    return "/".join(below[n_folders:] if len(below) > n_folders + 1 else below)


def paths_of_variables(names: Iterable[str], layers: Mapping[str, str]) -> dict[str, str]:
    """Return name to path: the reverse of `names_of_variables`, or the names themselves if that is not certain."""
    own: dict[str, dict[str, str]] = {}
    for folder, name in layers.items():
        around, _, last = folder.rpartition("/")
        if folder != _OPTIMIZER and name and "/" not in name:
            own.setdefault(around, {})[name] = last
    paths: dict[str, str] = {}
    for name in names:
        folder = ""
        for shown in name.split("/"):
            part = own.get(folder, {}).get(shown, shown)
            folder = f"{folder}/{part}" if folder else part
        paths[name] = folder
    again = names_of_variables(paths.values(), layers)
    is_certain = len(again) == len(paths) and all(again[path] == name for name, path in paths.items())
    return paths if is_certain else {name: name for name in paths}
