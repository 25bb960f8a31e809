"""Whether a saved leaf is one that a leaf of the template can be, judged before anything is read."""

from __future__ import annotations

from functools import cache
from math import isfinite
from typing import Any, Final

import jax
import numpy as np

from tensorkeep.arrays import is_tensor, plain_library, tensor_to_write
from tensorkeep.arrays.jax.memory import ARRAY_CLASS
from tensorkeep.dtypes import ALL_BY_NAME
from tensorkeep.state import NamedData
from tensorkeep.tensors import LazyTensor

Form = tuple[str, tuple[int, ...]]
"""Dtype, as NumPy or jax call it, and shape."""

_ARRAYS = frozenset({ARRAY_CLASS, jax.ShapeDtypeStruct, np.ndarray})
"""Classes of most leaves: of these, nothing needs to be asked."""

_NUMBERS = (bool, int, float, complex, np.generic)

_LISTED_BITS: Final = 64
"""Bits of whole numbers that messages have in full."""


def is_array(leaf: Any) -> bool:
    """Say whether a leaf of a template is an array, or describes one, like a `jax.ShapeDtypeStruct`."""
    if type(leaf) in _ARRAYS:
        return True
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype") and not isinstance(leaf, np.generic)


def form_of(leaf: Any) -> Form | None:
    """Return dtype and shape of an array, lazy or not; None for anything else."""
    if type(leaf) in _ARRAYS:
        return _name_of(leaf.dtype), leaf.shape
    if isinstance(leaf, LazyTensor):
        dtype = ALL_BY_NAME.get(leaf.dtype)
        return (dtype.numpy if dtype is not None and dtype.numpy else leaf.dtype), leaf.shape
    if is_array(leaf) and (isinstance(leaf, jax.Array | jax.ShapeDtypeStruct | np.ndarray) or not is_tensor(leaf)):
        return _name_of(leaf.dtype), tuple(leaf.shape)
    if plain_library(leaf) is not None:  # of another library
        described = tensor_to_write(leaf, "")
        return described.dtype.numpy or described.dtype.name, described.shape
    return None


@cache
def _name_of(dtype: Any) -> str:
    return str(dtype)


def fits(template: Any, saved: Any) -> bool:
    """Say whether a saved leaf can take the place of a template's."""
    if template is saved:
        return True
    if isinstance(template, _NUMBERS):
        return _kind_of_number(saved) == _kind_of_number(template)
    if not is_array(template):
        if isinstance(saved, NamedData):
            return saved.class_name == f"{type(template).__module__}:{type(template).__qualname__}"
        return type(saved) is type(template)
    wanted = form_of(template)
    if isinstance(saved, _NUMBERS):
        return wanted == _form_of_number(saved) and _holds(template.dtype, saved)
    return wanted == form_of(saved)


def _kind_of_number(leaf: Any) -> str | None:
    """Return which of Python's numbers a leaf is, or an array of no dimensions is like."""
    if isinstance(leaf, bool | int | float | complex) and not isinstance(leaf, np.generic):
        return type(leaf).__name__
    dtype, shape = (str(leaf.dtype), ()) if isinstance(leaf, np.generic) else form_of(leaf) or ("", None)
    if shape != ():
        return None
    kinds = {"bool": "bool", "int": "int", "uint": "int", "float": "float", "bfloat": "float", "complex": "complex"}
    return next((kind for start, kind in kinds.items() if dtype.startswith(start)), None)


def _form_of_number(number: Any) -> Form:
    """Return dtype and shape of the array that jax makes of a number; NumPy's numbers keep their dtypes."""
    if isinstance(number, np.generic):
        return str(number.dtype), ()
    return str(jax.dtypes.canonicalize_dtype(jax.dtypes.result_type(type(number)))), ()


def _holds(dtype: Any, number: Any) -> bool:
    """Say whether a number of the kind of a dtype is within its range; jax would make a large float infinite."""
    if isinstance(number, bool | np.generic):
        return True
    if isinstance(number, int):
        return int(np.iinfo(dtype).min) <= number <= int(np.iinfo(dtype).max)
    highest = float(np.finfo(dtype).max)
    return all(abs(part) <= highest or not isfinite(part) for part in (number.real, number.imag))


def words_for_saved(leaf: Any) -> str:
    """Describe what was saved, for messages: a number has its value, which may be what does not fit."""
    if type(leaf) not in (int, float, complex):
        return words_for_leaf(leaf)
    if isinstance(leaf, int) and leaf.bit_length() > _LISTED_BITS:
        return f"int of {leaf.bit_length()} bits"
    return f"{type(leaf).__name__} {leaf!r}"


def words_for_leaf(leaf: Any) -> str:
    """Describe a leaf, for messages."""
    form = form_of(leaf)
    if form is None:
        return leaf.class_name if isinstance(leaf, NamedData) else type(leaf).__name__
    return f"{form[0]} {list(form[1])}"
