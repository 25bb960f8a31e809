"""`.npz` archives: stored and deflated members, zip64, other members, damage and bombs."""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorkeep.errors import ArchiveError, FormatError, LimitError, TensorkeepError
from tensorkeep.formats import FileContents
from tensorkeep.formats.archives import InflatedSource, Member, read_archive
from tensorkeep.formats.npy import is_npz, parse_npz
from tensorkeep.transport import ByteRange, LocalFile, MemorySource
from tests.support.npy_oracle import array_of, same
from tests.support.peak_memory import with_peak

ARRAYS: dict[str, npt.NDArray[Any]] = {
    "layer/weight": np.arange(6, dtype=">f4").reshape(2, 3),
    "layer/bias": np.asfortranarray(np.arange(12, dtype="<i8").reshape(3, 4)),
    "W": np.ones((4, 5), np.float16),
    "w": np.zeros(0, bool),
    "scalar": np.array(3 + 4j),
    "é:0": np.arange(1000.0),
}


def saved(compressed: bool = False, **arrays: npt.ArrayLike) -> bytes:
    buffer = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(buffer, **arrays)
    return buffer.getvalue()


def zipped(method: int = zipfile.ZIP_STORED, **members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def npy(array: npt.ArrayLike) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def read(data: bytes) -> FileContents:
    return parse_npz(MemorySource(data, "a.npz"))


@pytest.mark.parametrize("compressed", [False, True])
def test_all_arrays_are_those_that_numpy_loads(compressed: bool) -> None:
    data = saved(compressed, **ARRAYS)
    source = MemorySource(data)

    file = read(data)

    assert list(file.tensors) == list(ARRAYS)
    assert not file.unknowns
    with np.load(io.BytesIO(data)) as expected:
        assert all(same(array_of(source, array), expected[name]) for name, array in file.tensors.items())
    assert is_npz(source)


@pytest.mark.parametrize("compressed", [False, True])
def test_each_array_has_the_crc_of_its_member(compressed: bool) -> None:
    data = saved(compressed, **ARRAYS)
    source = MemorySource(data)

    for place in read(data).tensors.values():
        checksum = place.checksum
        assert checksum is not None
        contents = bytes((checksum.source or source).read(checksum.span))
        assert contents.startswith(b"\x93NUMPY")
        assert zlib.crc32(contents).to_bytes(4, "big") == checksum.expected


class _Pipe(io.BytesIO):
    def seekable(self) -> bool:
        return False

    def seek(self, *_: int) -> int:
        raise io.UnsupportedOperation

    def tell(self) -> int:
        raise io.UnsupportedOperation


@pytest.mark.parametrize("compressed", [False, True])
def test_an_archive_written_into_a_pipe(compressed: bool) -> None:
    pipe = _Pipe()
    (np.savez_compressed if compressed else np.savez)(pipe, **ARRAYS)  # sizes follow the data, in zip64 descriptors

    assert list(read(pipe.getvalue()).tensors) == list(ARRAYS)


def test_an_array_of_more_than_4_gib(tmp_path: Path) -> None:
    path = tmp_path / "large.npz"
    n = 2**32 + 8
    header = npy(np.zeros(0, np.uint8)).replace(b"(0,), }" + b" " * 10, f"({n},), }}".encode().ljust(17))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("first.npy", npy(np.arange(3.0)))
    with path.open("r+b") as file, zipfile.ZipFile(file, "a") as archive:
        info = zipfile.ZipInfo("large.npy")
        with archive.open(info, "w", force_zip64=True) as member:
            member.write(header)
            raw = member._fileobj  # type: ignore[attr-defined]
            raw.seek(n, os.SEEK_CUR)  # a hole in the file instead of 4 GiB of zeros
            member._file_size += n  # type: ignore[attr-defined]
        archive.writestr("last.npy", npy(np.arange(4.0)))

    source = LocalFile(str(path))
    array = parse_npz(source)

    assert array.tensors["large"].shape == (n,)
    assert array.tensors["large"].checksum is None or array.tensors["large"].checksum.span.stop > n
    assert same(array_of(source, array.tensors["last"]), np.arange(4.0))
    source.close()


def test_an_archive_without_arrays() -> None:
    assert not read(saved()).tensors


def test_other_members_and_objects_are_listed_and_never_run(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.system, (f"touch {tmp_path / 'ran'}",)

    data = zipped(**{
        "a.npy": npy(np.arange(3)),
        "evil.npy": npy(np.array([Evil()], dtype=object)),
        "notes.txt": b"text",
        "b": npy(np.arange(3)),
        "empty.npy": b"",
        "not.npy": b"text" * 50,
    })

    file = read(data)

    assert list(file.tensors) == ["a"]
    assert set(file.unknowns) == {"evil", "notes.txt", "b", "empty", "not"}
    assert "never run" in str(file.unknowns["evil"])
    assert not (tmp_path / "ran").exists()


def test_two_things_of_one_name_are_refused() -> None:
    record = npy(np.zeros(2, [("x", "<f4")]))

    with pytest.raises(FormatError, match="one name"):
        read(zipped(**{"a.npy": record, "a.x.npy": npy(np.zeros(2))}))
    with pytest.raises(FormatError, match="name of an array"):
        read(zipped(**{"a.npy": npy(np.zeros(2)), "a": b"text"}))


def test_a_broken_array_is_named() -> None:
    with pytest.raises(FormatError) as caught:
        read(zipped(**{"good.npy": npy(np.zeros(2)), "bad.npy": npy(np.zeros(2))[:-1]}))

    assert (caught.value.path, caught.value.tensor) == ("a.npz", "bad")


@pytest.mark.parametrize("name", ["../a.npy", "/a.npy", "a//b.npy", "a\\b.npy", "a\nb.npy", "./a.npy"])
def test_names_that_could_mean_another_place_are_refused(name: str) -> None:
    with pytest.raises(ArchiveError):
        read(zipped(**{name: npy(np.zeros(2))}))


@settings(max_examples=30)
@given(
    data=st.data(),
    contents=st.binary(min_size=1, max_size=5000).map(lambda part: part * 400),
)
def test_ranges_of_a_deflated_member(data: st.DataObject, contents: bytes) -> None:
    archive = zipped(zipfile.ZIP_DEFLATED, **{"x.npy": npy(np.frombuffer(contents, np.uint8))})
    source = InflatedSource(
        MemorySource(archive), read_archive(MemorySource(archive), has_top=False).members["x.npy"]
    )
    contents = npy(np.frombuffer(contents, np.uint8))

    for _ in range(4):
        start, stop = sorted(data.draw(st.integers(0, len(contents))) for _ in range(2))
        span = ByteRange(start, stop)
        assert bytes(source.read(span)) == contents[start:stop]
        assert b"".join(bytes(piece) for piece in source.pieces(span)) == contents[start:stop]


def deflated(contents: bytes) -> bytes:
    deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
    return deflater.compress(contents) + deflater.flush()


def test_a_deflated_member_must_be_what_is_declared() -> None:
    contents = bytes(range(256)) * 40
    stored = deflated(contents)

    def source(data: bytes, nbytes: int = len(contents), crc: int = zlib.crc32(contents)) -> InflatedSource:
        member = Member("x.npy", ByteRange(0, len(data)), nbytes, is_compressed=True, crc=crc)
        return InflatedSource(MemorySource(data), member)

    everything = ByteRange(0, len(contents))
    assert bytes(source(stored).read(everything)) == contents
    for broken in (
        source(stored[:-3]),
        source(stored + b"more"),
        source(stored, len(contents) + 1),
        source(stored, len(contents) - 1),
        source(stored, crc=1),
        source(b"\xff" + stored),
    ):
        with pytest.raises(ArchiveError):
            broken.read(ByteRange(0, broken.nbytes))
    with pytest.raises(LimitError):
        source(stored, 1032 * len(stored) + 1)


def test_an_array_of_zeros_needs_no_memory_but_for_what_is_read() -> None:
    def slice_of_zeros() -> bytes:
        deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
        stored = b"".join([*(deflater.compress(bytes(2**20)) for _ in range(256)), deflater.flush()])
        member = Member("x.npy", ByteRange(0, len(stored)), 2**28, is_compressed=True, crc=0)
        return bytes(InflatedSource(MemorySource(stored), member).read(ByteRange(2**28 - 10, 2**28)))

    result, peak = with_peak(slice_of_zeros)

    assert result == bytes(10)
    assert peak < 60 * 2**20


@settings(max_examples=200)
@given(st.data())
def test_any_changed_byte_gives_the_arrays_or_an_error(data: st.DataObject) -> None:
    original = bytearray(saved(data.draw(st.booleans()), a=np.arange(6.0), b=np.ones((2, 2), ">i2")))
    place = data.draw(st.integers(0, len(original) - 1))
    original[place] ^= data.draw(st.integers(1, 255))

    try:
        file = read(bytes(original))
        for array in file.tensors.values():
            array_of(MemorySource(bytes(original)), array)
    except TensorkeepError:
        pass


class CountedSource(MemorySource):
    """Counts the ranges that are read."""

    n_ranges = n_read = 0

    def read(self, span: ByteRange) -> Any:
        self.n_ranges += 1
        self.n_read += len(span)
        return super().read(span)

    def read_into(self, parts: Iterable[tuple[int, memoryview]]) -> None:
        listed = list(parts)
        self.n_ranges += len(listed)
        self.n_read += sum(len(into) for _, into in listed)
        super().read_into(listed)


@pytest.mark.parametrize("compressed", [False, True])
def test_each_member_is_looked_at_once(compressed: bool) -> None:
    """The header of an array is read with the local header before it, and a small array with both."""
    noise = np.random.default_rng(0)
    small = CountedSource(saved(compressed, **{f"{n}": noise.bytes(300) for n in range(1000)}))
    large = CountedSource(saved(compressed, **{f"{n}": np.frombuffer(noise.bytes(20_000)) for n in range(100)}))

    parse_npz(small)
    parse_npz(large)

    assert small.n_read < 1.5 * small.nbytes
    assert large.n_ranges < 110
