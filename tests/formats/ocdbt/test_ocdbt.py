"""Databases whose bytes are wrong, although their checksums are right: one of our errors, quickly."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tensorkeep.digests import crc32c
from tensorkeep.errors import FormatError, IntegrityError, LimitError, TensorkeepError, UnsupportedError
from tensorkeep.formats.ocdbt import Location, newest_of, parse_manifest, read_database
from tensorkeep.formats.protobuf import emit_varint
from tensorkeep.transport import ByteRange

MANIFEST, NODE = bytes.fromhex("0cdb3a2a"), bytes.fromhex("0cdb20de")


def wrapped(magic: bytes, body: bytes, *, is_zstd: bool = False, version: int = 0) -> bytes:
    """Return a structure with a right length and checksum."""
    content = zstandard.ZstdCompressor().compress(body) if is_zstd else body
    length = 4 + 8 + 2 + len(content) + 4
    data = magic + struct.pack("<Q", length) + bytes([version, is_zstd]) + content
    return data + struct.pack("<I", crc32c(data))


def numbers(*values: int) -> bytes:
    return b"".join(map(emit_varint, values))


def file_table(*paths: bytes) -> bytes:
    shared = numbers(*([0] * (len(paths) - 1)))
    return numbers(len(paths)) + shared + numbers(*map(len, paths)) + numbers(*([0] * len(paths))) + b"".join(paths)


def manifest(length: int, *, path: bytes = b"d/x", height: int = 0, start: int = 0, n_keys: int = 1) -> bytes:
    config = bytes(16) + numbers(0, 100, 1000) + bytes([4]) + numbers(0)
    versions = numbers(1, 1) + bytes([height]) + numbers(0, start, length, n_keys, length, 0) + bytes(8)
    return wrapped(MANIFEST, config + file_table(path) + versions + numbers(0))


def leaf(keys: Sequence[bytes], values: Sequence[bytes], *, files: bytes = file_table()) -> bytes:
    return (
        bytes([0])
        + files
        + numbers(len(keys))
        + numbers(*([0] * (len(keys) - 1)))
        + numbers(*map(len, keys))
        + b"".join(keys)
        + numbers(*map(len, values))
        + numbers(*([0] * len(keys)))
        + b"".join(values)
    )


def interior(keys: Sequence[bytes], spans: Sequence[tuple[int, int]], *, height: int = 1, common: int = 0) -> bytes:
    starts, lengths = zip(*spans, strict=True)
    n = len(keys)
    statistics = numbers(*([1] * 3 * n))
    return (
        bytes([height])
        + file_table(b"d/x")
        + numbers(n)
        + numbers(*([0] * (n - 1)))
        + numbers(*map(len, keys))
        + numbers(*([common] * n))
        + b"".join(keys)
        + numbers(*([0] * n), *starts, *lengths)
        + statistics
    )


def read(manifest_data: bytes, file: bytes) -> dict[bytes, bytes | Location]:
    def fetch(places: Sequence[Location]) -> list[bytes]:
        return [file[span.start : span.stop] for _, span in places]

    return read_database(parse_manifest(manifest_data), fetch, "dir")


LEAF = leaf([b"a", b"b/c"], [b"one", b""])
OUT_OF_LINE = bytes([0]) + file_table(b"d/y") + numbers(1) + numbers(1) + b"k" + numbers(5, 1, 0, 7)


@pytest.mark.parametrize("is_zstd", [False, True])
def test_values_within_nodes_and_elsewhere_are_found(is_zstd: bool) -> None:
    node = wrapped(NODE, LEAF, is_zstd=is_zstd)
    assert read(manifest(len(node)), node) == {b"a": b"one", b"b/c": b""}
    node = wrapped(NODE, OUT_OF_LINE, is_zstd=is_zstd)
    assert read(manifest(len(node)), node) == {b"k": ("d/y", ByteRange(7, 12))}


def test_prefixes_and_levels_are_joined() -> None:
    below = wrapped(NODE, LEAF)
    above = wrapped(NODE, interior([b"p/", b"q/"], [(0, len(below)), (0, len(below))], common=2))
    file = below + above
    root = manifest(len(above), height=1, start=len(below))
    assert list(read(root, file)) == [b"p/a", b"p/b/c", b"q/a", b"q/b/c"]


def test_a_database_without_keys_is_empty() -> None:
    assert read(manifest(0, path=b"", start=2**64 - 1, n_keys=0), b"") == {}


@pytest.mark.parametrize(
    "body",
    [
        leaf([b"b", b"a"], [b"", b""]),  # out of order
        leaf([b"a", b"a"], [b"", b""]),  # twice
        leaf([], []),
        LEAF[:-1],
        LEAF + b"x",
        b"\x01" + LEAF[1:],  # another height
        OUT_OF_LINE[:-2] + numbers(1, 7),  # a file that is not listed
        bytes([0]) + numbers(2**62),  # files
        bytes([0]) + file_table() + numbers(2**40),  # keys
        bytes([0]) + file_table() + numbers(2) + numbers(9) + numbers(1, 1) + b"ab",  # shares more than there is
        bytes([0]) + file_table() + numbers(1) + numbers(1) + b"k" + numbers(5, 2),  # another kind of value
        bytes([0]) + file_table(b"../x") + OUT_OF_LINE[1 + len(file_table(b"d/y")) :],
        bytes([0]) + file_table(b"\xff") + OUT_OF_LINE[1 + len(file_table(b"d/y")) :],
        bytes([0]) + file_table() + b"\xff" * 40,
        OUT_OF_LINE[:-3] + numbers(0) + b"\xff" * 9 + b"\x01",  # byte 2^64 - 1
    ],
)
def test_nodes_that_cannot_be_are_refused(body: bytes) -> None:
    node = wrapped(NODE, body)
    with pytest.raises((FormatError, LimitError)):
        read(manifest(len(node)), node)


@pytest.mark.parametrize("path", [b"/etc/passwd", b"../x", b"a\0", b"C:x", b"", b"a//b"])
def test_no_file_is_elsewhere(path: bytes) -> None:
    with pytest.raises(FormatError):
        parse_manifest(manifest(10, path=path))


def test_checksums_lengths_and_versions_are_compared() -> None:
    whole = manifest(10)
    for place in range(len(whole)):
        with pytest.raises((FormatError, IntegrityError)):
            parse_manifest(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises((FormatError, IntegrityError)):
            parse_manifest(whole[:place])
    with pytest.raises(UnsupportedError, match="later version"):
        parse_manifest(wrapped(MANIFEST, b"", version=1))


def test_a_node_that_unpacks_to_far_more_is_refused() -> None:
    node = wrapped(NODE, bytes(50_000_000), is_zstd=True)
    assert len(node) < 10_000
    with pytest.raises(FormatError, match="more than they may"):
        read(manifest(len(node)), node)


def test_a_tree_that_leads_to_itself_is_refused() -> None:
    n = 300
    bottom = wrapped(NODE, LEAF)
    file = bottom
    spans = (0, len(bottom))
    for height in range(1, 12):  # 2^11 paths to one leaf, with equal keys
        node = wrapped(NODE, interior([b"a", b"b"], [spans, spans], height=height))
        spans = (len(file), len(node))
        file += node
    with pytest.raises(FormatError):
        read(manifest(spans[1], height=11, start=spans[0]), file)
    wide = wrapped(NODE, interior([b"%03d" % k for k in range(n)], [(0, len(bottom))] * n, common=3))
    assert len(read(manifest(len(wide), height=1, start=len(bottom)), bottom + wide)) == 2 * n


def test_a_long_key_is_not_repeated_without_end() -> None:
    n = 20_000
    long = b"k" * 60_000
    body = bytes([0]) + file_table() + numbers(n) + numbers(*([60_000] * (n - 1)))
    body += numbers(60_000, *([3] * (n - 1))) + long + b"".join(b"%03d" % (k % 1000) for k in range(n - 1))
    node = wrapped(NODE, body, is_zstd=True)
    with pytest.raises((LimitError, FormatError)):
        read(manifest(len(node)), node)


def test_a_long_prefix_is_not_put_before_many_keys() -> None:
    keys = [b"%05d" % number for number in range(20_000)]
    below = wrapped(NODE, leaf(keys, [b""] * len(keys)), is_zstd=True)
    above = wrapped(NODE, interior([b"a" * 100_000], [(0, len(below))], common=100_000), is_zstd=True)
    with pytest.raises(LimitError, match="too many rows"):
        read(manifest(len(above), height=1, start=len(below)), below + above)


def test_rows_are_counted_before_they_are_read() -> None:
    body = bytes([0]) + file_table() + numbers(2_000_000) + bytes(6_000_000)
    node = wrapped(NODE, body)
    with pytest.raises(LimitError, match="2,000,000"):
        read(manifest(len(node)), node)


def test_the_newest_numbered_manifest_is_chosen() -> None:
    names = ["manifest.ocdbt", "manifest.0000000000000002", "manifest.000000000000000a", "manifest.x"]
    assert newest_of(names) == "manifest.000000000000000a"
    assert newest_of(["d"]) is None


@given(st.integers(0, len(LEAF) - 1), st.binary(max_size=6), st.sampled_from([LEAF, OUT_OF_LINE]))
def test_any_change_is_a_value_or_an_error_of_ours(place: int, content: bytes, body: bytes) -> None:
    node = wrapped(NODE, body[:place] + content + body[place + len(content) :])
    try:
        read(manifest(len(node)), node)
    except TensorkeepError:
        return
