"""A file of a set that several processes fill."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from tensorkeep.errors import BusyError, SourceMissingError
from tensorkeep.transport import Reserved, ReservedFile, transaction


def filled_by_a_child(reserved: Reserved, offset: int, data: bytes) -> None:
    pid = os.fork()
    if not pid:
        file = ReservedFile(reserved)
        file.write(offset, memoryview(data))
        file.sync()
        file.close()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the other process is a fork")
def test_processes_fill_a_file_that_appears_at_the_commit(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"old")
    (tmp_path / "a.bin").chmod(0o640)

    with transaction(tmp_path, "set") as staging:
        reserved = staging.reserve("a.bin", 40)
        filled_by_a_child(reserved, 16, b"x" * 12)
        filled_by_a_child(reserved, 28, b"y" * 12)
        staging.admit("a.bin", b"head" * 4)
        assert (tmp_path / "a.bin").read_bytes() == b"old"
        staging.commit()

    assert (tmp_path / "a.bin").read_bytes() == b"head" * 4 + b"x" * 12 + b"y" * 12
    assert (tmp_path / "a.bin").stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["a.bin"]


@pytest.mark.parametrize("has_positioned_io", [True, False])
def test_rows_stand_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_positioned_io: bool) -> None:
    monkeypatch.setattr("tensorkeep.transport.system._platform.HAS_POSITIONED_IO", has_positioned_io)
    with transaction(tmp_path, "set") as staging:
        file = ReservedFile(staging.reserve("a.bin", 32))
        file.write(16, memoryview(b"." * 16))
        file.write_rows(17, 5, memoryview(b"aabbcc"), 2)
        file.close()
        staging.admit("a.bin", bytes(16))
        staging.commit()

    assert (tmp_path / "a.bin").read_bytes() == bytes(16) + b".aa...bb...cc..."


@pytest.mark.skipif(not hasattr(os, "fork"), reason="locks are those of POSIX")
def test_a_file_that_is_filled_is_locked_for_all_who_fill_it(tmp_path: Path) -> None:
    """So that NFS sends what was written, and not whole pages over what others wrote."""
    with transaction(tmp_path, "set") as staging:
        reserved = staging.reserve("a.bin", 32)
        first, second = ReservedFile(reserved), ReservedFile(reserved)
        with open(reserved.path, "rb") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        first.close()
        second.close()
        with open(reserved.path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_who_comes_late_does_not_write_into_the_file_of_another_save(tmp_path: Path) -> None:
    with transaction(tmp_path, "set") as staging:
        stale = staging.reserve("a.bin", 32)
    with pytest.raises(SourceMissingError):
        ReservedFile(stale)

    with transaction(tmp_path, "set") as staging:
        staging.reserve("a.bin", 32)
        with pytest.raises(BusyError, match="lost the save lock"):
            ReservedFile(stale)


def test_nothing_is_left_of_a_file_that_nobody_admits(tmp_path: Path) -> None:
    with transaction(tmp_path, "set") as staging:
        staging.reserve("a.bin", 32)
        staging.reserve("b.bin", 32)
        staging.admit("b.bin", bytes(16))

    assert os.listdir(tmp_path) == []
