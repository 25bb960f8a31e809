"""NumPy's arrays of strings of any length (`StringDType`) as arrays that a file can hold, and back.

kind           parts                              settings
strings        lengths: I64 of the same shape,    coerce: whether other values become text when they are assigned
                 -1 for a missing element         missing: what missing elements are (None, a float or text),
               data: U8, all texts in UTF-8,        if the dtype has that
                 one after the other in C order
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tensorkeep.arrays._base import EncodedObject

_MISSING: Final = -1
_MARKS: Final = frozenset({type(None), float, str})
"""Types of the objects for missing elements that a file can hold."""


def encode_strings(array: npt.NDArray[Any]) -> EncodedObject | None:
    """Return an array of strings as lengths and text; None if its object for missing elements is not plain data."""
    dtype: Any = array.dtype
    settings = {"coerce": dtype.coerce}
    if hasattr(dtype, "na_object"):
        if type(dtype.na_object) not in _MARKS:
            return None
        settings["missing"] = dtype.na_object
    texts = [item.encode() if type(item) is str else None for item in array.flat]
    lengths = np.array([_MISSING if text is None else len(text) for text in texts], np.int64)
    data = np.frombuffer(b"".join(text for text in texts if text), np.uint8)
    return EncodedObject("numpy", "strings", {"lengths": lengths.reshape(array.shape), "data": data}, settings)


def decode_strings(parts: Mapping[str, Any], settings: Mapping[str, Any]) -> npt.NDArray[Any]:
    """Return the array; errors of Python and NumPy say what does not fit."""
    lengths, data = parts["lengths"], parts["data"]
    if lengths.dtype != np.int64 or data.dtype != np.uint8 or data.ndim != 1:
        raise TypeError(f"lengths are {lengths.dtype}, data is {data.dtype} of shape {data.shape}")
    if type(settings["coerce"]) is not bool or type(settings.get("missing")) not in _MARKS:
        raise TypeError("coerce is not a bool, or missing not None, a float or text")
    mark: Any = settings.get("missing")
    if type(mark) is float and isnan(mark):
        mark = np.nan  # NumPy's own object: some code compares with `is`
    may_miss = "missing" in settings and type(mark) is not str
    counts = lengths.ravel().tolist()
    if min(counts, default=0) < (_MISSING if may_miss else 0) or sum(max(n, 0) for n in counts) != data.size:
        raise ValueError(f"lengths do not fit {data.size} bytes of text")
    text, end, items = data.tobytes(), 0, []
    for count in counts:
        items.append(mark if count == _MISSING else text[end : end + count].decode())
        end += max(count, 0)
    options = {"na_object": mark} if "missing" in settings else {}
    dtype: Any = np.dtypes.StringDType(coerce=settings["coerce"], **options)
    return np.array(items, dtype).reshape(lengths.shape)
