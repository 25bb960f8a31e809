"""Tensors and arrays of a checkpoint in memory of their own."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import torch


def own_memory(value: Any) -> Any:
    """Return the same nested data with copies of the tensors on the CPU and of arrays.

    What is loaded may lie over a mapped file, at any address. An object that goes on with it for days needs memory
    that no file can take away; and memory as torch aligns it, since sums depend on the alignment in their last bits.
    """
    return _copied(value, {})


def _copied(value: Any, copies: dict[int, Any]) -> Any:
    """Copy what is not copied yet: a container in many places would take as many steps otherwise."""
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
