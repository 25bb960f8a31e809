"""What is data of NumPy, taken apart and put together: exact for every kind; hostile parts give our errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tensorkeep
from tensorkeep.arrays import EncodedObject, codec_for, decode_object, encode_object, known_class, plain_library
from tensorkeep.errors import FormatError, StateError, TensorkeepError, UnsupportedError
from tests.support.arrays.apart import put, taken

STRUCTURED = np.dtype([
    ("x", "<f4"),
    ("name", "S3"),
    ("box", "<i2", (2, 3)),
    ("inner", [("t", "M8[us]"), ("b", ">u4")]),
])
RECORD = np.dtype((np.record, [("a", "i4")]))
Strings = np.dtypes.StringDType
ADDRESSES = {"names": ("o",), "formats": ("|O",), "offsets": (0,), "itemsize": 8}
ALIGNED = np.dtype([("flag", "?"), ("x", "f8")], align=True)

SCALARS = [
    np.float64(0.1), np.float32(-0.0), np.float16(2), np.longdouble(1) / 3, np.int8(-3), np.uint64(2**64 - 1),
    np.bool_(True), np.complex64(1 + 2j), np.complex128(complex(-0.0, np.inf)), np.clongdouble(1j),
    np.str_("Zürich\0"), np.str_(""), np.str_("\ud800"), np.bytes_(b"a\0"), np.bytes_(b""), np.void(b"\1\2\0"),
    np.datetime64("2026-11-21T10:00", "ms"), np.datetime64("NaT"), np.timedelta64(5, "D"),
    ml_dtypes.bfloat16(1.5), ml_dtypes.float8_e4m3fn(2), ml_dtypes.int4(-8), ml_dtypes.float8_e5m2(1),
]  # fmt: skip

DTYPES = [
    *(np.dtype(text) for text in ("f4", ">f8", "S5", "U7", "V3", "M8[25us]", "m8[D]", "M8", "O", "?", "c16", "g")),
    *(np.dtype(name) for name in ("bfloat16", "int4", "float8_e5m2", "float6_e2m3fn")),
    STRUCTURED,
    ALIGNED,
    np.dtype({"names": ["b", "a"], "formats": ["<i4", "<i4"], "offsets": [8, 0], "itemsize": 20}),
    np.dtype(("<f4", (2, 3))),
    np.dtype([("o", "O")]),
    RECORD,
    np.dtype([("inner", RECORD)]),
]

RANDOM = np.random.default_rng(5)


def structured() -> Any:
    array = np.zeros((2, 3), STRUCTURED)
    array["x"], array["name"], array["inner"]["t"] = 1.5, b"ab", np.datetime64("2026-01-01")
    return array


ARRAYS = [
    RANDOM.random((2, 3)).astype(">f8"),
    np.array([1, -2, 3], ">i2"),
    np.asfortranarray(RANDOM.random((3, 4)).astype(">f4")),
    RANDOM.random((2, 3)) + 1j * RANDOM.random((2, 3)),
    np.asfortranarray(RANDOM.random((2, 3)) + 1j),
    np.array(1 + 2j),
    (RANDOM.random(3) + 1j).astype(">c16"),
    np.array([["2026-11-21", "NaT"]], "M8[ns]"),
    np.array([[1, 2], [3, 4]], "m8[s]").T,
    np.array(["2026-11-21"], ">M8[D]"),
    np.array([["a", "Zürich"], ["", "c\0d"]]),
    np.array(["big"], ">U3"),
    np.array([b"a", b"bc\0d"]),
    np.array(b"zero dimensions"),
    np.array([b"\1\0", b"\0\0"], "V2"),
    structured(),
    structured()[:, ::2],
    np.zeros(3, ALIGNED),
    np.arange(4, dtype=np.longdouble) / 3,
    np.arange(4).astype(ml_dtypes.int4),
    np.zeros((0, 3), "S4"),
    np.zeros((2, 0), ">f8"),
    np.zeros(2, "V0"),
    np.zeros((2, 3, 4), "c16")[..., 0, :].T,
    np.zeros(2, RECORD),
]


def same_bits(left: Any, right: Any) -> bool:
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


@pytest.mark.parametrize("value", SCALARS, ids=repr)
def test_scalars_come_back(value: Any) -> None:
    loaded = put(taken(value))

    assert type(loaded) is type(value)
    assert loaded.dtype == value.dtype
    if isinstance(value, str | bytes | np.longdouble | np.clongdouble):  # the last two have bytes that mean nothing
        assert loaded == value
    else:
        assert loaded.tobytes() == value.tobytes()


def test_a_structured_scalar_comes_back() -> None:
    value = structured()[1, 2]

    loaded = put(taken(value))

    assert type(loaded) is np.void
    assert same_bits(loaded, value)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes_come_back(dtype: Any) -> None:
    loaded = put(taken(dtype))

    assert loaded == dtype
    assert loaded.isalignedstruct == dtype.isalignedstruct
    assert type(loaded) is type(dtype)


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{array.shape}")
def test_arrays_come_back(array: Any) -> None:
    loaded = put(taken(array))

    assert type(loaded) is np.ndarray
    assert same_bits(loaded, array) or (array.dtype.char == "g" and loaded.tolist() == array.tolist())
    assert loaded.flags.writeable
    assert loaded.flags.aligned
    assert codec_for("numpy").attributes_of(loaded) == codec_for("numpy").attributes_of(array)


def test_numbers_of_other_readers_are_the_same_numbers() -> None:
    swapped = np.array([1.5, 2.5], ">f4")
    times = np.array([7, 8], "M8[s]")

    assert taken(swapped).parts["data"].tolist() == [1.5, 2.5]
    assert taken(times).parts["data"].tolist() == [7, 8]


@pytest.mark.parametrize("array", [np.zeros((2, 2), "c16"), np.zeros(3, "M8[s]"), structured()])
def test_what_is_viewed_as_numbers_shares_its_memory(array: Any) -> None:
    composed = encode_object(array)

    assert composed is not None
    assert np.shares_memory(composed.parts["data"], array)
    assert np.shares_memory(decode_object(composed, find_class=known_class), array)


X87 = bytes.fromhex("00000000000000a0ff3f")  # 1.25
PADDED = np.dtype([("a", "u1"), ("b", ALIGNED, (2,)), ("c", "i2")], align=True)
ELEMENTS = {
    "g": lambda rest: X87 + rest * 6,
    "G": lambda rest: 2 * (X87 + rest * 6),
    ">f16": lambda rest: rest * 6 + X87[::-1],
    "aligned": lambda rest: b"\1" + rest * 7 + bytes(8),
    "fields in fields": lambda rest: b"\7" + rest * 7 + 2 * (b"\1" + rest * 7 + bytes(8)) + b"\2\0" + rest * 6,
}
"""Bytes of an element, given one that holds nothing."""


@pytest.mark.parametrize("name", ELEMENTS)
@pytest.mark.skipif(np.finfo(np.longdouble).nmant != 63, reason="numbers of x87 are not NumPy's longdouble here")
def test_bytes_that_hold_nothing_are_zero(name: str) -> None:
    dtype = {"aligned": ALIGNED, "fields in fields": PADDED}.get(name) or np.dtype(name)
    clean, *dirty = (np.frombuffer(ELEMENTS[name](rest) * 3, dtype) for rest in (b"\0", b"\xaa", b"\x55"))
    expected = taken(clean).parts["data"].tobytes()

    for array in dirty:
        assert taken(array[:, np.newaxis]).parts["data"].tobytes() == expected
        assert taken(array[1]).settings["data"] == taken(clean[1]).settings["data"]
        assert str(put(taken(array))) == str(clean)
    assert expected == (3 * ELEMENTS["g"](b"\0") if name == ">f16" else clean.tobytes())


def test_fields_that_were_not_chosen_are_not_saved() -> None:
    array = np.zeros(2, [("name", "S6"), ("secret", "S6")])
    array["secret"] = b"hidden"

    assert b"hidden" not in taken(array[["name"]]).parts["data"].tobytes()


def test_arrays_of_objects_have_any_items() -> None:
    array = np.empty((2, 2), object)
    array[0, 0], array[0, 1], array[1, 0], array[1, 1] = np.arange(3), [1, 2], None, "text"

    composed = encode_object(array)
    assert composed == EncodedObject("numpy", "objects", {"items": composed.parts["items"]}, {"shape": (2, 2)})
    loaded = decode_object(composed, find_class=known_class)

    assert loaded.dtype == object
    assert loaded.shape == (2, 2)
    assert loaded[0, 0] is array[0, 0]
    assert loaded[0, 1] is array[0, 1]
    assert loaded[1].tolist() == [None, "text"]


@pytest.mark.parametrize(
    "value",
    [
        np.ma.masked_array([1.0]), np.zeros(2, [("o", "O")]), np.dtype("f4", metadata={"a": 1}),
        np.zeros(2, "O").view(np.recarray), np.array(["a"], Strings(na_object=...)),
        np.dtype({"names": ["a"], "formats": ["i4"], "titles": ["A"]}), np.sum, np.random.SeedSequence(1),
        1.5, "text", Strings(), object(), None,
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_has_no_form_as_data_is_not_taken(value: Any) -> None:
    assert encode_object(value) is None
    assert plain_library(value) is None


@pytest.mark.parametrize(
    "array",
    [
        np.rec.array([(1, 2.5)], [("a", ">i4"), ("b", "f4")]),
        np.asfortranarray(np.zeros((2, 3), ALIGNED)).view(np.recarray),
        np.arange(3).view(np.recarray),
    ],
)
def test_records_come_back(array: Any) -> None:
    first = array.flat[0]
    loaded, loaded_first = put(taken(array)), put(taken(first))

    assert (type(loaded), loaded.dtype, loaded.strides) == (np.recarray, array.dtype, array.strides)
    assert loaded.tolist() == array.tolist()
    assert (type(loaded_first), loaded_first) == (type(first), first)


@pytest.mark.parametrize(
    "array",
    [
        np.array([["a", "Zürich"], ["", "c\0d"]], Strings()),
        np.array("zero dimensions", Strings(coerce=False)),
        np.zeros((0, 3), Strings()),
        np.array(["a", None], Strings(na_object=None)),
        np.array(["a", np.nan, ""], Strings(na_object=np.nan)),
        np.array(["a", "n/a"], Strings(na_object="n/a", coerce=False)),
    ],
)
def test_strings_of_any_length_come_back(array: Any) -> None:
    loaded = put(taken(array))

    assert (type(loaded), loaded.dtype, loaded.shape) == (np.ndarray, array.dtype, array.shape)
    assert repr(loaded.tolist()) == repr(array.tolist())


@pytest.mark.parametrize(
    ("array", "hint", "advised"),
    [
        (np.zeros(2, np.dtype([(("title", "a"), "i4")])), "value[name]", lambda array: array["a"]),
        (np.zeros(2, np.dtype("U3", metadata={"a": 1})), ".astype(...)", lambda array: array.astype("U3")),
        (np.matrix([[1]]), "numpy.asarray(...)", np.asarray),
        (np.zeros(2, object).view(np.recarray), "numpy.asarray(...)", np.asarray),
        (np.ma.masked_array([1.0, 2.0], [True, False]), "its data and its mask", lambda array: array.data),
        (
            np.array(["a", ...], Strings(na_object=...)),
            "astype(object) with None",
            lambda array: array[:1].astype(object),
        ),
    ],
)
def test_advice_leads_to_what_can_be_saved(array: Any, hint: str, advised: Any, tmp_path: Path) -> None:
    with pytest.raises(StateError) as caught:
        tensorkeep.save([array], tmp_path / "a.safetensors")

    assert hint in str(caught.value)
    tensorkeep.save([advised(array)], tmp_path / "a.safetensors")


def test_a_mapped_array_is_an_array(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(6.0))
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    np.save(tmp_path / "b.npy", np.ones(3, "c16"))

    assert plain_library(mapped) == "numpy"
    loaded = put(taken(np.load(tmp_path / "b.npy", mmap_mode="r")))
    assert type(loaded) is np.ndarray
    assert loaded.tolist() == [1, 1, 1]


@pytest.mark.parametrize("name", ["MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64"])
@pytest.mark.parametrize("n_drawn", [0, 1, 7, 700])
def test_random_generators_go_on(name: str, n_drawn: int) -> None:
    bits = getattr(np.random, name)([3, 2**70])
    generator = np.random.Generator(bits)
    generator.integers(0, 2**30, n_drawn, dtype=np.uint32)
    generator.spawn(2)

    loaded = put(taken(generator))
    loaded_bits = put(taken(bits))

    assert type(loaded) is np.random.Generator
    assert type(loaded_bits) is type(bits)
    assert loaded_bits.random_raw(3).tolist() == put(taken(bits)).random_raw(3).tolist()
    assert loaded.normal(size=700).tolist() == generator.normal(size=700).tolist()
    assert loaded.spawn(1)[0].random() == generator.spawn(1)[0].random()


def test_the_old_random_state_goes_on() -> None:
    state = np.random.RandomState(4)
    state.normal()  # the second one of the pair is kept

    loaded = put(taken(state))

    assert type(loaded) is np.random.RandomState
    assert loaded.normal(size=5).tolist() == state.normal(size=5).tolist()
    assert loaded.get_state()[2] == state.get_state()[2]


@pytest.mark.parametrize("name", ["MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64"])
def test_no_field_of_a_random_state_is_believed(name: str) -> None:
    honest = encode_object(getattr(np.random, name)(1))
    assert honest is not None
    numbers = [field for field, value in honest.settings.items() if type(value) is int]

    for field in numbers:
        for wrong in (-1, 2**128, 1.0, None, "1", True, [1]):
            check_refused("bit_generator", honest.parts, honest.settings | {field: wrong})
        missing = {key: value for key, value in honest.settings.items() if key != field}
        check_refused("bit_generator", honest.parts, missing)
    for field, array in honest.parts.items():
        for wrong in (array[:-1], array.astype("f8"), array[None], array.tolist(), None):
            check_refused("bit_generator", honest.parts | {field: wrong}, honest.settings)


@pytest.mark.parametrize("position", [625, 2**31, 2**63])
def test_no_generator_reads_beside_its_table(position: int) -> None:
    twister, philox = encode_object(np.random.MT19937(1)), encode_object(np.random.Philox(1))
    assert twister is not None
    assert philox is not None

    check_refused("bit_generator", twister.parts, twister.settings | {"pos": position})
    check_refused("bit_generator", philox.parts, philox.settings | {"buffer_pos": position})


def check_refused(kind: str, parts: Any, settings: Any) -> None:
    with pytest.raises(TensorkeepError):
        decode_object(EncodedObject("numpy", kind, dict(parts), dict(settings)), find_class=known_class)


PCG64 = {"bit_generator": "PCG64", "state": 1, "inc": 1, "has_uint32": 0, "uinteger": 0}
SEED = {"entropy": 1, "spawn_key": (), "pool_size": 4, "n_children_spawned": 0}
HOSTILE: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("scalar", {}, {}),
    ("scalar", {}, {"dtype": "<f8", "data": b"1234"}),
    ("scalar", {}, {"dtype": "<f8", "data": "12345678"}),
    ("scalar", {}, {"dtype": "|O", "data": b"12345678"}),
    ("scalar", {}, {"dtype": ADDRESSES, "data": b"12345678"}),
    ("scalar", {}, {"dtype": "<U3", "data": b"abc"}),
    ("dtype", {}, {}),
    ("dtype", {}, {"dtype": "f4,f4"}),
    ("dtype", {}, {"dtype": "<f5"}),
    ("dtype", {}, {"dtype": "|S99999999999999999999"}),
    ("dtype", {}, {"dtype": "os.system"}),
    ("dtype", {}, {"dtype": 5}),
    ("dtype", {}, {"dtype": {}}),
    ("dtype", {}, {"dtype": {"base": "<f4", "shape": (-1,)}}),
    ("dtype", {}, {"dtype": {"base": "<f4", "shape": (2**62, 2**62)}}),
    ("dtype", {}, {"dtype": {"names": ("a",), "formats": (), "offsets": (), "itemsize": 1}}),
    ("dtype", {}, {"dtype": {"names": ("a",), "formats": ("<f4",), "offsets": (-4,), "itemsize": 4}}),
    ("dtype", {}, {"dtype": {"names": ("a",), "formats": ("<f4",), "offsets": (4,), "itemsize": 4}}),
    ("dtype", {}, {"dtype": {"names": ("a", "a"), "formats": ("<f4", "<f4"), "offsets": (0, 4), "itemsize": 8}}),
    ("dtype", {}, {"dtype": {"names": (1,), "formats": ("<f4",), "offsets": (0,), "itemsize": 8}}),
    ("dtype", {}, {"dtype": {"names": ("a", "b"), "formats": ("|O", "<i8"), "offsets": (0, 0), "itemsize": 8}}),
    ("array", {}, {"dtype": "<M8[s]"}),
    ("array", {"data": np.zeros(3)}, {"dtype": "<M8[s]"}),
    ("array", {"data": np.zeros(16, np.uint8)}, {"dtype": "|O"}),
    ("array", {"data": np.zeros((2, 8), np.uint8)}, {"dtype": {"base": "<f4", "shape": (2,)}}),
    ("array", {"data": np.zeros((2, 8), np.uint8)}, {"dtype": ADDRESSES}),
    ("array", {"data": np.zeros((2, 3), np.uint8)}, {"dtype": "|S4"}),
    ("array", {"data": np.array(3, np.uint8)}, {"dtype": "|S4"}),
    ("array", {"data": np.zeros((2, 4), np.int8)}, {"dtype": "|S4"}),
    ("array", {"data": np.full((2, 4), 255, np.uint8)}, {"dtype": "<U1"}),
    ("array", {"data": [1, 2]}, {"dtype": "<M8[s]"}),
    ("complex", {"data": np.zeros((2, 3))}, {"dtype": "<c16"}),
    ("complex", {"data": np.zeros((2, 2), "f4")}, {"dtype": "<c16"}),
    ("complex", {"data": np.array(1.0)}, {"dtype": "<c16"}),
    ("objects", {"items": [1, 2]}, {"shape": (3,)}),
    ("objects", {"items": [1, 2]}, {"shape": (-1, -2)}),
    ("objects", {"items": (1, 2)}, {"shape": (2,)}),
    ("objects", {"items": []}, {"shape": (0, 2**70)}),
    ("objects", {"items": [1]}, {"shape": (1,) * 100}),
    ("objects", {"items": [1]}, {"shape": "1"}),
    ("records", {"data": np.zeros((2, 8), np.uint8)}, {"dtype": ADDRESSES | {"record": True}}),
    ("strings", {"lengths": np.array([1]), "data": np.zeros(1, np.uint8)}, {}),
    ("strings", {"lengths": [1], "data": np.zeros(1, np.uint8)}, {"coerce": True}),
    ("strings", {"lengths": np.array([2]), "data": np.zeros(1, np.uint8)}, {"coerce": True}),
    ("strings", {"lengths": np.array([2, -1]), "data": np.zeros(1, np.uint8)}, {"coerce": True}),
    ("strings", {"lengths": np.array([2**62] * 4 + [1]), "data": np.zeros(1, np.uint8)}, {"coerce": True}),
    ("strings", {"lengths": np.array([-1]), "data": np.zeros(0, np.uint8)}, {"coerce": True, "missing": "x"}),
    ("strings", {"lengths": np.array([-2]), "data": np.zeros(0, np.uint8)}, {"coerce": True, "missing": None}),
    ("strings", {"lengths": np.array([-1]), "data": np.zeros(0, np.uint8)}, {"coerce": True, "missing": []}),
    ("strings", {"lengths": np.array([1]), "data": np.full(1, 255, np.uint8)}, {"coerce": True}),
    ("random_generator", {}, {}),
    ("random_generator", {"bit_generator": 3}, {}),
    ("random_state", {"bit_generator": np.random.MT19937(1)}, {"has_gauss": 2, "gauss": 0.0}),
    ("random_state", {"bit_generator": np.random.MT19937(1)}, {"has_gauss": 1, "gauss": None}),
    ("bit_generator", {}, {"bit_generator": "os.system"}),
    ("bit_generator", {}, {"bit_generator": ["PCG64"]}),
    *(
        ("bit_generator", {}, PCG64 | {"seed": seed})
        for seed in (
            5, {}, SEED | {"pool_size": 2**40}, SEED | {"pool_size": 0}, SEED | {"entropy": -1},
            SEED | {"entropy": 2**100_000}, SEED | {"spawn_key": (0,) * 100_000}, SEED | {"entropy": ["1"]},
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "parts", "settings"), HOSTILE)
def test_hostile_values_give_our_errors(kind: str, parts: dict[str, Any], settings: dict[str, Any]) -> None:
    with pytest.raises(FormatError):
        decode_object(EncodedObject("numpy", kind, parts, settings), find_class=known_class)


def test_dtypes_within_dtypes_end() -> None:
    description: Any = "<f4"
    for _ in range(5000):
        description = {"base": description, "shape": (1,)}

    check_refused("dtype", {}, {"dtype": description})


def test_unknown_kinds_and_libraries_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="later version"):
        decode_object(EncodedObject("numpy", "holograms", {}, {}), find_class=known_class)
    with pytest.raises(FormatError, match="unknown array library"):
        decode_object(EncodedObject("os", "system", {}, {}), find_class=known_class)
