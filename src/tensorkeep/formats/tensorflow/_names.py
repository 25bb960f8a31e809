"""Names of tensors: the keys of a checkpoint without what says that they are values of variables. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

OBJECT_GRAPH_KEY: Final = "_CHECKPOINTABLE_OBJECT_GRAPH"
"""Key of the description of the objects that were saved."""

VALUE: Final = "VARIABLE_VALUE"
VALUE_SUFFIX: Final = f"/.ATTRIBUTES/{VALUE}"
"""End of the keys of variables' values in checkpoints of objects."""

_ESCAPES: Final = {"..": ".", ".S": "/"}
_replace_escapes = re.compile(r"\.\.|\.S").sub


def key_of(name: str) -> str:
    """Return the key of a variable's value, whose name is the path of objects that leads to it."""
    return "/".join(part.replace(".", "..") for part in name.split("/")) + VALUE_SUFFIX


def names_of(keys: Iterable[str]) -> dict[str, str]:
    """Return name to key. Where two tensors would have the same name, the second keeps its key."""
    known = dict.fromkeys(keys)
    found: dict[str, str] = {}
    for key in known:
        if not key.endswith(VALUE_SUFFIX):
            found[key] = key
            continue
        name = key.removesuffix(VALUE_SUFFIX)
        if "." in name:
            name = _replace_escapes(lambda match: _ESCAPES[match[0]], name)
        found[key if name in found or name in known or not name else name] = key
    return found
