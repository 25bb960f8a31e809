"""Weak dtypes, such as Python's numbers have: jax lets them give way to the dtypes they meet (imports jax).

Jax has no public way to make the dtype of an array weak: it makes a weak array of a Python number only.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import jax

_convert: Any = None
with suppress(ImportError):  # in another version of jax
    from jax._src.lax.lax import _convert_element_type as _convert


def made_weak(array: Any) -> Any:
    """Return an array with a weak dtype; with other versions of jax, only one of a single element."""
    if _convert is not None:
        return _convert(array, weak_type=True)
    number = jax.numpy.asarray(array.item()) if array.ndim == 0 else array
    return number if number.dtype == array.dtype else array
