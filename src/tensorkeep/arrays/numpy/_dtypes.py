"""NumPy's dtypes: those of the format, and any other as plain data and back.

    float64, little endian       "<f8"                 (NumPy's own text, with the byte order)
    bfloat16, int4               "bfloat16", "int4"    (ml_dtypes, by name)
    structured                   {"names": ("x", "y"), "formats": ("<f4", "|S3"), "offsets": (0, 4), "itemsize": 7}
                                 and "aligned": True if it is laid out as C would, "record": True for a `numpy.record`
    a field of several elements  {"base": "<f4", "shape": (2, 3)}

Dtypes with titles or metadata and variable-width strings have no such form.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tensorkeep.dtypes import BY_NUMPY, DType
from tensorkeep.errors import DtypeError, FormatError

_OWN_TEXT: Final = re.compile(r"[<>|][?biufcSUVO]\d{0,10}|[<>][mM]8(\[\d{0,9}[a-zA-Zμ]{1,2}\])?")
_FROM_ANOTHER_LIBRARY: Final = 2
"""`numpy.dtype.isbuiltin` of the dtypes of ml_dtypes."""

OWN_DTYPES: Final = frozenset(np.dtype(row.numpy) for row in BY_NUMPY.values() if row.is_in_numpy)
"""The dtypes of the format that NumPy itself has, in the machine's byte order."""

_MAX_DEPTH: Final = 32
"""Dtypes nested in dtypes; C code has a few."""


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """Return NumPy's dtype, in the machine's byte order."""
    if not dtype.numpy:
        raise DtypeError(
            f"NumPy has no dtype for {dtype.name}", found=dtype.name, hint='Load it with framework="torch"'
        )
    if dtype.is_in_numpy:
        return np.dtype(dtype.numpy)
    import ml_dtypes  # 10 ms, and only the narrow floats need it

    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, dtype.numpy))
    return found


@lru_cache(maxsize=256)
def known_row(dtype: np.dtype[Any]) -> DType | None:
    """Return the format's dtype for one of NumPy, or None; NumPy's names take Python code to make."""
    return BY_NUMPY.get(dtype.name)


def is_plain(array: npt.NDArray[Any]) -> bool:
    """Say whether a file can hold the elements of an array as they are."""
    dtype = array.dtype
    if dtype.isbuiltin == _FROM_ANOTHER_LIBRARY:
        return dtype.isnative and dtype.name in BY_NUMPY
    return dtype in OWN_DTYPES


def described(dtype: np.dtype[Any]) -> Any | None:
    """Return a dtype as plain data; None if it has no such form."""
    if dtype.metadata is not None or dtype.kind == "T":
        return None
    if dtype.subdtype is not None:
        base = described(dtype.subdtype[0])
        return None if base is None else {"base": base, "shape": dtype.subdtype[1]}
    if dtype.fields is not None:
        return _described_fields(dtype)
    if dtype.type is np.record:
        return None
    if dtype.isbuiltin != _FROM_ANOTHER_LIBRARY:
        return dtype.str if _OWN_TEXT.fullmatch(dtype.str) else None
    return dtype.name if _narrow_dtypes().get(dtype.name) == dtype else None


def _described_fields(dtype: np.dtype[Any]) -> dict[str, Any] | None:
    found: Any = dtype.fields
    fields = [found[name] for name in dtype.names or ()]
    formats = tuple(described(field[0]) for field in fields)
    if None in formats or any(len(field) > 2 for field in fields):
        return None
    description = {
        "names": dtype.names,
        "formats": formats,
        "offsets": tuple(field[1] for field in fields),
        "itemsize": dtype.itemsize,
    }
    marks = {"aligned": dtype.isalignedstruct, "record": dtype.type is np.record}
    return description | {name: True for name, has in marks.items() if has}


@cache
def _narrow_dtypes() -> dict[str, np.dtype[Any]]:
    """Return the dtypes of ml_dtypes by name, which NumPy knows only once ml_dtypes is imported."""
    import ml_dtypes

    classes = [item for item in vars(ml_dtypes).values() if isinstance(item, type) and issubclass(item, np.generic)]
    return {np.dtype(item).name: np.dtype(item) for item in classes}


def dtype_of(description: Any, depth: int = 0) -> np.dtype[Any]:
    """Return the dtype that was described."""
    try:
        return _made(description, depth)
    except FormatError:
        raise
    except (TypeError, ValueError, KeyError, OverflowError, MemoryError) as error:
        raise FormatError("a NumPy dtype is malformed", found=f"{error!s:.200}") from None


def _made(description: Any, depth: int) -> np.dtype[Any]:
    if depth > _MAX_DEPTH:
        raise ValueError("dtypes are nested too deep")
    if type(description) is str:
        return np.dtype(description) if _OWN_TEXT.fullmatch(description) else _narrow_dtypes()[description]
    if type(description) is not dict:
        raise TypeError(f"a {type(description).__name__}")
    if "base" in description:
        return np.dtype((dtype_of(description["base"], depth + 1), tuple(_naturals(description["shape"]))))
    names, formats = description["names"], description["formats"]
    if any(type(items) not in {list, tuple} for items in (names, formats)):
        raise TypeError("names and formats are not lists")
    dtype: np.dtype[Any] = np.dtype(
        {
            "names": list(names),
            "formats": [dtype_of(item, depth + 1) for item in formats],
            "offsets": _naturals(description["offsets"]),
            "itemsize": _naturals([description["itemsize"]])[0],
        },
        align=description.get("aligned") is True,
    )
    return np.dtype((np.record, dtype)) if description.get("record") is True else dtype


def _naturals(items: Any) -> list[int]:
    if type(items) not in {list, tuple} or any(type(item) is not int or item < 0 for item in items):
        raise TypeError(f"{items!r:.100} instead of natural numbers")
    return list(items)
