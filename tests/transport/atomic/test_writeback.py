"""A file that is synced in the end goes to the disk while it is written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tensorkeep.transport import ReservedFile, publish, transaction
from tensorkeep.transport.atomic import _reserved, _sink
from tensorkeep.transport.system import _platform, begin_writeback

PIECE = os.urandom(2**20)


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The ranges, (start, bytes), that the disk began with early."""
    ranges: list[tuple[int, int]] = []

    def begin(fd: int, start: int, nbytes: int) -> None:
        assert os.fstat(fd).st_size >= start + nbytes
        ranges.append((start, nbytes))
        begin_writeback(fd, start, nbytes)

    monkeypatch.setattr(_sink, "begin_writeback", begin)
    monkeypatch.setattr(_reserved, "begin_writeback", begin)
    monkeypatch.setattr(_sink, "WRITEBACK_NBYTES", 2 * len(PIECE))
    return ranges


@pytest.mark.parametrize("is_known", [True, False])
def test_the_disk_begins_before_the_end(
    tmp_path: Path, begun: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    monkeypatch.setattr(_platform, "HAS_SYNC_FILE_RANGE", is_known)
    with publish(tmp_path / "file") as sink:
        for _ in range(5):
            sink.write([PIECE])
        assert begun == [(0, 2 * len(PIECE)), (2 * len(PIECE), 2 * len(PIECE))]
    assert (tmp_path / "file").read_bytes() == 5 * PIECE


def test_a_file_that_is_not_synced_is_left_to_the_system(tmp_path: Path, begun: list[tuple[int, int]]) -> None:
    with publish(tmp_path / "file", durable=False) as sink:
        sink.write([PIECE] * 5)
    with transaction(tmp_path, "model", durable=False) as saving, saving.file("other") as sink:
        sink.write([PIECE] * 5)
    assert begun == []


def test_files_of_a_transaction_and_reserved_ones_begin_too(tmp_path: Path, begun: list[tuple[int, int]]) -> None:
    with transaction(tmp_path, "model") as saving:
        with saving.file("appended") as sink:
            sink.write([PIECE] * 3)
        reserved = saving.reserve("filled", 3 * len(PIECE))
        file = ReservedFile(reserved, is_synced=True)
        file.write(len(PIECE), memoryview(PIECE))
        file.write(0, memoryview(b"short"))
        file.close()
    assert begun == [(0, 3 * len(PIECE)), (len(PIECE), len(PIECE))]


def test_what_cannot_be_begun_is_left_to_the_sync() -> None:
    read, write = os.pipe()
    with open(read, "rb") as end, open(write, "wb") as pipe:
        begin_writeback(pipe.fileno(), 0, 1)
        begin_writeback(-1, 0, 1)
        pipe.write(b"!")
        pipe.flush()
        assert end.read(1) == b"!"
