"""Values of a checkpoint that stand for objects of classes which nobody passed, where the object is needed."""

from __future__ import annotations

from typing import Any, Final

from tensorkeep.errors import UnsupportedError
from tensorkeep.formats.pickles import Unknown
from tensorkeep.state import NamedData

_SHOWN: Final = 200
"""Characters of a place in a message."""

_VERSION: Final = "pytorch-lightning_version"
_HYPER_PARAMETERS: Final = ("hparams", "hyper_parameters", "module_arguments")
"""In the keys of what no Trainer goes on with: it makes a new module, with arguments of its own."""


def refuse_inert_states(checkpoint: Any, path: str) -> None:
    """Refuse a checkpoint of a Trainer that would give a callback or a hook what only stands for its object."""
    if not isinstance(checkpoint, dict) or _VERSION not in checkpoint:
        return
    for key, value in checkpoint.items():
        if not any(name in str(key) for name in _HYPER_PARAMETERS):
            refuse_placeholders(
                value, str(key), path, "Pass its class to the plugin: TensorkeepCheckpointIO(classes=[{}])"
            )


def refuse_placeholders(value: Any, place: str, path: str, advice: str) -> None:
    """Refuse nested data in which something only stands for an object."""
    pending, seen = [(place, value)], set()
    while pending:
        where, item = pending.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, NamedData | Unknown):
            name = item.class_name if isinstance(item, NamedData) else item.qualified_name
            raise UnsupportedError(
                f"`{where}` was saved as an object, and is not made again by itself",
                path=path,
                found=name,
                hint=advice.format(name.replace(":", ".").rpartition(".")[2]),
            )
        children = item.items() if isinstance(item, dict) else enumerate(item) if type(item) in {list, tuple} else ()
        pending += [(f"{where}.{key}"[:_SHOWN], child) for key, child in children]
