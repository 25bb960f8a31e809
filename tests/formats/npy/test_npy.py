"""`.npy` files: what NumPy writes is described as NumPy reads it, and a file that lies is refused."""

from __future__ import annotations

import io
import struct
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tensorkeep.dtypes import BY_NAME, find_dtype
from tensorkeep.errors import (
    DtypeError,
    FormatError,
    LimitError,
    TensorkeepError,
    TensorNotFoundError,
    UnsupportedError,
)
from tensorkeep.formats import FileContents, UntypedTensor
from tensorkeep.formats.npy import parse_npy
from tensorkeep.transport import MemorySource
from tests.support.npy_oracle import array_of, same

DTYPES = (
    *(
        f"{order}{code}"
        for order in "<>"
        for code in ("i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16")
    ),
    *("|b1", "|i1", "|u1"),
)


def saved(array: npt.ArrayLike, version: tuple[int, int] | None = None) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asanyarray(array), version)
    return buffer.getvalue()


def crafted(header: str, data: bytes = b"", version: tuple[int, int] = (1, 0)) -> bytes:
    text = header.encode("utf-8" if version == (3, 0) else "latin-1")
    return b"\x93NUMPY" + bytes(version) + struct.pack("<H" if version == (1, 0) else "<I", len(text)) + text + data


def plain(descr: str = "'<f4'", shape: str = "(2,)", order: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n"


def read(data: bytes) -> FileContents:
    return parse_npy(MemorySource(data, "a.npy"))


def only(data: bytes) -> Any:
    file = read(data)
    (array,) = file.tensors.values()
    assert list(file.tensors) == ["tensor"]
    assert not file.unknowns
    return array_of(MemorySource(data), array)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_dtype_in_every_version(dtype: str, version: tuple[int, int]) -> None:
    array = (np.arange(24).reshape(2, 3, 4) % 5).astype(dtype)

    assert same(only(saved(array, version)), array)


@settings(max_examples=200)
@given(
    hnp.arrays(
        hnp.boolean_dtypes()
        | hnp.integer_dtypes(endianness="?")
        | hnp.floating_dtypes(endianness="?", sizes=(16, 32, 64))
        | hnp.complex_number_dtypes(endianness="?", sizes=(64, 128)),
        hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4),
    ),
    st.booleans(),
)
def test_any_array_is_what_numpy_loads(array: npt.NDArray[Any], is_fortran: bool) -> None:
    data = saved(np.asfortranarray(array) if is_fortran and array.ndim else array)

    assert same(only(data), np.load(io.BytesIO(data), allow_pickle=False))


def test_fortran_order_is_reversed_strides() -> None:
    array = np.asfortranarray(np.arange(24.0).reshape(2, 3, 4))

    assert read(saved(array)).tensors["tensor"].strides == (1, 2, 6)


def test_fields_of_structured_arrays_are_tensors_of_their_own() -> None:
    array = np.zeros(
        (2, 3),
        np.dtype([("a", ">f4"), ("b", [("c", "<i4", (2,)), ("d", "u1")], (2,)), (("title", "e"), "<u2")], align=True),
    )
    array["a"] = np.arange(6).reshape(2, 3)
    array["b"]["c"] = np.arange(24).reshape(2, 3, 2, 2)
    array["b"]["d"] = np.arange(12).reshape(2, 3, 2)
    array["e"] = 7
    data = saved(array)

    file = read(data)

    found = {name: array_of(MemorySource(data), stored) for name, stored in file.tensors.items()}
    expected = {
        "tensor.a": array["a"],
        "tensor.b.c": array["b"]["c"],
        "tensor.b.d": array["b"]["d"],
        "tensor.e": array["e"],
    }
    assert found.keys() == expected.keys()
    assert all(same(found[name], np.ascontiguousarray(expected[name])) for name in expected)
    assert not file.unknowns


def test_fields_that_would_be_tensors_of_one_name_are_refused() -> None:
    array = np.array([(1, (2,))], [("a.b", "f4"), ("a", [("b", "f4")])])

    with pytest.raises(FormatError, match=r"two fields .* of one name.*'a\.b'"):
        read(saved(array))


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (np.zeros(2, np.longdouble), "depends on the machine"),
        (np.zeros(2, np.clongdouble), "depends on the machine"),
        (np.array([{"a": 1}, None], dtype=object), "never run"),
    ],
)
def test_what_is_not_a_tensor_is_listed_with_the_reason(array: npt.NDArray[Any], reason: str) -> None:
    file = read(saved(array))

    assert not file.tensors
    assert reason in str(file.unknowns["tensor"])
    assert not isinstance(file.unknowns["tensor"], UntypedTensor)


@pytest.mark.parametrize("code", ["<M8[ns]", ">M8[D]", "<m8[25s]", ">m8"])
def test_dates_and_time_spans_are_integers_whose_unit_is_metadata(code: str) -> None:
    array = np.array([3, -1, 2**40], "i8").astype(code)
    data = saved(array)

    file = read(data)

    assert file.tensors["tensor"].dtype == "I64"
    assert same(array_of(MemorySource(data), file.tensors["tensor"]), array.view(f"{array.dtype.str[0]}i8"))
    assert file.metadata == {"numpy.types": f'{{"tensor":"{array.dtype.str}"}}'}


@pytest.mark.parametrize(
    "array",
    [
        np.array([["é", "", "abc"], ["a", "b", "\U0001f600"]]),
        np.array(["é", "abc"], ">U5"),
        np.asfortranarray(np.array([["a", "b"], ["c", "d"]])),
        np.array([b"text", b"", b"a\0b"]),
        np.array([], "U3"),
        np.array("alone"),
    ],
)
def test_strings_are_data_of_their_own(array: npt.NDArray[Any]) -> None:
    file = read(saved(array))

    strings = file.strings["tensor"].load()
    assert not file.tensors
    assert not file.unknowns
    assert strings.shape == array.shape
    assert strings.tolist() == array.tolist()


def test_strings_of_a_structured_array() -> None:
    array = np.array([(1, "a", 2.5), (2, "bc", 3.5)], [("n", "<i4"), ("t", "<U3"), ("x", "<f8")])

    file = read(saved(array))

    assert file.strings["tensor.t"].load().tolist() == ["a", "bc"]


def test_a_character_that_does_not_exist_is_an_error() -> None:
    data = saved(np.array(["ab"])).replace("b".encode("utf-32-le"), b"\xff\xff\xff\x7f")

    with pytest.raises(FormatError, match="does not exist"):
        read(data).strings["tensor"].load()


def test_objects_in_a_structured_array_hide_all_its_fields() -> None:
    file = read(saved(np.zeros(2, [("a", "<f4"), ("b", object), ("c", "V2")])))

    assert not file.tensors
    assert set(file.unknowns) == {"tensor.a", "tensor.b", "tensor.c"}
    with pytest.raises(TensorNotFoundError):
        file.with_dtypes({"tensor.c": find_dtype("bfloat16")})


@pytest.mark.parametrize("name", ["BF16", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"])
@pytest.mark.parametrize("is_fortran", [False, True])
def test_dtypes_that_numpy_forgets_are_given_by_name(name: str, is_fortran: bool) -> None:
    dtype = BY_NAME[name]
    array = np.arange(6).reshape(2, 3).astype(getattr(ml_dtypes, dtype.numpy))
    data = saved(np.asfortranarray(array) if is_fortran else array)
    file = read(data)
    assert not file.tensors
    assert "bfloat16" in str(file.unknowns["tensor"])

    named = file.with_dtypes({"tensor": dtype})

    assert not named.unknowns
    assert same(array_of(MemorySource(data), named.tensors["tensor"]), array)


def test_only_a_dtype_of_the_same_size_can_be_named() -> None:
    file = read(saved(np.zeros(3, "V2")))

    with pytest.raises(DtypeError, match="size"):
        file.with_dtypes({"tensor": BY_NAME["F32"]})
    with pytest.raises(TensorNotFoundError):
        file.with_dtypes({"other": BY_NAME["BF16"]})
    with pytest.raises(TensorNotFoundError):
        read(saved(np.array(["ab"]))).with_dtypes({"tensor": BY_NAME["C64"]})
    with pytest.raises(DtypeError):  # four bits each, but NumPy gave each a byte
        read(saved(np.zeros(3, "V1"))).with_dtypes({"tensor": BY_NAME["F4"]})


def test_headers_as_other_writers_make_them() -> None:
    numbers = np.arange(2, dtype="<f4").tobytes()

    assert only(crafted('{"shape":(2,),"fortran_order":False,"descr":"<f4"}', numbers)).tolist() == [0, 1]
    assert only(crafted(plain(shape="(2L,)"), numbers)).tolist() == [0, 1]
    assert only(crafted(plain("'>i1'", "(8,)"), numbers)).shape == (8,)
    assert only(crafted(plain(shape="()"), numbers[4:])) == 1


@pytest.mark.parametrize(
    "header",
    [
        "",
        "{}",
        "[]",
        "{'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}",
        plain(order="0"),
        plain(shape="[2]"),
        plain(shape="2"),
        plain(shape="(True, 2)"),
        plain(shape="(-2,)"),
        plain(shape="(2.0,)"),
        plain(shape="(None,)"),
        plain(shape="(3,)"),
        plain(shape="(1,)"),
        plain(shape=f"({2**62}, {2**62})"),
        plain(shape=f"(0, {2**62}, {2**62})"),
        plain(shape=f"({2**61},)"),
        plain(shape=f"({10**18}, {10**18}, 0)"),
        plain(shape="(1,) * 65"),
        plain(shape=f"({'1, ' * 65})"),
        plain("'<q9'"),
        plain("'<f'"),
        plain("'f4x'"),
        plain("'<f4;import os'"),
        plain("8"),
        plain("None"),
        plain("('<f4', (2,))"),
        plain("[('a',)]"),
        plain("[('a', '<f4'), ('a', '<f4')]"),
        plain("[('', '<f4')]"),
        plain("['a']"),
        plain("[('a', '<f4', 2)]"),
        plain("[('a', '<f4', (-1,))]"),
        plain("[(b'a', '<f4')]"),
        plain("__import__('os').system('touch /tmp/ran')"),
    ],
)
def test_headers_that_cannot_be_true_are_refused(header: str) -> None:
    with pytest.raises(FormatError) as caught:
        read(crafted(header, bytes(8)))

    assert caught.value.path == "a.npy"


def test_sizes_must_be_those_of_the_header() -> None:
    data = saved(np.arange(6.0))

    for n in range(len(data)):
        with pytest.raises(FormatError):
            read(data[:n])
    with pytest.raises(FormatError, match="size") as caught:
        read(data + saved(np.arange(2)))
    assert "savez" in (caught.value.hint or "")


def test_a_header_is_bounded() -> None:
    with pytest.raises(LimitError):
        read(crafted(plain() + " " * 70_000, bytes(8), (2, 0)))
    with pytest.raises((LimitError, FormatError)):
        read(b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + bytes(100))


def test_versions_to_come_and_other_files() -> None:
    with pytest.raises(UnsupportedError):
        read(crafted(plain(), bytes(8), (4, 0)))
    with pytest.raises(FormatError, match="not a NumPy array"):
        read(b"<html>not here</html>")


@settings(max_examples=300)
@given(st.data())
def test_any_changed_byte_is_read_as_numpy_does_or_refused(data: st.DataObject) -> None:
    original = saved(np.arange(6, dtype=">i4").reshape(2, 3))
    place = data.draw(st.integers(0, 127))
    changed = bytearray(original)
    changed[place] = data.draw(st.integers(0, 255))

    try:
        file = read(bytes(changed))
    except TensorkeepError:
        return
    try:
        expected = np.load(io.BytesIO(changed), allow_pickle=False)
    except ValueError:  # what NumPy refuses, such as objects, is at most listed
        assert not file.tensors
        return
    for array in file.tensors.values():
        assert same(array_of(MemorySource(bytes(changed)), array), expected)
