"""What a sink takes beyond appended buffers: bytes written before, and bytes of a source, however they get there."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tensorkeep.errors import SourceChangedError, TransportError
from tensorkeep.limits import WRITE_NBYTES
from tensorkeep.transport import (
    ByteRange,
    ByteSink,
    ByteSource,
    JoinedSource,
    LocalFile,
    MemorySource,
    StreamSource,
    publish,
    transaction,
)
from tensorkeep.transport.system import _platform
from tests.support.transport.publishing import names

CONTENT = os.urandom(2 * WRITE_NBYTES + 12_345)
SPANS = [(0, len(CONTENT)), (0, 0), (1, 2), (4_095, 4_097), (5_000, 5_000), (777, len(CONTENT) - 777)]

Writing = Callable[..., AbstractContextManager[ByteSink]]


@contextmanager
def transacted(path: Path, *, on_written: Callable[[int], None] | None = None) -> Iterator[ByteSink]:
    with transaction(path.parent, "model", durable=False) as saving:
        with saving.file(path.name, on_written=on_written) as sink:
            yield sink
        saving.commit()


@contextmanager
def published(path: Path, *, on_written: Callable[[int], None] | None = None) -> Iterator[ByteSink]:
    with publish(path, durable=False, on_written=on_written) as sink:
        yield sink


@pytest.fixture(params=[transacted, published], ids=["transaction", "publish"])
def writing(request: pytest.FixtureRequest) -> Writing:
    return request.param


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stored") / "source"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture(params=["mapped", "read", "memory", "stream", "joined"])
def source(request: pytest.FixtureRequest, stored: Path) -> ByteSource:
    if request.param == "memory":
        return MemorySource(CONTENT)
    if request.param == "stream":
        return StreamSource(io.BytesIO(CONTENT))
    if request.param == "joined":
        file, memory = LocalFile(str(stored)), MemorySource(CONTENT)
        parts = [
            (file, ByteRange(0, 5_000)),
            (memory, ByteRange(5_000, 9_000)),
            (file, ByteRange(9_000, len(CONTENT))),
        ]
        return JoinedSource(parts, "joined")
    return LocalFile(str(stored), backend="mmap" if request.param == "mapped" else "pread")


@pytest.fixture(params=[(), ("HAS_COPY_FILE_RANGE",), ("HAS_COPY_FILE_RANGE", "HAS_SENDFILE", "HAS_POSITIONED_IO")])
def portable(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    for flag in request.param:
        monkeypatch.setattr(_platform, flag, False)


@pytest.mark.parametrize("span", SPANS)
def test_bytes_of_a_source_are_appended(
    tmp_path: Path, source: ByteSource, span: tuple[int, int], portable: None, writing: Writing
) -> None:
    with writing(tmp_path / "copy") as sink:
        sink.write([b"head"])
        sink.copy_from(source, ByteRange(*span))
        sink.write([b"tail"])

    assert (tmp_path / "copy").read_bytes() == b"head" + CONTENT[slice(*span)] + b"tail"
    assert names(tmp_path) == ["copy"]


def test_progress_counts_what_was_copied(tmp_path: Path, source: ByteSource, writing: Writing) -> None:
    told: list[int] = []
    with writing(tmp_path / "copy", on_written=told.append) as sink:
        sink.write([b"head"])
        sink.copy_from(source, ByteRange(0, len(CONTENT)))

    assert told == sorted(told)
    assert told[0] == 4
    assert told[-1] == len(CONTENT) + 4
    assert len(told) >= 4, "an interrupt is heard between pieces"


@pytest.mark.parametrize(
    "number", [errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.ENOTSOCK]
)
@pytest.mark.parametrize("calls", [("copy_file_range",), ("copy_file_range", "sendfile")])
def test_a_way_of_copying_that_does_not_suit_is_left(
    tmp_path: Path, stored: Path, number: int, calls: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def refusing(call: str) -> Callable[..., None]:
        def refuse(*_: object) -> None:
            tried.append(call)
            raise OSError(number, os.strerror(number))

        return refuse

    for call in calls:
        monkeypatch.setattr(os, call, refusing(call))
    with published(tmp_path / "copy") as sink:
        sink.copy_from(LocalFile(str(stored)), ByteRange(100, 50_100))

    assert (tmp_path / "copy").read_bytes() == CONTENT[100:50_100]
    assert tried == list(calls)


@pytest.mark.parametrize("call", ["copy_file_range", "sendfile"])
def test_short_copies_go_on(tmp_path: Path, stored: Path, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = getattr(os, call)
    n_calls = 0

    def short(one: int, other: int, *arguments: int) -> int:
        nonlocal n_calls
        n_calls += 1
        if call == "copy_file_range":
            return real(one, other, min(arguments[0], 999), arguments[1])
        return real(one, other, arguments[0], min(arguments[1], 999))

    if call == "sendfile":
        monkeypatch.setattr(_platform, "HAS_COPY_FILE_RANGE", False)
    monkeypatch.setattr(os, call, short)
    with published(tmp_path / "copy") as sink:
        sink.copy_from(LocalFile(str(stored)), ByteRange(100, 20_100))

    assert (tmp_path / "copy").read_bytes() == CONTENT[100:20_100]
    assert n_calls == 21


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("call", ["copy_file_range", "sendfile"])
def test_a_copy_that_fails_is_an_error(
    tmp_path: Path, stored: Path, number: int, call: str, monkeypatch: pytest.MonkeyPatch, writing: Writing
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    if call == "sendfile":
        monkeypatch.setattr(_platform, "HAS_COPY_FILE_RANGE", False)
    monkeypatch.setattr(os, call, fail)
    with (
        pytest.raises(TransportError, match=f"could not copy from {stored}") as caught,
        writing(tmp_path / "m") as to,
    ):
        to.copy_from(LocalFile(str(stored)), ByteRange(0, 10))

    assert caught.value.errno == number
    assert names(tmp_path) == []


def test_a_source_that_became_shorter_is_an_error(tmp_path: Path, portable: None, writing: Writing) -> None:
    (tmp_path / "source").write_bytes(CONTENT[:10_000])
    source = LocalFile(str(tmp_path / "source"))
    os.truncate(tmp_path / "source", 9_000)
    with pytest.raises(SourceChangedError, match="became shorter"), writing(tmp_path / "copy") as sink:
        sink.copy_from(source, ByteRange(5_000, 10_000))

    assert names(tmp_path) == ["source"]


def test_a_source_that_is_closed_is_an_error(tmp_path: Path, source: ByteSource, writing: Writing) -> None:
    if isinstance(source, StreamSource):
        return  # it is the caller's, and stays open
    source.close()
    with pytest.raises(TransportError, match="closed"), writing(tmp_path / "copy") as sink:
        sink.copy_from(source, ByteRange(0, 10))

    assert names(tmp_path) == []


def test_bytes_written_before_are_overwritten(tmp_path: Path, portable: None, writing: Writing) -> None:
    with writing(tmp_path / "file") as sink:
        sink.write([b"0123456789"])
        sink.rewrite(2, b"ab")
        sink.write([b"xyz"])
        sink.rewrite(0, memoryview(b"AB").cast("H"))
        sink.rewrite(9, bytearray(b"wxyz"))
        sink.rewrite(13, b"")
        sink.write([b"!"])

    assert (tmp_path / "file").read_bytes() == b"ABab45678wxyz!"


def test_short_overwrites_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    with published(tmp_path / "file") as sink:
        sink.write([b"0" * 100])
        monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: real(fd, data[:7], offset))
        sink.rewrite(10, bytes(range(80)))

    assert (tmp_path / "file").read_bytes() == b"0" * 10 + bytes(range(80)) + b"0" * 10


@pytest.mark.parametrize(("offset", "data"), [(-1, b"a"), (0, b"01234"), (3, b"ab"), (5, b"")])
def test_nothing_else_can_be_overwritten(tmp_path: Path, writing: Writing, offset: int, data: bytes) -> None:
    with writing(tmp_path / "file") as sink:
        sink.write([b"0123"])
        with pytest.raises(ValueError, match="not inside the 4 bytes"):
            sink.rewrite(offset, data)

    assert (tmp_path / "file").read_bytes() == b"0123"


def test_an_overwrite_that_fails_is_an_error(
    tmp_path: Path, writing: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def save() -> None:
        with writing(tmp_path / "file") as sink:
            sink.write([b"0123"])
            monkeypatch.setattr(os, "pwrite", fail)
            sink.rewrite(0, b"a")

    with pytest.raises(TransportError, match="could not write the file"):
        save()

    assert names(tmp_path) == []


def test_a_sink_that_is_done_takes_nothing_more(tmp_path: Path, writing: Writing) -> None:
    with writing(tmp_path / "file") as sink:
        sink.write([b"0123"])
    others = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)  # which has the descriptor now
    for misuse in (lambda: sink.write([b"more"]), lambda: sink.rewrite(0, b"more")):
        with pytest.raises(TransportError):
            misuse()
    os.close(others)

    assert (tmp_path / "file").read_bytes() == b"0123"
    assert (tmp_path / "other").read_bytes() == b""
