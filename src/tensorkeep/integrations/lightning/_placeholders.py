"""Placeholders in a checkpoint of Lightning: they name objects of classes that were not passed."""

from __future__ import annotations

from typing import Any, Final

from tensorkeep.errors import UnsupportedError
from tensorkeep.formats.pickles import Unknown
from tensorkeep.runs import find_placeholder
from tensorkeep.state import NamedData

VERSION: Final = "pytorch-lightning_version"
"""Key that every checkpoint of a Trainer has."""

_HYPER_PARAMETERS: Final = ("hparams", "hyper_parameters", "module_arguments")
"""Parts of keys whose values a Trainer does not use on resuming: they are arguments of a new module."""


def refuse_placeholder_states(checkpoint: Any, path: str) -> None:
    """Refuse a checkpoint of a Trainer that would give a callback or a hook a placeholder instead of its object."""
    if not isinstance(checkpoint, dict) or VERSION not in checkpoint:
        return
    for key, value in checkpoint.items():
        if not any(name in str(key) for name in _HYPER_PARAMETERS):
            refuse_placeholders(
                value, str(key), path, "Pass its class to the plugin: TensorkeepCheckpointIO(classes=[{}])"
            )


def refuse_placeholders(value: Any, place: str, path: str, advice: str) -> None:
    """Refuse nested data that holds a placeholder; `{}` in the advice is the name of its class."""
    found = find_placeholder(value, place)
    if found is None:
        return
    where, item = found
    if isinstance(item, NamedData):
        name = item.class_name
    else:
        name = item.qualified_name if isinstance(item, Unknown) else repr(item)
    raise UnsupportedError(
        f"`{where}` was saved as an object, which is not created on loading",
        path=path,
        found=name,
        hint=advice.format(name.replace(":", ".").rpartition(".")[2]),
    )
