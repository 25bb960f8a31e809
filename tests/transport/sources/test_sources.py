"""What only some byte sources do; tests/contracts holds what all do."""

from __future__ import annotations

import gc
import io
import mmap
import os
from pathlib import Path
from typing import Any

import pytest

from tensorkeep.errors import SourceChangedError, TensorkeepError, TransportError, UnsupportedError
from tensorkeep.transport import ByteRange, LocalFile, MemorySource, StreamSource, open_source
from tensorkeep.transport.system import _platform

CONTENT = bytes(place % 251 for place in range(10_000))
BIG = bytes(range(256)) * (40 * 2**20 // 256)
"""More than one read, and enough that several threads read it."""


@pytest.fixture(params=["system calls", "portable fallbacks"])
def platform(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "portable fallbacks":
        monkeypatch.setattr(_platform, "HAS_POSITIONED_IO", False)


def test_short_reads_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "content"
    path.write_bytes(CONTENT)
    pread, preadv = os.pread, os.preadv
    monkeypatch.setattr(os, "pread", lambda fd, _, offset: pread(fd, 7, offset))
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, offset: preadv(fd, [buffers[0][:7]], offset))
    source = LocalFile(str(path), backend="pread")
    into = bytearray(990)

    source.read_into([(10, memoryview(into))])

    assert bytes(source.read(ByteRange(10, 1_000))) == into == CONTENT[10:1_000]


def test_a_failing_read_is_an_error_with_the_number_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "content"
    path.write_bytes(CONTENT)
    source = LocalFile(str(path), backend="pread")

    def fail(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "pread", fail)
    monkeypatch.setattr(os, "preadv", fail)
    for read in (lambda: source.read(ByteRange(0, 10)), lambda: source.read_into([(0, memoryview(bytearray(10)))])):
        with pytest.raises(TransportError, match=r"could not read the file.*Input/output error") as caught:
            read()
        assert caught.value.errno == 5
        assert caught.value.path == str(path)


def test_a_file_that_became_shorter_is_an_error(tmp_path: Path, platform: None) -> None:
    path = tmp_path / "content"
    path.write_bytes(BIG)
    source = LocalFile(str(path), backend="pread")
    os.truncate(path, len(BIG) // 2)

    with pytest.raises(SourceChangedError, match="became shorter"):
        source.read(ByteRange(len(BIG) - 10, len(BIG)))
    with pytest.raises(SourceChangedError, match="became shorter"):
        source.read_into([(0, memoryview(bytearray(len(BIG))))])
    assert bytes(source.read(ByteRange(0, 10))) == BIG[:10]


@pytest.mark.parametrize("left", [0, 4_096, 9_999])
def test_mapping_a_file_that_became_shorter_is_an_error_and_not_a_signal(tmp_path: Path, left: int) -> None:
    path = tmp_path / "content"
    path.write_bytes(CONTENT)
    source = LocalFile(str(path), backend="mmap")
    os.truncate(path, left)

    with pytest.raises(TransportError, match="could not map the file"):
        source.map(ByteRange(0, len(CONTENT)))
    with pytest.raises(TransportError, match="could not map the file"):
        source.map(ByteRange(9_000, len(CONTENT)))


def test_mappings_are_given_back(tmp_path: Path) -> None:
    path = tmp_path / "content"
    path.write_bytes(BIG)
    source = LocalFile(str(path), backend="mmap")

    def n_mapped() -> int:
        return Path("/proc/self/maps").read_text().count(str(path))

    kept = [source.map(ByteRange(place * 4_096, (place + 2) * 4_096)) for place in range(20)]
    parts = [memoryview(mapping[0])[5:9] for mapping in kept if mapping]
    del kept
    gc.collect()
    assert n_mapped() == 20
    assert all(part == BIG[5:9] for part in parts)
    parts.clear()
    gc.collect()
    assert n_mapped() == 0


@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_a_closed_file_gives_an_error_and_not_zeros(tmp_path: Path, backend: Any) -> None:
    path = tmp_path / "content"
    path.write_bytes(CONTENT)
    source = LocalFile(str(path), backend=backend)
    source.close()
    source.close()

    with pytest.raises(TransportError):
        source.read(ByteRange(0, 10))
    if backend == "mmap":
        with pytest.raises(TransportError):
            source.map(ByteRange(0, 10))


def test_a_file_that_nobody_closed_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "content"
    path.write_bytes(CONTENT)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        LocalFile(str(path)).map(ByteRange(0, 10))

    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_a_stream_stays_open_and_its_callers(tmp_path: Path) -> None:
    stream = io.BytesIO(CONTENT)
    source = StreamSource(stream)
    source.close()

    assert not stream.closed
    assert stream.read() is not None


class Trickle(io.RawIOBase):
    """A file object that gives less than was asked for, as raw ones may (io.RawIOBase.read)."""

    def __init__(self, content: bytes) -> None:
        self._whole = io.BytesIO(content)

    def read(self, size: int = -1) -> bytes:
        return self._whole.read(min(size, 7) if size >= 0 else 7)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._whole.seek(offset, whence)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


def test_a_stream_that_reads_little_at_a_time_is_read_whole() -> None:
    assert bytes(StreamSource(Trickle(CONTENT)).read(ByteRange(5, 500))) == CONTENT[5:500]  # type: ignore[arg-type]


def test_a_stream_that_ends_early_is_an_error() -> None:
    stream = io.BytesIO(CONTENT)
    source = StreamSource(stream)
    stream.truncate(100)

    with pytest.raises(SourceChangedError, match=r"ended early.*expected 50 bytes at 90.*found 10"):
        source.read(ByteRange(90, 140))


def test_what_cannot_seek_is_refused() -> None:
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as pipe, os.fdopen(write_end, "wb"), pytest.raises(TensorkeepError):
        open_source(pipe)


def test_a_text_file_object_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "content"
    path.write_text("x" * 100)
    with path.open() as text, pytest.raises(TensorkeepError):
        open_source(text).read(ByteRange(0, 8))  # type: ignore[arg-type]


def test_each_kind_of_target_gets_its_source(tmp_path: Path) -> None:
    path = tmp_path / "content"
    path.write_bytes(CONTENT)
    with path.open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)

    assert isinstance(open_source(str(path)), LocalFile)
    assert isinstance(open_source(path), LocalFile)
    for buffer in (CONTENT, bytearray(CONTENT), memoryview(CONTENT), mapped):
        assert isinstance(open_source(buffer), MemorySource)
    with path.open("rb") as file:
        assert isinstance(open_source(file), StreamSource)


@pytest.mark.parametrize("target", [3, None, 1.5, object(), ["x"], memoryview(CONTENT)[::2]])
def test_what_cannot_be_opened_is_refused(target: Any) -> None:
    with pytest.raises(UnsupportedError, match="cannot be opened"):
        open_source(target)


def test_an_unknown_backend_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match='backend "fast" is invalid'):
        open_source(tmp_path, backend="fast")  # type: ignore[arg-type]


@pytest.mark.parametrize(("start", "stop"), [(-1, 0), (1, 0), (-2, -1)])
def test_a_range_runs_forwards_from_zero(start: int, stop: int) -> None:
    with pytest.raises(ValueError, match="not a byte range"):
        ByteRange(start, stop)
    assert len(ByteRange(3, 10)) == 7
