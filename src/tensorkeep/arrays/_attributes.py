"""What a library keeps of a dense tensor beside its elements: members of the tensor's node in a saved state. Pure.

"class": "Parameter", "Buffer" …    how modules of torch and Paddle hold it; "Variable" of TensorFlow
"grad": true                        it requires gradients, or is a variable that is trained
"weak": true                        its dtype is weak: jax lets it give way to the dtypes it meets
"order": [0, 2, 3, 1]               dimensions from the outermost to the innermost in memory, if the tensor has no
                                    gaps there but is not in C order (here: channels last)

Members that would say the usual are left out, so most tensors have none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tensorkeep.errors import FormatError

CLASSES: Final = ("Parameter", "Buffer", "Variable")
"""How modules hold tensors."""


def dense_order(shape: Sequence[int], strides: Sequence[int], step: int = 1) -> list[int] | None:
    """Return the order of the dimensions in memory; None for C order, and for a tensor with gaps or overlaps."""
    order = sorted(range(len(shape)), key=lambda place: -strides[place])
    if 0 in shape or order == list(range(len(shape))):
        return None
    expected = step
    for place in reversed(order):
        if shape[place] != 1 and strides[place] != expected:
            return None
        expected *= shape[place]
    return order


def check_attributes(attributes: Mapping[str, Any], ndim: int) -> tuple[str | None, bool, list[int] | None]:
    """Return class, grad and order, checked; other members are ignored."""
    name, grad, order = attributes.get("class"), attributes.get("grad", False), attributes.get("order")
    if name is not None and name not in CLASSES:
        raise FormatError("a tensor has an unknown class", expected=" or ".join(CLASSES), found=repr(name))
    if type(grad) is not bool:
        raise FormatError("a tensor's `grad` is malformed", expected="true or false", found=repr(grad))
    if order is not None and not _is_permutation(order, ndim):
        raise FormatError(
            "a tensor's `order` is malformed", expected=f"each of its {ndim} dimensions once", found=repr(order)
        )
    return name, grad, order


def _is_permutation(order: Any, ndim: int) -> bool:
    if type(order) is not list or len(order) != ndim or any(type(place) is not int for place in order):
        return False
    return sorted(order) == list(range(ndim))
