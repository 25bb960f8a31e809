"""What a library says of a dense tensor beside its elements: the marks of a leaf of a state. Pure.

"class": "Parameter" or "Buffer"    what torch's modules call it
"grad": true                        gradients are wanted
"order": [0, 2, 3, 1]               dimensions from the outermost to the innermost in memory, where the tensor is
                                    dense there but not in C order (here: channels last)

Only what is needed is said: mostly nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensorkeep.errors import FormatError

CLASSES = ("Parameter", "Buffer")
"""What torch's modules call their tensors."""


def dense_order(shape: Sequence[int], strides: Sequence[int], step: int = 1) -> list[int] | None:
    """Return the order of the dimensions in memory."""
    order = sorted(range(len(shape)), key=lambda place: -strides[place])
    if 0 in shape or order == list(range(len(shape))):
        return None
    expected = step
    for place in reversed(order):
        if shape[place] != 1 and strides[place] != expected:
            return None
        expected *= shape[place]
    return order


def check_marks(marks: Mapping[str, Any], ndim: int) -> tuple[str | None, bool, list[int] | None]:
    """Check the marks of a tensor. Other members than those of marks are passed over."""
    name, grad, order = marks.get("class"), marks.get("grad", False), marks.get("order")
    if name is not None and name not in CLASSES:
        raise FormatError("a tensor has a class that none has", expected=" or ".join(CLASSES), found=repr(name))
    if type(grad) is not bool:
        raise FormatError("a tensor's `grad` is malformed", expected="true", found=repr(grad))
    if order is not None and not _is_permutation(order, ndim):
        raise FormatError(
            "a tensor's `order` is malformed", expected=f"each of its {ndim} dimensions once", found=repr(order)
        )
    return name, grad, order


def _is_permutation(order: Any, ndim: int) -> bool:
    if type(order) is not list or len(order) != ndim or any(type(place) is not int for place in order):
        return False
    return sorted(order) == list(range(ndim))
