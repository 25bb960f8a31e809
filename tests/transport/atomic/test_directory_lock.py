"""The lock of a directory: one holder at a time, none that is dead, with the kernel's locks and without."""

from __future__ import annotations

import errno
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tensorkeep.errors import BusyError
from tensorkeep.transport import transaction
from tensorkeep.transport.atomic._lock import DirectoryLock, take_lock
from tensorkeep.transport.system import _platform

HOUR_S = 3_600


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "staging").mkdir()
    return str(tmp_path / "staging" / "lock")


@pytest.fixture(params=["none at all", "none on this file system"])
def without_locks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    if request.param == "none at all":
        monkeypatch.setattr(_platform, "HAS_LOCKS", False)
    else:
        monkeypatch.setattr(_platform.fcntl, "flock", refuse)


@pytest.fixture
def owner(path: str) -> dict[str, Any]:
    """Return what the lock of this process says."""
    lock = take_lock(path)
    text = Path(path).read_bytes()
    lock.release()
    return dict(msgspec.json.decode(text))


def leave(path: str, content: dict[str, Any] | bytes, *, age_s: float = 0) -> None:
    """Leave a lock file behind, as it was written some time ago."""
    Path(path).write_bytes(content if isinstance(content, bytes) else msgspec.json.encode(content))
    os.utime(path, (time.time() - age_s,) * 2)


@pytest.fixture
def dead_pid() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def assert_free(path: str) -> None:
    lock = take_lock(path)
    assert lock.is_held()
    lock.release()
    assert not os.path.exists(path)


def assert_busy(path: str, *words: str) -> None:
    before = Path(path).read_bytes()
    with pytest.raises(BusyError) as caught:
        take_lock(path)
    assert all(word in str(caught.value) for word in words), caught.value
    assert Path(path).read_bytes() == before


def test_a_lock_says_who_holds_it_and_goes_when_it_is_released(path: str, owner: dict[str, Any]) -> None:
    assert owner["pid"] == os.getpid()
    assert owner["host"] == platform.node()
    assert owner["command"] == os.path.basename(sys.argv[0])
    assert not os.path.exists(path)


def test_a_held_lock_is_busy(path: str) -> None:
    lock = take_lock(path)
    assert_busy(path, f"process {os.getpid()}", platform.node())
    lock.release()
    lock.release()
    assert_free(path)


@pytest.mark.parametrize("content", [b"", b"\xff", b"{}", b"[" * 10_000, b'{"pid": -1}', bytes(100_000)])
def test_what_stands_in_a_lock_that_nobody_holds_means_nothing(path: str, content: bytes) -> None:
    leave(path, content)
    assert_free(path)


def test_a_live_owner_means_nothing_where_the_kernel_says_that_nobody_holds_it(
    path: str, owner: dict[str, Any]
) -> None:
    leave(path, owner)
    assert_free(path)


def test_without_locks_a_live_owner_is_busy_for_ever(path: str, without_locks: None, owner: dict[str, Any]) -> None:
    lock = take_lock(path)
    assert lock.is_held()
    assert_busy(path, f"process {os.getpid()}")
    os.utime(path, (0, 0))
    assert_busy(path, f"process {os.getpid()}")
    lock.release()
    assert_free(path)


def test_without_locks_a_dead_owner_is_not(
    path: str, without_locks: None, owner: dict[str, Any], dead_pid: int
) -> None:
    for gone in ({"pid": dead_pid}, {"birth": "1"}):
        leave(path, {**owner, **gone})
        assert_free(path)


@pytest.mark.parametrize("other", [{"host": "elsewhere"}, {"kernel": "00000000"}])
def test_without_locks_an_owner_elsewhere_is_dead_when_it_is_silent(
    path: str, without_locks: None, owner: dict[str, Any], other: dict[str, str]
) -> None:
    leave(path, {**owner, **other}, age_s=0.2 * HOUR_S)
    assert_busy(path, f"process {os.getpid()}", other.get("host", platform.node()))
    leave(path, {**owner, **other}, age_s=0.3 * HOUR_S)
    assert_free(path)


@pytest.mark.parametrize("content", [b"", b"\xff", b"{}", b"[" * 10_000, b'{"pid": -1}'])
def test_without_locks_a_lock_that_does_not_say_whose_it_is_is_busy_for_a_while(
    path: str, without_locks: None, content: bytes
) -> None:
    leave(path, content)
    assert_busy(path, "an unknown process")
    leave(path, content, age_s=HOUR_S)
    assert_free(path)


def test_the_writer_gives_signs_of_life(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = take_lock(path)
    os.utime(path, (0, 0))
    lock.refresh()
    assert os.stat(path).st_mtime == 0

    real = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: real() + 61)
    lock.refresh()
    assert time.time() - os.stat(path).st_mtime < 60
    lock.release()


def test_a_lock_that_was_taken_over_is_not_held_and_not_removed(path: str, without_locks: None) -> None:
    lock = take_lock(path)
    os.unlink(path)
    assert not lock.is_held()
    other = take_lock(path)
    assert not lock.is_held()
    lock.release()
    assert other.is_held()
    other.release()
    assert not os.path.exists(path)


def test_a_writer_that_was_taken_for_dead_commits_nothing(tmp_path: Path, without_locks: None) -> None:
    (tmp_path / "m-1").write_bytes(b"old")
    with transaction(tmp_path, "model") as slow:
        with slow.file("m-1") as sink:
            sink.write([b"slow"])
        os.unlink(slow.path_of("lock"))
        with transaction(tmp_path, "model") as quick:
            with quick.file("m-1") as sink:
                sink.write([b"quick"])
            with pytest.raises(BusyError, match="had died"):
                slow.commit()
            quick.commit()

    assert (tmp_path / "m-1").read_bytes() == b"quick"
    assert os.listdir(tmp_path) == ["m-1"]


@pytest.mark.parametrize("is_open", [True, False])
def test_where_open_files_stay_a_lock_that_can_be_removed_is_dead(
    path: str, is_open: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_platform, "HAS_LOCKS", False)
    monkeypatch.setattr(_platform, "HANDLES_OPEN_FILES", False)
    leave(path, b"")
    if not is_open:
        assert_free(path)
        return

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "used by another process")

    with monkeypatch.context() as opened:
        opened.setattr(os, "unlink", refuse)
        assert_busy(path, "an unknown process")


def test_a_lock_that_cannot_be_signed_is_not_left_behind(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(os, "write", refuse)
        with pytest.raises(OSError, match="No space"):
            take_lock(path)
    assert not os.path.exists(path)
    assert_free(path)


def test_a_link_in_the_place_of_the_lock_is_not_followed(path: str, tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"precious")
    os.symlink(tmp_path / "precious", path)
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        take_lock(path)

    assert (tmp_path / "precious").read_bytes() == b"precious"


TAKERS = """
import os, sys
from tensorkeep.errors import BusyError
from tensorkeep.transport.system import _platform
from tensorkeep.transport.atomic._lock import take_lock
_platform.HAS_LOCKS = sys.argv[2] == "True"
path = sys.argv[1]
inside = os.path.join(os.path.dirname(path), "inside")
taken = 0
while taken < 150:
    try:
        lock = take_lock(path)
    except BusyError:
        continue
    os.close(os.open(inside, os.O_CREAT | os.O_EXCL))
    assert lock.is_held()
    os.unlink(inside)
    lock.release()
    taken += 1
"""


@pytest.fixture
def takers(path: str, request: pytest.FixtureRequest) -> Iterator[list[subprocess.Popen[str]]]:
    command = [sys.executable, "-c", TAKERS, path, str(request.param)]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    yield processes
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.parametrize("takers", [True, False], indirect=True)
def test_processes_that_race_for_a_lock_hold_it_one_at_a_time(takers: list[subprocess.Popen[str]], path: str) -> None:
    errors = [process.communicate()[1] for process in takers]

    assert errors == [""] * len(takers)
    assert isinstance(take_lock(path), DirectoryLock)
