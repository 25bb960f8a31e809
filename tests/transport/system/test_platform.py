"""The system calls and their fallbacks: short writes, interruptions, and what may fail quietly."""

from __future__ import annotations

import errno
import os
import signal
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tensorkeep.transport.system import _platform

BUFFERS = [bytes([place % 256]) * (place % 7) for place in range(500)]
CONTENT = b"".join(BUFFERS)


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    opened = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield opened
    os.close(opened)


def written(fd: int) -> bytes:
    return os.pread(fd, 2 * len(CONTENT), 0)


def views() -> list[memoryview]:
    return [memoryview(buffer) for buffer in BUFFERS]


@pytest.mark.parametrize("gathers", [True, False])
def test_all_buffers_are_written_in_order(fd: int, gathers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_platform, "HAS_GATHERED_WRITES", gathers)

    _platform.gather_write(fd, views())

    assert written(fd) == CONTENT


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 100, 1_000])
def test_short_gathered_writes_go_on(fd: int, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "writev", lambda fd, buffers: os.write(fd, b"".join(buffers)[:limit]))

    _platform.gather_write(fd, views())

    assert written(fd) == CONTENT


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
def test_short_plain_writes_go_on(fd: int, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(_platform, "HAS_GATHERED_WRITES", False)
    monkeypatch.setattr(os, "write", lambda fd, buffer: real(fd, buffer[:limit]))

    _platform.gather_write(fd, views())

    assert written(fd) == CONTENT


@pytest.mark.parametrize("positioned", [True, False])
def test_a_read_ends_with_the_file(fd: int, positioned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_platform, "HAS_POSITIONED_IO", positioned)
    os.write(fd, CONTENT)
    into = bytearray(100)

    assert _platform.read_at(fd, len(CONTENT) - 30, memoryview(into)) == 30
    assert into == CONTENT[-30:] + bytes(70)
    assert _platform.read_at(fd, len(CONTENT) + 5, memoryview(into)) == 0
    assert _platform.read_new(fd, 10, len(CONTENT) - 20) == CONTENT[10:-10]
    assert _platform.read_new(fd, len(CONTENT) - 30, 100) == CONTENT[-30:]
    assert _platform.read_new(fd, len(CONTENT) + 5, 100) == b""


def test_what_is_read_without_positions_is_in_memory_once(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_platform, "HAS_POSITIONED_IO", False)
    monkeypatch.setattr(_platform, "_MAX_CALL_NBYTES", 2**20)
    os.truncate(fd, 2**24)

    tracemalloc.start()
    try:
        data = _platform.read_new(fd, 0, 2**24)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(data) == 2**24
    assert peak < 1.5 * 2**24


def test_interrupted_calls_are_taken_up_again() -> None:
    """A pipe that is full or empty blocks, so that signals really arrive inside the call (EINTR)."""
    read_end, write_end = os.pipe()
    whole = os.urandom(1_000_000)
    received = bytearray()

    def drain() -> None:
        while len(received) < len(whole):
            received.extend(os.read(read_end, 4_096))

    n_signals = 0

    def count(*_: object) -> None:
        nonlocal n_signals
        n_signals += 1
        if n_signals == 5:
            reader.start()

    reader = threading.Thread(target=drain)
    before = signal.signal(signal.SIGALRM, count)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.002)
    try:
        _platform.gather_write(write_end, [memoryview(whole)[at : at + 1_000] for at in range(0, len(whole), 1_000)])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    reader.join()
    os.close(read_end)
    os.close(write_end)

    assert n_signals >= 5
    assert received == whole


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG, errno.EDQUOT])
def test_too_little_room_shows_when_it_is_reserved(fd: int, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(OSError, match=os.strerror(number)):
        _platform.preallocate(fd, 10)


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.ENODEV])
def test_a_file_system_that_reserves_nothing_is_no_error(
    fd: int, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def refuse(*arguments: int) -> None:
        asked.append(arguments)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    _platform.preallocate(fd, 10)
    assert asked == [(fd, 0, 10)]


def test_nothing_is_reserved_for_nothing_or_where_it_cannot_be(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _platform.preallocate(fd, 0)
    monkeypatch.setattr(_platform, "HAS_FALLOCATE", False)
    _platform.preallocate(fd, 1_000_000)

    assert os.fstat(fd).st_size == 0


def test_a_directory_is_synced_where_it_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bool] = []

    def fail(number: int) -> None:
        def fsync(fd: int) -> None:
            synced.append(os.path.isdir(f"/proc/self/fd/{fd}"))
            if number:
                raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "fsync", fsync)

    for number in (0, errno.EINVAL, errno.ENOTSUP):
        fail(number)
        _platform.sync_directory(str(tmp_path))
    fail(errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        _platform.sync_directory(str(tmp_path))
    assert synced == [True] * 4


def test_a_lock_is_held_by_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    one, other = (os.open(path, os.O_RDWR | os.O_CREAT) for _ in range(2))

    assert _platform.try_lock(one)
    assert not _platform.try_lock(other)
    os.close(one)
    assert _platform.try_lock(other)
    os.close(other)
