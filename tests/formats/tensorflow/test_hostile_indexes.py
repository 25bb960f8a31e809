"""Indexes of TensorFlow's checkpoints that are broken or lie: a value or an error, soon and in little memory."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorkeep
from tensorkeep.digests import crc32c, masked
from tensorkeep.errors import FormatError, LimitError, RefusedError, TensorkeepError, UnsupportedError
from tensorkeep.formats.tensorflow import Bundle, read_bundle
from tensorkeep.formats.tensorflow._entries import EntryParser
from tensorkeep.transport import MemorySource
from tests.support.formats.crafted_bundle import (
    MAGIC,
    block,
    bundle,
    entry,
    file_of,
    handle,
    header,
    message,
    row,
    shape,
    stored,
    table,
    varint,
    with_footer,
    with_restarts,
    written,
)
from tests.support.peak_memory import with_peak
from tests.support.soak import SEED, rounds

ARRAYS = {
    f"layer{number}/{part}": np.arange(number + 2, dtype=dtype)
    for number in range(8)
    for part, dtype in (("kernel", np.float32), ("steps", np.int64), ("bias", np.int32))
}
WHOLE = entry("int32", (2,), 0, bytes(8))


def read(index: bytes) -> Bundle:
    return read_bundle(MemorySource(index))


def outcome(index: bytes) -> str:
    try:
        read(index)
    except TensorkeepError as error:
        return type(error).__name__
    return "value"


def blocks(*contents: bytes, last: bytes = b"\x7f") -> bytes:
    return file_of([(last, content) for content in contents])


@pytest.fixture(params=[0, 1], ids=["plain", "snappy"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> bytes:
    path = bundle(tmp_path, ARRAYS, compression=request.param, n_per_block=7)
    return path.with_name("crafted.index").read_bytes()


def test_an_index_cut_anywhere_is_refused(index: bytes) -> None:
    assert outcome(index) == "value"
    assert {outcome(index[:stop]) for stop in range(len(index))} == {"FormatError"}


def test_a_bit_changed_anywhere_is_refused_or_means_nothing(index: bytes) -> None:
    right = read(index)

    for place in range(len(index)):
        broken = bytearray(index)
        broken[place] ^= 1 << place % 8
        try:
            assert read(bytes(broken)) == right
        except FormatError:
            continue


@pytest.mark.soak
def test_a_bit_changed_below_the_checksums_gives_a_value_or_an_error() -> None:
    content = {b"": header(), **{name.encode(): entry("int32", (2, 3), 0, b"") for name in ("a", "ab", "b")}}
    plain = block(list(content.items()))
    random = Random(SEED)

    found = set()
    for _ in range(rounds(2_000, 1_000_000)):
        broken = bytearray(plain)
        for _ in range(random.choice((1, 1, 2, 5))):
            broken[random.randrange(len(broken))] = random.choice((0, 1, 127, 128, 255, random.randrange(256)))
        found.add(outcome(blocks(bytes(broken))))
    assert found <= {"value", "FormatError", "LimitError", "UnsupportedError"}


LYING_BLOCKS = {
    "a key that shares more than there is": row(b"", header()) + varint(3) + varint(1) + varint(0) + b"a",
    "a key beyond the block": row(b"", header()) + varint(0) + varint(99) + varint(0) + b"a",
    "a value beyond the block": row(b"", header()) + varint(0) + varint(1) + varint(99) + b"a",
    "a length beyond all files": row(b"", header()) + varint(0) + varint(2**63) + varint(2**63) + b"a",
    "a length without an end": row(b"", header()) + b"\xff" * 30,
    "the same key twice": row(b"", header()) + row(b"a", WHOLE) + row(b"a", WHOLE),
    "keys that are not sorted": row(b"", header()) + row(b"b", WHOLE) + row(b"a", WHOLE),
    "the header twice": row(b"", header()) + row(b"", header()),
}


@pytest.mark.parametrize("rows", LYING_BLOCKS.values(), ids=LYING_BLOCKS)
def test_rows_that_lie_are_refused(rows: bytes) -> None:
    with pytest.raises(FormatError):
        read(blocks(with_restarts(rows, [0])))


FIRST, SECOND = row(b"", header()), row(b"a", WHOLE)
LYING_RESTARTS = {
    "none": with_restarts(FIRST + SECOND, [], count=0),
    "none of the first": with_restarts(FIRST + SECOND, [len(FIRST)]),
    "within an entry": with_restarts(FIRST + SECOND, [0, 3]),
    "beyond the entries": with_restarts(FIRST + SECOND, [0, 1000]),
    "not in order": with_restarts(FIRST + SECOND, [0, len(FIRST), 0]),
    "of a key that is not whole": with_restarts(
        FIRST + SECOND + row(b"ab", WHOLE, n_shared=1), [0, len(FIRST + SECOND)]
    ),
    "more than bytes": with_restarts(FIRST + SECOND, [0], count=2**32 - 1),
    "in a block of three bytes": b"abc",
}


@pytest.mark.parametrize("content", LYING_RESTARTS.values(), ids=LYING_RESTARTS)
def test_restart_points_that_lie_are_refused(content: bytes) -> None:
    with pytest.raises(FormatError):
        read(blocks(content))


def of_handles(*handles: bytes, keys: tuple[bytes, ...] = (b"m", b"z"), flip: int = 0, compression: int = 0) -> bytes:
    """Return a table of two blocks whose index names other places."""
    first = stored(block([(b"", header()), (b"a", WHOLE)]), flip=flip, compression=compression)
    second = stored(block([(b"n", entry("int32", (2,), 8, bytes(8)))]))
    right = (handle(0, len(first) - 5), handle(len(first), len(second) - 5))
    pointers = list(zip(keys, handles or right, strict=False))
    return with_footer(first + second, block(pointers, interval=1))


LYING_HANDLES: dict[str, Callable[[], bytes]] = {
    "out of the file": lambda: of_handles(handle(10**6, 10)),
    "larger than the file": lambda: of_handles(handle(0, 2**62)),
    "of 64 bits": lambda: of_handles(handle(2**64 - 1, 2**64 - 1)),
    "longer than a number": lambda: of_handles(b"\xff" * 12),
    "with bytes after it": lambda: of_handles(handle(0, 30) + b"\0"),
    "the same block twice": lambda: of_handles(*2 * [of_first()]),
    "blocks that overlap": lambda: of_handles(of_first(), handle(4, 10)),
    "the block of handles itself": lambda: of_itself(),
    "none": lambda: with_footer(b"", block([])),
    "a key before its block's last": lambda: of_handles(keys=(b"Z", b"z")),
    "a key after the next block's first": lambda: of_handles(keys=(b"o", b"z")),
    "another checksum": lambda: of_handles(flip=1),
    "another compression": lambda: of_handles(compression=2),
    "no header": lambda: table({b"a": WHOLE}),
    "a block without bytes": lambda: of_handles(handle(0, 0)),
}


def of_first() -> bytes:
    return handle(0, len(stored(block([(b"", header()), (b"a", WHOLE)]))) - 5)


def of_itself() -> bytes:
    """Return a table whose only block is the one that says where it is."""
    pointers = block([(b"z", handle(0, len(block([(b"z", handle(0, 0))]))))])
    data = stored(pointers)
    meta = stored(block([]))
    places = handle(len(data), len(meta) - 5) + handle(0, len(pointers))
    return data + meta + places.ljust(40, b"\0") + MAGIC


@pytest.mark.parametrize("make", LYING_HANDLES.values(), ids=LYING_HANDLES)
def test_places_of_blocks_that_lie_are_refused(make: Callable[[], bytes]) -> None:
    with pytest.raises(FormatError):
        read(make())


def test_the_places_that_are_right_are_read() -> None:
    assert list(read(of_handles()).tensors) == ["a", "n"]


ENTRY = (1, 3), (2, shape(2)), (3, 0), (4, 0), (5, 8), (6, 0)


def changed(number: int, value: int | bytes) -> bytes:
    return message(*((each, value if each == number else old) for each, old in ENTRY))


LYING_ENTRIES = {
    "a dtype that there is not": changed(1, 99),
    "a reference": changed(1, 103),
    "another size": changed(5, 12),
    "a size beyond 64 bits": changed(5, 2**64 - 1),
    "a place beyond 64 bits": changed(4, 2**64 - 1),
    "a data file that there is not": changed(3, 1),
    "a negative data file": changed(3, 2**64 - 1),
    "a shape of 2**62 times 2**62": changed(2, shape(2**62, 2**62)),
    "a negative extent": changed(2, shape(2**64 - 1)),
    "an unknown shape": changed(2, message((3, 1))),
    "a shape that is a number": changed(2, 7),
    "a dtype that is a message": changed(1, b"\x03"),
    "a field twice": message(*ENTRY, (1, 3)),
    "a field cut off": message(*ENTRY)[:-1],
    "a group": message(*ENTRY) + b"\x3b",
    "a part that nothing has": message((1, 3), (2, shape(2)), (7, message((1, message((1, 0), (2, 1)))))),
    "a part with a negative start": message(
        (1, 3), (2, shape(2)), (7, message((1, message((1, 2**64 - 1), (2, 1)))))
    ),
    "strings without lengths": message((1, 7), (2, shape(10**6)), (5, 8)),
    "no strings at all": message((1, 7), (2, shape(0)), (5, 0)),
}


@pytest.mark.parametrize("value", LYING_ENTRIES.values(), ids=LYING_ENTRIES)
def test_entries_that_lie_are_refused(value: bytes) -> None:
    with pytest.raises(FormatError):
        read(table({b"": header(), b"w": value}))


def test_too_many_dimensions_are_refused() -> None:
    with pytest.raises(LimitError, match="dimensions"):
        read(table({b"": header(), b"w": changed(2, shape(*[1] * 5000))}))


def test_tensors_that_share_bytes_are_refused() -> None:
    same = {b"": header(), b"a": WHOLE, b"b": entry("int32", (2,), 4, bytes(8))}
    with pytest.raises(FormatError, match="share bytes"):
        read(table(same))


def test_names_that_are_not_text_are_refused() -> None:
    with pytest.raises(FormatError, match="UTF-8"):
        read(table({b"": header(), b"\xff": WHOLE}))


LYING_HEADERS = {
    "a negative number of files": (header(2**64 - 1), FormatError),
    "more files than 31 bits": (header(2**31), FormatError),
    "a byte order that there is not": (header(byte_order=2), FormatError),
    "a later version": (message((1, 1), (3, message((1, 2), (2, 2)))), UnsupportedError),
    "a version that excludes this one": (message((1, 1), (3, message((1, 1), (3, 1)))), UnsupportedError),
    "not a message": (b"\xff\xff", FormatError),
}


@pytest.mark.parametrize(("value", "error"), LYING_HEADERS.values(), ids=LYING_HEADERS)
def test_headers_that_lie_are_refused(value: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        read(table({b"": value, b"w": WHOLE}))


def test_a_billion_data_files_cost_nothing(tmp_path: Path) -> None:
    index = table({b"": header(2**31 - 1), b"w": entry("int32", (2,), 0, bytes(8), shard=10**9)})
    started = time.perf_counter()

    with pytest.raises(TensorkeepError, match="missing"):
        tensorkeep.open(written(tmp_path, index))
    assert time.perf_counter() - started < 5


def test_keys_that_unfold_are_refused_before_they_fill_the_memory() -> None:
    rows = row(b"", header()) + row(b"a" * 200_000, b"")
    rows += b"".join(varint(200_000 + number) + b"\1\0a" for number in range(2_000))
    index = blocks(with_restarts(rows, [0]), last=b"b")
    started = time.perf_counter()

    def refused() -> None:
        with pytest.raises(LimitError):
            read(index)

    _, peak = with_peak(refused)
    assert peak < 300_000_000
    assert time.perf_counter() - started < 5


def test_a_block_that_unfolds_is_refused_before_it_is_unfolded() -> None:
    bomb = varint(2**40) + b"\x00a" + b"\xfe\x01\x00" * 1000
    body = bomb + b"\1"
    whole = body + struct.pack("<I", masked(crc32c(body)))
    pointers = block([(b"z", handle(0, len(bomb)))])

    with pytest.raises(RefusedError):
        read(with_footer(whole, pointers))


def test_hostile_indexes_of_any_size_take_linear_time() -> None:
    def seconds(n_tensors: int) -> float:
        value = message((1, 3), (2, shape(0)))
        index = table({b"": header(), **{b"%09d" % number: value for number in range(n_tensors)}})
        started = time.process_time()
        assert len(read(index).tensors) == n_tensors
        return time.process_time() - started

    seconds(1_000)
    assert seconds(40_000) < 12 * max(seconds(10_000), 0.01)


NUMBERS = st.integers(0, 2**35) | st.sampled_from([0, 1, 127, 128, 2**63 - 1, 2**63, 2**64 - 1])


@st.composite
def values(draw: st.DrawFn) -> bytes:
    """Return an entry as TensorFlow writes it, or with some bytes changed."""
    fields = [(1, draw(st.integers(0, 40))), (2, shape(*draw(st.lists(NUMBERS, max_size=3))))]
    fields += [(number, draw(NUMBERS)) for number in (3, 4, 5) if draw(st.booleans())]
    value = bytearray(message(*fields, (6, draw(st.integers(0, 2**32 - 1)))))
    for place in draw(st.lists(st.integers(0, len(value) - 1), max_size=2)):
        value[place] = draw(st.sampled_from([0, 1, 2, 8, 18, 24, 32, 40, 53, 58, 127, 128, 255]))
    return bytes(value)


@given(values())
def test_usual_entries_are_read_as_field_by_field(value: bytes) -> None:
    def parsed(read: Callable[[], object]) -> object:
        try:
            return read()
        except TensorkeepError as error:
            return type(error)

    parser = EntryParser()
    expected = parsed(lambda: [EntryParser()._parse_any(value)] * 2)
    assert parsed(lambda: parser.parse([value, value])) == parsed(lambda: parser.parse([value, value])) == expected
