"""PaddlePaddle's tensors outside of state dicts: calls of `tuple` with a name and an array, and of `eval`.

Paddle has no array type of its own: bfloat16 is NumPy's uint16, which means nothing else to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tensorkeep.formats.pickles.values import ArrayRecord, DtypeRecord, Unknown

_STORED_BFLOAT16: Final = "<u2"


def paddle_array(array: ArrayRecord) -> ArrayRecord:
    """Return an array that holds a tensor of Paddle's, with the dtype of the tensor."""
    if array.dtype.text != _STORED_BFLOAT16:
        return array
    return ArrayRecord(DtypeRecord("bfloat16"), array.shape, array.data, is_fortran=array.is_fortran)


def _named_tensor(*args: Any) -> Any:
    """Return the array of `tuple((name, array))`, since a tensor has its name from where it is in the value."""
    pair = args[0] if len(args) == 1 else None
    if type(pair) is tuple and len(pair) == 2 and type(pair[0]) is str and _is_complete(pair[1]):
        return paddle_array(pair[1])
    return Unknown("builtins", "tuple", args)


def _is_complete(value: Any) -> bool:
    return type(value) is ArrayRecord and bool(value.dtype.text) and not value.is_scalar


CALLS: dict[tuple[str, str], Callable[..., Any] | None] = {("builtins", "tuple"): _named_tensor}
"""Module and name to the function of ours that a call is replaced by."""
