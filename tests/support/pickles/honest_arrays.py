"""Values of NumPy that people save: arrays and numbers of every dtype, in every order, and what is made of them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import torch

NUMPY_DTYPES = (
    *(
        "?",
        "i1",
        "i2",
        "<i4",
        "i8",
        "u1",
        "u2",
        "u4",
        "u8",
        "f2",
        "f4",
        "f8",
        "c8",
        "c16",
        "g",
        "G",
        ">f4",
        ">i8",
        ">c16",
    ),
    *("S7", "U3", ">U3", "V5", "M8[ns]", "M8[D]", "m8[25s]", ">m8[us]", "M8", "m8"),
)
ML_DTYPES = (
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e8m0fnu",
    "float4_e2m1fn",
    "int4",
    "uint4",
    "float6_e2m3fn",
)


def _array(dtype: Any, shape: tuple[int, ...] = (2, 3)) -> np.ndarray[Any, Any]:
    numpy_dtype = np.dtype(dtype)
    if numpy_dtype.kind in "SU":
        texts = np.array(["", "a", "bcd", "é" if numpy_dtype.kind == "U" else "e", "x\0y", "zz"][: math.prod(shape)])
        return texts.astype(numpy_dtype).reshape(shape)
    n_bytes = math.prod(shape) * numpy_dtype.itemsize
    raw = np.arange(n_bytes, dtype=np.uint8) % (2 if numpy_dtype.kind == "b" else 13)
    return raw.view(numpy_dtype).reshape(shape)


_STRUCTURED = np.array([(1, 2.5, b"ab"), (3, 4.5, b"c")], dtype=[("n", "<i4"), ("x", ">f8"), ("s", "S2")])
ARRAYS: dict[str, Callable[[], Any]] = {
    **{f"array of {dtype}": functools.partial(_array, dtype) for dtype in NUMPY_DTYPES},
    **{f"number of {dtype}": (lambda d: lambda: _array(d)[1, 1])(dtype) for dtype in NUMPY_DTYPES},
    **{f"array of {name}": functools.partial(_array, getattr(ml_dtypes, name)) for name in ML_DTYPES},
    **{f"number of {name}": (lambda d: lambda: _array(d)[1, 1])(getattr(ml_dtypes, name)) for name in ML_DTYPES},
    **{f"dtype {dtype}": functools.partial(np.dtype, dtype) for dtype in NUMPY_DTYPES},
    **{f"dtype {name}": (lambda d: lambda: np.dtype(d))(getattr(ml_dtypes, name)) for name in ML_DTYPES},
    "Fortran order": lambda: np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "Fortran order of int16": lambda: np.asfortranarray(np.arange(24, dtype="i2").reshape(2, 3, 4)),
    "not contiguous": lambda: np.arange(24.0).reshape(4, 6)[::2, 1::2],
    "no dimensions": lambda: np.array(2.5),
    "empty array": lambda: np.empty((0, 3), np.float32),
    "arrays in a dict": lambda: {"a": np.arange(3), "b": [np.ones((2, 2), np.float32), torch.ones(2)]},
    "one array twice": lambda: [*[np.arange(3)] * 2],
    "objects": lambda: np.array([1, "a", None, [2, 3]], dtype=object),
    "objects with tensors": lambda: np.array([torch.ones(2), "a"], dtype=object),
    "objects in two dimensions": lambda: np.array([[1, "a"], [None, 2.5]], dtype=object),
    "objects of no dimension": lambda: np.array({"a": 1}, dtype=object),
    "structured": lambda: _STRUCTURED,
    "structured number": lambda: _STRUCTURED[0],
    "structured dtype": lambda: _STRUCTURED.dtype,
    "structured within structured": lambda: np.zeros(2, [("a", [("b", "f4"), ("c", "i2", (3,))]), ("d", "?")]),
    "aligned": lambda: np.zeros(2, np.dtype([("a", "u1"), ("b", "f8")], align=True)),
    "matrix": lambda: np.matrix([[1, 2], [3, 4]]),
    "masked": lambda: np.ma.masked_array([1.0, 2.0], mask=[True, False], fill_value=9.0),
    "record array": lambda: np.rec.fromrecords([(1, 2.0)], names="a,b"),
    "scalar types": lambda: [np.float32, np.int64, np.bool_, np.ndarray, np.dtype],
    "ufunc": lambda: np.add,
}
"""What it is, to what makes it: values of NumPy."""
