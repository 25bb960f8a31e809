"""The dtype table against the libraries that it names and against the reference."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

from fuzz.header_verdicts import reference_dtypes
from tensorkeep.arrays.numpy._dtypes import numpy_dtype
from tensorkeep.arrays.torch._dense import torch_dtype
from tensorkeep.dtypes import ALL_BY_NAME, BY_NAME, BY_NUMPY, BY_TORCH, DTYPES, FOREIGN_DTYPES, DType, find_dtype
from tensorkeep.errors import DtypeError

BY_ID = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)


def test_names_and_order_are_those_of_the_reference() -> None:
    assert tuple(dtype.name for dtype in DTYPES) == reference_dtypes()
    assert [dtype.rank for dtype in DTYPES] == list(range(22))


def test_tables_have_every_row_once() -> None:
    assert list(BY_NAME.values()) == list(DTYPES)
    assert list(BY_NUMPY.values()) == list(DTYPES)
    assert list(BY_TORCH.values()) == [dtype for dtype in DTYPES if dtype.torch]
    assert {dtype.name for dtype in DTYPES if not dtype.torch} == {"F6_E2M3", "F6_E3M2"}
    assert list(ALL_BY_NAME.values()) == [*DTYPES, *FOREIGN_DTYPES]


def test_dtypes_that_the_format_lacks_stand_apart() -> None:
    assert [dtype.name for dtype in FOREIGN_DTYPES] == ["C32", "C128"]
    for dtype in FOREIGN_DTYPES:
        found = torch_dtype(dtype)
        assert str(found) == f"torch.{dtype.torch}"
        assert torch.empty(1, dtype=found).element_size() == dtype.itemsize == np.dtype(dtype.bits_name).itemsize
        assert not BY_NAME.keys() & {dtype.name}
        assert not BY_NUMPY.keys() & {dtype.numpy}
        assert not BY_TORCH.keys() & {dtype.torch}
        for spelling in (dtype.name, f"torch.{dtype.torch}", found):
            with pytest.raises(DtypeError, match="no such dtype"):
                find_dtype(spelling)
    assert numpy_dtype(ALL_BY_NAME["C128"]) == np.complex128
    with pytest.raises(DtypeError, match="NumPy has no dtype for C32"):
        numpy_dtype(ALL_BY_NAME["C32"])


def test_complex_numbers_are_of_two_parts() -> None:
    assert {dtype.name for dtype in ALL_BY_NAME.values() if dtype.is_complex} == {"C32", "C64", "C128"}
    assert not any(dtype.is_float for dtype in ALL_BY_NAME.values() if dtype.is_complex)


@BY_ID
def test_numpy_has_the_dtype_in_that_width(dtype: DType) -> None:
    found = numpy_dtype(dtype)

    assert found.name == dtype.numpy
    assert found.itemsize == dtype.itemsize == np.dtype(dtype.bits_name).itemsize
    assert dtype.is_packed == (dtype.bits < 8)
    if dtype.name.startswith(("F4", "F6", "F8", "BF", "F16", "F32", "F64")):
        bits = ml_dtypes.finfo(found).bits  # type: ignore[no-untyped-call]
        assert bits == dtype.bits


@BY_ID
def test_torch_has_the_dtype_in_that_width(dtype: DType) -> None:
    found = torch_dtype(dtype)

    if found is None:
        assert dtype.torch is None
        return
    assert str(found) == f"torch.{dtype.torch}"
    per_item = 2 if dtype.torch == "float4_e2m1fn_x2" else 1
    assert torch.empty(1, dtype=found).element_size() * 8 == dtype.bits * per_item


@BY_ID
def test_bytes_are_counted_in_whole_groups(dtype: DType) -> None:
    assert dtype.nbytes(0) == 0
    assert dtype.nbytes(8) == dtype.bits
    assert dtype.nbytes(2**60) == 2**57 * dtype.bits


@BY_ID
def test_each_is_found_by_every_library_s_name_and_dtype(dtype: DType) -> None:
    found = [dtype, dtype.name, dtype.numpy, f"torch.{dtype.torch or dtype.numpy}", numpy_dtype(dtype)]
    found += [numpy_dtype(dtype).type] if dtype.name != "BOOL" else []
    found += [torch_dtype(dtype)] if dtype.torch else []

    assert all(find_dtype(spelling) is dtype for spelling in found)


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("bf16", "BF16"),
        ("BFLOAT16", "BF16"),
        ("fp16", "F16"),
        ("half", "F16"),
        ("f32", "F32"),
        ("fp32", "F32"),
        ("double", "F64"),
        ("fp8_e4m3", "F8_E4M3"),
        ("f8_e5m2", "F8_E5M2"),
        ("torch.half", "F16"),
        (np.dtype(">f4"), "F32"),
        (torch.half, "F16"),
        (np.double, "F64"),
    ],
)
def test_usual_spellings_are_known(spelling: object, name: str) -> None:
    assert find_dtype(spelling).name == name


@pytest.mark.parametrize(
    "spelling",
    [
        "f4",
        "i8",
        "u8",
        "f8",
        "float",
        float,
        int,
        None,
        "",
        3,
        np.dtype(ml_dtypes.float8_e4m3),
        np.dtype("U3"),
        "bf-16",
    ],
)
def test_what_means_nothing_or_two_things_is_refused(spelling: object) -> None:
    with pytest.raises(DtypeError, match="no such dtype"):
        find_dtype(spelling)


def test_floats_are_real_numbers_with_an_exponent() -> None:
    assert {dtype.name for dtype in DTYPES if not dtype.is_float} == {
        *("BOOL", "U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64", "C64")
    }
