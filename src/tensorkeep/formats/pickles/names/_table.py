"""The closed table: every name that is known to be data. Nothing can add to it at run time."""

from __future__ import annotations

from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections.abc import Callable
from typing import Any

from tensorkeep.formats.pickles.names import _numpy as _names_numpy
from tensorkeep.formats.pickles.names import _paddle as _names_paddle
from tensorkeep.formats.pickles.names import _python as _names_python
from tensorkeep.formats.pickles.names import _torch as _names_torch
from tensorkeep.formats.pickles.names._torch_labels import LABELS
from tensorkeep.formats.pickles.values import Label, Name

_CALLS: dict[tuple[str, str], Callable[..., Any] | None] = (
    _names_python.CALLS | _names_numpy.CALLS | _names_torch.CALLS | _names_paddle.CALLS
)


def known_name(module: str, name: str) -> Name | Label | None:
    """Return what stands for a name of the table, or None."""
    key = (module, name)
    if key in _CALLS:
        return Name(module, name, _CALLS[key], is_cheap=_CALLS[key] in _names_torch.CHEAP)
    return LABELS.get(key)


def python3_name(module: str, name: str) -> tuple[str, str]:
    """Translate a name of Python 2, as Python's own reader does below protocol 3."""
    if (module, name) in NAME_MAPPING:
        return NAME_MAPPING[module, name]
    return IMPORT_MAPPING.get(module, module), name
