"""What TensorFlow writes elsewhere, or wrote once: Snappy blocks, big-endian files, parts; and parts that lie."""

from __future__ import annotations

import struct
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorkeep
from tensorkeep.digests import crc32c, masked
from tensorkeep.errors import FormatError, IntegrityError, RefusedError
from tensorkeep.formats.tensorflow._snappy import decompress
from tests.support.formats.crafted_bundle import bundle, entry, header, parted, table, varint, written
from tests.support.formats.tensorflow_files import read_by_tensorflow

ARRAYS = {
    f"model/layer{number:02d}/{part}": (np.arange(12) * number).reshape(3, 4).astype(dtype)
    for number in range(20)
    for part, dtype in (("kernel", np.float32), ("steps", np.int64), ("bias", np.int32))
}


def test_tensorflow_reads_the_same_from_what_is_crafted_here(tmp_path: Path) -> None:
    path = bundle(tmp_path, ARRAYS, compression=1, n_per_block=7)

    expected = read_by_tensorflow(path)

    assert len(path.with_name("crafted.index").read_bytes()) < 3_500
    with tensorkeep.open(path) as opened:
        assert set(opened) == set(expected)
        for name, lazy in opened.items():
            assert (lazy.load().dtype.name, lazy.shape, lazy.load().tobytes()) == expected[name]


@pytest.mark.parametrize("compression", [0, 1], ids=["plain", "snappy"])
def test_big_endian_files_are_converted(tmp_path: Path, compression: int) -> None:
    path = bundle(tmp_path, ARRAYS, compression=compression, is_big_endian=True)

    with tensorkeep.open(path) as opened:
        for name, array in ARRAYS.items():
            assert np.array_equal(opened[name].load(), array)
            assert np.array_equal(opened[name][1:, ::2], array[1:, ::2])
    assert tensorkeep.verify(path).is_whole
    tensorkeep.convert(path, tmp_path / "converted.safetensors")
    assert tensorkeep.diff(path, tmp_path / "converted.safetensors").is_equal


@given(st.binary(max_size=3_000) | st.text("ab", max_size=3_000).map(str.encode))
def test_what_snappy_compresses_is_unpacked(data: bytes) -> None:
    assert decompress(pa.compress(data, "snappy", asbytes=True), len(data)) == data


@given(st.binary(max_size=100))
def test_any_bytes_are_a_snappy_block_or_refused(data: bytes) -> None:
    with suppress(FormatError, RefusedError):
        assert len(decompress(data, 1000)) <= 1000


LYING_SNAPPY = {
    "no length": b"",
    "a length without an end": b"\xff\xff",
    "longer than allowed": varint(10**9) + b"\0a",
    "shorter than its length": varint(3) + b"\0a",
    "longer than its length": varint(1) + b"\x08abc",
    "a literal beyond the end": varint(9) + b"\x20abc",
    "a long literal beyond the end": varint(9) + b"\xfc\xff\xff\xff\xff",
    "a copy of nothing": varint(9) + b"\x01\x00",
    "a copy from before the beginning": varint(9) + b"\0a\x01\x02",
    "a copy with offset 0": varint(9) + b"\0a\x01\x00",
    "a copy cut off": varint(9) + b"\0a\xfe\x01",
}


@pytest.mark.parametrize("data", LYING_SNAPPY.values(), ids=LYING_SNAPPY)
def test_snappy_blocks_that_lie_are_refused(data: bytes) -> None:
    with pytest.raises((FormatError, RefusedError)):
        decompress(data, 1000)


def test_parts_make_a_whole(tmp_path: Path) -> None:
    path = parted(tmp_path, (4, 3), ((0, 1), (0, -1)), ((1, 3), (0, 2)), ((1, 3), (2, 1)))

    with tensorkeep.open(path) as opened:
        assert opened["w"].load().tolist() == [[0, 1, 2], [0, 1, 0], [2, 3, 1], [4, 5, 2]]
    assert tensorkeep.verify(path).is_whole
    assert read_by_tensorflow(path)["w"][1] == (4, 3)


def test_parts_without_elements_are_listed_as_a_whole(tmp_path: Path) -> None:
    path = parted(tmp_path, (0, 4), ((0, -1), (0, 2)), ((0, -1), (2, 2)))

    with tensorkeep.open(path) as opened:
        assert [lazy.shape for lazy in opened.values()] == [opened["w"].shape] == [(0, 4)]
        assert opened["w"].load().shape == (0, 4)


@pytest.mark.parametrize(
    ("parts", "match"),
    [
        ([((0, 1),), ((2, 2),)], "is missing"),
        ([((1, 3),)], "is missing"),
        ([((0, 3),), ((2, 2),)], "is in two pieces"),
        ([((0, 4),), ((1, 2),)], "is in two pieces"),
        ([((0, 2),), ((2, 9),)], "is outside its shape"),
    ],
    ids=["a hole", "nothing at first", "an overlap", "one in another", "beyond the end"],
)
def test_parts_that_do_not_fit_are_refused(
    tmp_path: Path, parts: list[tuple[tuple[int, int], ...]], match: str
) -> None:
    with pytest.raises(IntegrityError, match=match):
        tensorkeep.open(parted(tmp_path, (4,), *parts))


def test_a_part_without_elements_does_no_harm(tmp_path: Path) -> None:
    with tensorkeep.open(parted(tmp_path, (4,), ((0, 0),), ((0, 4),))) as opened:
        assert opened["w"].load().tolist() == [0, 1, 2, 3]


def test_a_part_that_is_listed_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="once"):
        tensorkeep.open(parted(tmp_path, (4,), ((0, 2),), ((2, 2),), doubled=True))


def test_a_part_that_no_tensor_lists_is_refused(tmp_path: Path) -> None:
    index = table({b"": header(), b"\0w\0\1\1\1\x80\x82": entry("int32", (2,), 0, bytes(8))})

    with pytest.raises(FormatError, match="no tensor"):
        tensorkeep.open(written(tmp_path, index, bytes(8)))


def strings(*texts: bytes, change: int = 0) -> bytes:
    """Return the bytes of a tensor of strings."""
    sizes = b"".join(struct.pack("<I", len(text)) for text in texts)
    lengths = b"".join(varint(len(text) + change) for text in texts)
    return lengths + struct.pack("<I", masked(crc32c(sizes))) + b"".join(texts)


def test_strings_are_read(tmp_path: Path) -> None:
    data = strings(b"a", b"", b"bc" * 200)
    index = table({b"": header(), b"text": entry("string", (3,), 0, data)})

    with tensorkeep.open(written(tmp_path, index, data)) as opened:
        assert opened.strings["text"].load().tolist() == [b"a", b"", b"bc" * 200]


@pytest.mark.parametrize(
    "data",
    [
        strings(b"a", b"b", b"c", change=1),
        strings(b"a", b"b", b"c")[:-1],
        strings(b"a", b"b", b"c") + b"d",
        b"\xff" * 12,
        b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f\0\0" + bytes(4),
        strings(b"abc"),
    ],
    ids=["other lengths", "cut off", "more", "without an end", "huge", "fewer"],
)
def test_strings_that_lie_are_refused(tmp_path: Path, data: bytes) -> None:
    index = table({b"": header(), b"text": entry("string", (3,), 0, data)})

    with tensorkeep.open(written(tmp_path, index, data)) as opened, pytest.raises(FormatError):
        opened.strings["text"].load()


def test_what_objects_are_is_not_believed(tmp_path: Path) -> None:
    graph = b"\x0a\x0a\x0a\x08\x08\xff\xff\xff\xff\x0f\x12\x00" * 3  # children at places that there are not
    data = strings(graph)
    index = table({
        b"": header(),
        b"_CHECKPOINTABLE_OBJECT_GRAPH": entry("string", (), 0, data),
        b"w": entry("int32", (2,), len(data), bytes(8)),
    })

    with tensorkeep.open(written(tmp_path, index, data + bytes(8))) as opened:
        assert "a/b" not in opened
        assert list(opened) == ["w"]


def test_a_lying_description_of_objects_is_an_error_only_where_it_is_used(tmp_path: Path) -> None:
    data = strings(b"\xff\xff")
    index = table({
        b"": header(),
        b"_CHECKPOINTABLE_OBJECT_GRAPH": entry("string", (), 0, data),
        b"w": entry("int32", (2,), len(data), bytes(8)),
    })

    with tensorkeep.open(written(tmp_path, index, data + bytes(8))) as opened:
        assert opened["w"].load().tolist() == [0, 0]
        with pytest.raises(FormatError, match="message"):
            _ = opened.metadata


def test_a_flipped_bit_of_data_is_found(tmp_path: Path) -> None:
    path = bundle(tmp_path, ARRAYS)
    data = path.with_name("crafted.data-00000-of-00001")
    content = bytearray(data.read_bytes())
    content[100] ^= 1
    data.write_bytes(content)

    (finding,) = tensorkeep.verify(path).findings
    assert finding.tensor in ARRAYS
    with pytest.raises(IntegrityError):
        tensorkeep.convert(path, tmp_path / "converted")
