"""GGUF headers: what the gguf package writes is read as it was written, and a file that lies is refused."""

from __future__ import annotations

import contextlib
import math
import struct
import time
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import GGUFEndian, GGUFValueType, GGUFWriter
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorkeep.errors import FormatError, LimitError, TensorkeepError
from tensorkeep.formats.gguf import GGML_TYPES, GGML_TYPES_BY_NAME, RETIRED_TYPES, GgufContents, parse_gguf
from tensorkeep.transport import ByteRange, MemorySource
from tests.support.formats.crafted_gguf import crafted, entry, info, text

F32, F16, Q4_0, Q8_0 = (GGML_TYPES_BY_NAME[name].number for name in ("F32", "F16", "Q4_0", "Q8_0"))


def read(content: bytes) -> GgufContents:
    source = MemorySource(content, "a.gguf")
    contents = parse_gguf(source)
    contents.check_ranges(source)
    return contents


def small(order: str = "<") -> bytes:
    entries = [
        entry("general.architecture", "string", "llama", order),
        entry("tokens", "array:string", ["a", "", "<unused>"], order),
        entry("flags", "array:bool", [1, 0], order),
        entry("nested", "array:array:i16", [[1, -2], []], order),
    ]
    infos = [info("w", (2, 3), F32, 0, order), info("q", (2, 32), Q8_0, 32, order)]
    return crafted(entries, infos, bytes(32 + 2 * 34), order=order)


class TestWhatTheReferenceWrites:
    @pytest.mark.parametrize("endianess", [GGUFEndian.LITTLE, GGUFEndian.BIG])
    def test_keys_of_every_type(self, tmp_path: Path, endianess: GGUFEndian) -> None:
        writer = GGUFWriter(tmp_path / "a.gguf", "llama", endianess=endianess)
        numbers: dict[str, tuple[GGUFValueType, Any]] = {
            "u8": (GGUFValueType.UINT8, 255),
            "i8": (GGUFValueType.INT8, -128),
            "u16": (GGUFValueType.UINT16, 65535),
            "i16": (GGUFValueType.INT16, -2),
            "u32": (GGUFValueType.UINT32, 2**32 - 1),
            "i32": (GGUFValueType.INT32, -3),
            "f32": (GGUFValueType.FLOAT32, 0.5),
            "bool": (GGUFValueType.BOOL, True),
            "string": (GGUFValueType.STRING, "Grüße 🙂\0\n"),
            "u64": (GGUFValueType.UINT64, 2**64 - 1),
            "i64": (GGUFValueType.INT64, -(2**63)),
            "f64": (GGUFValueType.FLOAT64, math.pi),
        }
        for key, (type_, value) in numbers.items():
            writer.add_key_value(f"k.{key}", value, type_)
        writer.add_array("texts", ["a", "", "▁token", "x" * 300])
        writer.add_array("numbers", [1, 2, 3])
        writer.add_array("floats", [0.5, math.inf, -math.inf])
        writer.add_array("flags", [True, False])
        writer.add_array("bytes", [b"\xff\xfe", b"fine"])
        writer.add_key_value("raw", b"\xff\xfe", GGUFValueType.STRING)
        writer.add_array("nested", [[1, 2], [3]])
        writer.add_array("deep", [[["a"], ["b", "c"]], [["d"]]])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

        contents = read((tmp_path / "a.gguf").read_bytes())

        found = contents.attributes
        for key, (_, value) in numbers.items():
            assert found[f"k.{key}"] == value
            assert type(found[f"k.{key}"]) is type(value)
            assert contents.types[f"k.{key}"] == key
        assert found["general.architecture"] == "llama"
        assert found["texts"] == ("a", "", "▁token", "x" * 300)
        assert found["numbers"] == (1, 2, 3)
        assert found["floats"] == (0.5, math.inf, -math.inf)
        assert found["flags"] == (True, False)
        assert found["bytes"] == (b"\xff\xfe", "fine")
        assert found["raw"] == b"\xff\xfe"
        assert found["nested"] == ((1, 2), (3,))
        assert found["deep"] == ((("a",), ("b", "c")), (("d",),))
        assert contents.types["nested"] == "[[i32]]"
        assert contents.types["deep"] == "[[[string]]]"
        assert contents.is_big_endian is (endianess == GGUFEndian.BIG)

    @pytest.mark.parametrize("type_", gguf.GGMLQuantizationType, ids=lambda type_: type_.name)
    def test_tensors_of_every_type(self, tmp_path: Path, type_: gguf.GGMLQuantizationType) -> None:
        n_per_block, block_nbytes = gguf.GGML_QUANT_SIZES[type_]
        rows = np.arange(6 * block_nbytes, dtype=np.uint8).reshape(3, 2 * block_nbytes)
        writer = GGUFWriter(tmp_path / "a.gguf", "llama")
        writer.add_custom_alignment(64)
        writer.add_tensor("first", rows, raw_dtype=type_)
        writer.add_tensor("second", rows, raw_dtype=type_)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        content = (tmp_path / "a.gguf").read_bytes()

        contents = read(content)

        expected = gguf.GGUFReader(tmp_path / "a.gguf").tensors[1]
        place = contents.tensors["second"]
        assert place.dtype == type_.name
        assert place.shape == tuple(int(extent) for extent in reversed(expected.shape)) == (3, 2 * n_per_block)
        assert place.start == expected.data_offset
        ours = GGML_TYPES[type_.value]
        assert (ours.name, ours.n_per_block) == (type_.name, n_per_block)
        if type_.name != "Q8_1":  # gguf 0.19 has the size that it had before its scales became half as wide
            assert ours.block_nbytes == block_nbytes
        assert ours.raw_shape(place.shape)[-1] == 2 * ours.block_nbytes

    def test_types_that_the_package_does_not_know_yet(self) -> None:
        known = {type_.value for type_ in gguf.GGMLQuantizationType}

        assert set(GGML_TYPES) - known == {42}
        assert not set(RETIRED_TYPES) & set(GGML_TYPES)


class TestWhatIsRead:
    @pytest.mark.parametrize("order", ["<", ">"])
    @pytest.mark.parametrize("version", [2, 3])
    def test_versions_and_byte_orders(self, order: str, version: int) -> None:
        contents = read(
            crafted(
                [entry("k", "u16", 258, order)],
                [info("w", (2,), F32, 0, order)],
                bytes(8),
                order=order,
                version=version,
            )
        )

        assert contents.attributes == {"k": 258}
        assert contents.version == version
        assert contents.tensors["w"].is_big_endian is (order == ">")

    def test_extents_are_reversed_and_a_scalar_has_none(self) -> None:
        contents = read(crafted([], [info("w", (2, 3, 4), F16, 0), info("s", (), F32, 64)], bytes(68)))

        assert contents.tensors["w"].shape == (2, 3, 4)
        assert contents.tensors["s"].shape == ()

    def test_tensors_in_any_order_with_gaps_and_empty_ones(self) -> None:
        infos = [info("b", (2,), F32, 64), info("e", (0, 3), F32, 0), info("a", (8,), F32, 0)]

        assert list(read(crafted([], infos, bytes(96))).tensors) == ["b", "e", "a"]

    def test_a_file_without_tensors_ends_with_its_header(self) -> None:
        assert not read(crafted([entry("k", "string", "v")])[:-1][: 24 + 9 + 4 + 9]).tensors

    @pytest.mark.parametrize(("number", "what"), [(4, "Q4_2, which ggml no longer has"), (146, "a fork may know it")])
    def test_types_that_nobody_knows_are_listed_as_unknown(self, number: int, what: str) -> None:
        contents = read(crafted([], [info("w", (2, 32), number, 0), info("v", (2,), F32, 64)], bytes(72)))

        assert list(contents.tensors) == ["v"]
        assert what in str(contents.unknowns["w"])
        assert str(number) in str(contents.unknowns["w"])

    def test_long_headers_are_read_in_few_pieces(self) -> None:
        spans: list[ByteRange] = []

        class Counting(MemorySource):
            def read(self, span: ByteRange) -> Any:
                spans.append(span)
                return super().read(span)

        tokens = [f"token{number}" for number in range(300_000)]
        infos = [info(f"blk.{number}.weight", (2,), F32, 32 * number) for number in range(50_000)]
        content = crafted([entry("tokens", "array:string", tokens), entry("k", "u8", 1)], infos, bytes(32 * 50_000))

        contents = parse_gguf(Counting(content, "a.gguf"))

        assert contents.attributes["tokens"] == tuple(tokens)
        assert len(contents.tensors) == 50_000
        assert len(spans) == 3
        assert [span.start for span in spans[1:]] == [span.stop for span in spans[:-1]]


A = entry("k", "u8", 1)
W = info("w", (2,), F32, 0)

BROKEN = {
    "no magic": (b"GGML" + small()[4:], "not a GGUF file"),
    "version 1": (crafted(version=1), "version 1 of GGUF"),
    "version 0": (crafted(version=0), "unknown version"),
    "version 4": (crafted(version=4), "unknown version"),
    "too many keys": (crafted([A], n_entries=2**60), "more keys than fit"),
    "too many tensors": (crafted([A], [W], bytes(8), n_infos=2**63), "more tensors than fit"),
    "a long key": (crafted([struct.pack("<Q", 2**63) + b"k" + bytes(40)]), "ends within its header"),
    "a long name": (crafted([], [struct.pack("<Q", 2**64 - 1) + b"w" + bytes(40)]), "ends within its header"),
    "a key twice": (crafted([A, A]), "a key occurs twice"),
    "a name twice": (crafted([], [W, info("w", (2,), F32, 32)], bytes(40)), "`w` occurs twice"),
    "an unknown name twice": (crafted([], [W, info("w", (2,), 200, 32)], bytes(40)), "`w` occurs twice"),
    "a key that is not UTF-8": (crafted([entry(b"\xff", "u8", 1)]), "a key is not UTF-8"),
    "a name that is not UTF-8": (
        crafted([], [info(b"\xff", (2,), F32, 0)], bytes(8)),
        "name of a tensor is not UTF-8",
    ),
    "a value of type 13": (
        crafted([text("k") + struct.pack("<I", 13) + bytes(64)]),
        "unknown type under the key 'k'",
    ),
    "elements of type 13": (crafted([text("k") + struct.pack("<IIQ", 9, 13, 1) + bytes(64)]), "unknown type"),
    "a bool of 2": (crafted([entry("k", "bool", 2)]), "neither 0 nor 1 under the key 'k'"),
    "bools of 2": (crafted([entry("k", "array:bool", [0, 1, 2])]), "neither 0 nor 1"),
    "a long array": (crafted([text("k") + struct.pack("<IIQ", 9, 4, 2**62) + bytes(64)]), "does not fit the file"),
    "a long array of texts": (crafted([text("k") + struct.pack("<IIQ", 9, 8, 2**60) + bytes(64)]), "does not fit"),
    "a long array of arrays": (crafted([text("k") + struct.pack("<IIQ", 9, 9, 2**60) + bytes(64)]), "does not fit"),
    "a long text in an array": (
        crafted([text("k") + struct.pack("<IIQQ", 9, 8, 2, 2**63) + bytes(64)]),
        "ends within its header",
    ),
    "alignment 0": (crafted([entry("general.alignment", "u32", 0)]), "no alignment"),
    "alignment 48": (crafted([entry("general.alignment", "u32", 48)]), "no alignment"),
    "alignment as u64": (crafted([entry("general.alignment", "u64", 32)]), "no alignment"),
    "alignment as text": (crafted([entry("general.alignment", "string", "32")]), "no alignment"),
    "a start between": (crafted([], [info("w", (2,), F32, 4)], bytes(16)), "multiple of the alignment"),
    "a start beyond all": (crafted([], [info("w", (2,), F32, 2**64 - 32)], bytes(16)), "multiple of the alignment"),
    "a start at the end": (crafted([], [info("w", (2,), F32, 32)], bytes(32)), "ends before tensor `w`"),
    "cut data": (small()[:-1], "ends before tensor `q`"),
    "an overlap": (
        crafted([], [info("w", (9,), F32, 0), info("v", (2,), F32, 32)], bytes(64)),
        "`w` and `v` overlap",
    ),
    "rows too short for their type": (
        crafted([], [info("w", (2, 128), 42, 0), info("v", (2,), F32, 64)], bytes(72)),
        "written by a fork",
    ),
    "half a block": (crafted([], [info("w", (2, 48), Q4_0, 0)], bytes(64)), "not whole blocks"),
    "a quantized scalar": (crafted([], [info("w", (), Q4_0, 0)], bytes(64)), "not whole blocks"),
    "65 dimensions": (crafted([], [info("w", (1,) * 65, F32, 0)], bytes(64)), "65 dimensions"),
    "2**32 dimensions": (crafted([], [text("w") + struct.pack("<I", 2**32 - 1) + bytes(64)]), "dimensions"),
    "an endless extent": (crafted([], [info("w", (2**63,), F32, 0)], bytes(64)), "no tensor has the shape"),
    "a product that wraps": (crafted([], [info("w", (2**32, 2**32), F32, 0)], bytes(64)), "no tensor has the shape"),
    "blocks that wrap": (crafted([], [info("w", (2**40, 2**40), Q4_0, 0)], bytes(64)), "no tensor has the shape"),
}


class TestWhatIsRefused:
    @pytest.mark.parametrize("case", BROKEN)
    def test_files_that_lie(self, case: str) -> None:
        content, message = BROKEN[case]

        with pytest.raises(FormatError, match=message):
            read(content)

    def test_deep_and_endless_arrays(self) -> None:
        deep = entry("k", "array:" * 18 + "u8", _nested(18))
        with pytest.raises(LimitError, match="nested too deeply"):
            read(crafted([deep]))
        bomb = text("k") + struct.pack("<IIQ", 9, 0, 5_000_000) + bytes(5_000_000)
        with pytest.raises(LimitError, match="too long together"):
            read(crafted([bomb]))

    def test_a_header_longer_than_any(self) -> None:
        class Endless(MemorySource):
            def __init__(self) -> None:
                super().__init__(b"", "a.gguf")
                self.nbytes = 2**50

            def read(self, span: ByteRange) -> bytes:
                return (crafted([struct.pack("<Q", 2**40)]) + bytes(span.stop))[span.start : span.stop]

        with pytest.raises(LimitError, match="header is too long"):
            parse_gguf(Endless())

    @pytest.mark.parametrize("order", ["<", ">"])
    def test_truncation_at_every_byte(self, order: str) -> None:
        content = small(order)
        assert len(read(content).tensors) == 2

        for stop in range(len(content)):
            with pytest.raises(FormatError):
                read(content[:stop])

    def test_every_flipped_bit_is_read_or_refused_in_no_time(self) -> None:
        content = small()
        started = time.monotonic()
        for place in range(len(content)):
            for bit in range(8):
                changed = bytearray(content)
                changed[place] ^= 1 << bit
                _read_or_refuse(bytes(changed))
        assert time.monotonic() - started < 30

    @settings(max_examples=300, deadline=None)
    @given(st.binary(max_size=200), st.integers(0, 200))
    def test_bytes_of_chance(self, content: bytes, place: int) -> None:
        _read_or_refuse(content)
        _read_or_refuse(small()[:place] + content + small()[place:])


def _read_or_refuse(content: bytes) -> None:
    with contextlib.suppress(TensorkeepError):
        read(content)


def _nested(depth: int) -> Any:
    return 1 if not depth else [_nested(depth - 1)]
