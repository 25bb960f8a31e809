"""Loaded tensors and arrays moved into memory of their own."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import torch


def own_memory(value: Any) -> Any:
    """Return nested data with copies of all CPU tensors and arrays.

    Loaded tensors may be views of a mapped file, at any address. An optimizer that uses them for days needs memory
    that does not depend on a file, and that is aligned as torch aligns it: the last bits of sums depend on that.
    """
    return _copied(value, {})


def _copied(value: Any, copies: dict[int, Any]) -> Any:
    """Copy each object once: nested containers that share parts could otherwise take exponential time."""
    if id(value) not in copies:
        copies[id(value)] = _copy(value, copies)
    return copies[id(value)]


def _copy(value: Any, copies: dict[int, Any]) -> Any:
    kind = type(value)
    if isinstance(value, torch.Tensor):
        return value.detach().clone() if value.device.type == "cpu" else value
    if kind is np.ndarray:
        return value.copy(order="K")
    if kind is dict or kind is OrderedDict:
        copy = kind((key, _copied(item, copies)) for key, item in value.items())
        if kind is OrderedDict:
            vars(copy).update(vars(value))
        return copy
    if kind is list or kind is tuple:
        return kind(_copied(item, copies) for item in value)
    return value
