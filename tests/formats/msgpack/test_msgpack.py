"""MessagePack, and Flax's arrays in it: read in one pass, or refused, whatever the bytes."""

from __future__ import annotations

import random
import struct
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorkeep import limits
from tensorkeep.errors import FormatError, IntegrityError, LimitError, TensorkeepError
from tensorkeep.formats.msgpack import Array, Extension, is_msgpack, merged, part_of, read_document
from tensorkeep.transport import ByteRange, MemorySource
from tests.support.soak import rounds

encode = msgspec.msgpack.encode
Ext = msgspec.msgpack.Ext


def array(shape: Any = (2, 3), dtype: Any = "float32", data: bytes = bytes(24), code: int = 1) -> Ext:
    return Ext(code, encode((shape, dtype, data)))


def read(content: bytes) -> Any:
    return read_document(MemorySource(content))


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=300)
    | st.binary(max_size=300),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=40), inner, max_size=20),
    max_leaves=60,
)


@given(PLAIN)
def test_plain_values_are_what_they_were(value: Any) -> None:
    assert read(encode(value)).value == value


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (b"\xca" + struct.pack(">f", 1.5), 1.5),
        (b"\xcc\xff", 255),
        (b"\xd3" + b"\xff" * 8, -1),
        (b"\xd9\x02\xc3\xa9", "é"),
        (b"\xdc\x00\x01\xc0", [None]),
        (b"\xdd\x00\x00\x00\x01\xc3", [True]),
        (b"\xde\x00\x01\x01\xc2", {1: False}),
        (b"\xdf\x00\x00\x00\x01\xc4\x01k\xc2", {b"k": False}),
        (b"\xc7\x13\x02\x92\xcb" + struct.pack(">d", 1.0) + b"\xcb" + struct.pack(">d", -2.0), 1 - 2j),
        (b"\xd4\x05x", Extension(5, ByteRange(2, 3))),
        (b"\xd6\xff" + bytes(4), Extension(-1, ByteRange(2, 6))),
    ],
)
def test_every_form_is_read(content: bytes, value: Any) -> None:
    assert read(content).value == value


def test_an_array_is_its_place() -> None:
    content = encode({"params": {"w": array()}, "step": 3})

    document = read(content)

    assert document.value["step"] == 3
    found = document.arrays["params.w"]
    assert document.value["params"]["w"] is found
    assert (found.dtype, found.shape, found.nbytes) == ("float32", (2, 3), 24)
    (span,) = found.spans
    assert content[span.start : span.stop] == bytes(24)
    assert content[span.start - 2 : span.start] == b"\xc4\x18"


def test_arrays_of_many_dimensions_and_large_extents_are_read() -> None:
    shape = (*[1] * 62, 0, 2**62)

    assert read(encode({"w": array(shape, data=b"")})).arrays["w"].shape == shape


def test_names_that_are_equal_get_numbers_and_keys_stay() -> None:
    document = read(encode({"a.b": array(), "a": {"b": array(), "c": [array()]}, 1: array()}))

    assert list(document.arrays) == ["a.b", "a.b#2", "a.c.0", "1"]
    assert document.value["a"]["b"].name == "a.b#2"
    assert list(document.value) == ["a.b", "a", 1]


def test_an_array_alone_is_called_tensor() -> None:
    assert list(read(encode(array())).arrays) == ["tensor"]


def test_extensions_of_others_are_unknown() -> None:
    document = read(encode({"a": Ext(9, b"xyz"), "b.c": Ext(-1, bytes(8)), "b": {"c": Ext(7, b"")}}))

    assert {name: str(unknown) for name, unknown in document.unknowns.items()} == {
        "a": "a MessagePack extension of type 9, 3 bytes",
        "b.c": "a timestamp of MessagePack, 8 bytes",
        "b.c#2": "a MessagePack extension of type 7, 0 bytes",
    }


def chunked(shape: Any = (2, 3), chunks: Any = (4, 2)) -> dict[str, Any]:
    parts = {str(n): array((extent,), data=bytes(4 * extent)) for n, extent in enumerate(chunks)}
    return {
        "__msgpack_chunked_array__": True,
        "shape": {str(place): extent for place, extent in enumerate(shape)},
        "chunks": parts,
    }


def test_an_array_in_chunks_is_one() -> None:
    document = read(encode({"big": chunked(), "other": array()}))

    big = document.arrays["big"]
    assert list(document.arrays) == ["big", "other"]
    assert (big.shape, big.dtype, [len(span) for span in big.spans]) == ((2, 3), "float32", [16, 8])


@pytest.mark.parametrize(
    "record",
    [
        chunked() | {"shape": None},
        chunked() | {"shape": {"0": 2, "2": 3}},
        chunked() | {"shape": {"0": -6}},
        chunked() | {"shape": {"0": 2.0, "1": 3}},
        chunked() | {"chunks": {}},
        chunked() | {"chunks": {"0": 1}},
        chunked() | {"chunks": {"0": array()}},
        chunked() | {"chunks": {"0": array((4,), data=bytes(16)), "1": array((2,), "int32", bytes(8))}},
        chunked(chunks=(4, 3)),
        {"__msgpack_chunked_array__": True},
        {
            "__msgpack_chunked_array__": True,
            "shape": {"0": 2**62, "1": 2**62},
            "chunks": {"0": array((1,), "i1", b"1")},
        },
    ],
)
def test_chunks_that_do_not_fit_together_are_refused(record: Any) -> None:
    with pytest.raises(FormatError, match="in chunks does not fit"):
        read(encode({"big": record}))


BROKEN: dict[str, bytes] = {
    "nothing": b"",
    "never used": b"\xc1",
    "more after it": encode({"a": 1}) + b"\xc0",
    "not UTF-8": b"\x81\xa1\xff\x01",
    "a key twice": b"\x82\xa1a\x01\xa1a\x02",
    "equal keys": b"\x82\x01\x01\xc3\x02",
    "a list as key": b"\x81\x90\x01",
    "a dict as key": b"\x81\x80\x01",
    "an array as key": b"\x81" + encode(array()) + b"\x01",
    "a complex key": b"\x81\xc7\x13\x02\x92\xcb" + bytes(8) + b"\xcb" + bytes(8) + b"\x01",
    "a long dict": b"\xdf\xff\xff\xff\xff\x01",
    "a long list": b"\xdd\xff\xff\xff\xff\x01",
    "long text": b"\xdb\xff\xff\xff\xffa",
    "long bytes": b"\xc6\xff\xff\xff\xffa",
    "a long extension": b"\xc9\xff\xff\xff\xff\x01a",
    "an array of nothing": encode(Ext(1, b"")),
    "an array that is no list": encode(Ext(1, encode({"shape": 1}))),
    "an array of two parts": encode(Ext(1, encode(((2,), "float32")))),
    "a shape that is a number": encode(array(3)),
    "a negative extent": encode(array((-2, 3))),
    "an extent that is text": encode(array(("2", 3))),
    "an extent that is not complete": encode(Ext(1, b"\x93\x91\xcf")),
    "too large a shape": encode(array((2**63, 1))),
    "too large a shape together": encode(array((2**40, 2**40))),
    "a dtype that is a number": encode(array(dtype=3)),
    "a long dtype": encode(array(dtype="f" * 101)),
    "elements that are a list": encode(Ext(1, encode(((2,), "int8", [1, 2])))),
    "elements that end early": encode(Ext(1, encode(((24,), "int8", bytes(24)))[:-1])),
    "elements that end late": encode(Ext(1, encode(((24,), "int8", bytes(24))) + b"x")),
    "a complex number of integers": encode(Ext(2, encode((1, 2)))),
    "a complex number of three": encode(Ext(2, encode((1.0, 2.0, 3.0)))),
    "a complex number of something else": encode(Ext(2, b"\x92\xcc" + bytes(17))),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused(name: str) -> None:
    with pytest.raises((FormatError, LimitError)):
        read(BROKEN[name])


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(LimitError, match="nested too deeply"):
        read(b"\x91" * 1_000_000 + b"\xc0")
    assert read(b"\x91" * limits.MAX_GRAPH_DEPTH + b"\xc0").value


def test_too_many_dimensions_are_refused() -> None:
    with pytest.raises(LimitError, match="dimensions"):
        read(encode(array([1] * 65, data=b"")))


def test_too_many_large_keys_are_refused() -> None:
    keys = [n * (2**61 - 1) for n in range(1, 8)] + list(range(2**30, 2**30 + limits.MAX_NUMBER_KEYS))

    with pytest.raises(LimitError, match="large numbers"):
        read(encode(dict.fromkeys(keys, 0)))


@pytest.mark.parametrize(("name", "limit"), [("MAX_MESSAGE_VALUES", 99), ("MAX_MESSAGE_TEXTS_NBYTES", 300)])
def test_limits_hold(name: str, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"tensorkeep.formats.msgpack._walk.{name}", limit)

    with pytest.raises(LimitError):
        read(encode(["abcd"] * 100))


def test_names_together_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorkeep.formats.msgpack._read.MAX_NAMES_LENGTH", 50)

    with pytest.raises(LimitError, match="names"):
        read(encode({"a" * 30: {"b": 1, "c": 2}}))


SMALL = encode({
    "params": {"w": array(), "b": array((2,), "bfloat16", bytes(4))},
    "big": chunked(),
    "scalar": array((), "int64", bytes(8), code=3),
    "step": 70_000,
    "rest": [None, 1.5, "text", b"bytes", Ext(2, encode((1.0, 2.0))), Ext(8, b"?")],
})


def test_a_file_that_was_cut_off_is_refused() -> None:
    for stop in range(len(SMALL)):
        with pytest.raises(FormatError):
            read(SMALL[:stop])


def test_changed_bytes_give_a_value_or_our_error() -> None:
    chance = random.Random(7)
    for _ in range(rounds(3_000, 200_000)):
        content = bytearray(SMALL)
        for _ in range(chance.randint(1, 4)):
            content[chance.randrange(len(content))] = chance.randrange(256)
        with suppress(TensorkeepError):
            read(bytes(content))


class Counted(MemorySource):
    """Counts what is read."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.spans: list[ByteRange] = []

    def read(self, span: ByteRange) -> Any:
        self.spans.append(span)
        return super().read(span)


def test_large_arrays_are_not_read() -> None:
    large = Counted(encode({str(n): array((2**20,), "int8", bytes(2**20)) for n in range(20)}))

    assert len(read_document(large).arrays) == 20
    assert len(large.spans) <= 21
    assert sum(map(len, large.spans)) < 20 * 2**15


def test_small_arrays_are_read_many_at_a_time() -> None:
    small = Counted(encode({str(n): array((2**12,), "int8", bytes(2**12)) for n in range(5_000)}))

    assert len(read_document(small).arrays) == 5_000
    assert len(small.spans) < 20


@pytest.mark.parametrize(
    ("content", "is_one"),
    [
        (SMALL, True),
        (encode({"a": array()}), True),
        (encode({str(n): array() for n in range(20)}), True),
        (encode({"a": 1}), False),
        (encode([array()]), False),
        (encode({"a": array()}) + b"x", False),
        (encode({"a": array()})[:-1], False),
        (b"", False),
        (b"\x80", False),
        (b"\x80\x04K\x01.", False),
        (struct.pack("<Q", 0x82) + b'{"a": 1}' + bytes(130), False),
    ],
)
def test_only_a_map_of_arrays_that_fills_its_bytes_is_recognized(content: bytes, is_one: bool) -> None:
    assert is_msgpack(MemorySource(content)) is is_one


def test_values_of_shards_are_merged() -> None:
    a, b = (read(encode(value)).value for value in ({"p": {"x": array()}, "s": 1}, {"p": {"y": array()}}))

    whole = merged({"a": a, "b": b})

    assert list(whole["p"]) == ["x", "y"]
    assert list(a["p"]) == ["x"]
    with pytest.raises(IntegrityError, match="same part"):
        merged({"a": a, "b": a})


def test_a_part_is_cut_out_by_name() -> None:
    value = {"a": {"x": 1, "y": [2, {"z": 3}]}, "b": {}}

    assert part_of(value, lambda name: name == "a.y.1.z") == {"a": {"y": [None, {"z": 3}]}}
    assert part_of(value, lambda name: name in {"a", "b"}) == value
    assert isinstance(read(SMALL).value["params"]["w"], Array)


def many(**changed: Any) -> dict[str, Any]:
    """Return many arrays under short names, which are read in one go."""
    return {f"é{n}": array((2, n % 3 + 1), data=bytes(8 * (n % 3 + 1))) for n in range(300)} | changed


def test_arrays_after_one_another_are_read_like_single_ones() -> None:
    content = encode(many(é100={"inner": array()}, é150=7, é200=array(code=3), é250=array((4,), "int8", b"abcd")))

    arrays = read(content).arrays

    assert list(arrays) == [f"é{n}" + ".inner" * (n == 100) for n in range(300) if n != 150]
    for n in (0, 1, 99, 101, 149, 151, 199, 201, 249, 251, 299):
        found = arrays[f"é{n}"]
        assert (found.dtype, found.shape, found.nbytes) == ("float32", (2, n % 3 + 1), 8 * (n % 3 + 1))
    (span,) = arrays["é250"].spans
    assert content[span.start : span.stop] == b"abcd"
    assert arrays["é200"].is_scalar


@pytest.mark.parametrize("key", ["é7", "é149"])
def test_a_name_that_occurs_again_among_many_is_refused(key: str) -> None:
    content = encode(many()).replace(encode("é150"), encode(key), 1)
    with pytest.raises(FormatError, match="a key occurs twice"):
        read(content)


def test_many_arrays_that_were_changed_anywhere_are_values_or_errors() -> None:
    whole = encode(many())
    chance = random.Random(4)
    for _ in range(300):
        data = bytearray(whole)
        data[chance.randrange(len(data))] = chance.randrange(256)
        with suppress(TensorkeepError):
            read(bytes(data))
    for stop in range(0, len(whole), 97):
        with pytest.raises(FormatError):
            read(whole[:stop])
