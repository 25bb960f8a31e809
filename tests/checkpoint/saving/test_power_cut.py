"""Saves that the power is cut of: whatever the disk has by then is the old checkpoint or the new one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from tensorkeep.transport.atomic._journal import decode_journal, encode_journal
from tests.support.checkpoint.disk_model import Recorder
from tests.support.checkpoint.numbered_saves import FIVE, SCENARIOS, THREE, contents, save, whole

NEXT = [(THREE, SCENARIOS["three shards over five"].files), (FIVE, SCENARIOS["five shards over three"].files)]
JOURNAL = ".model.tensorkeep-staging/commit.json"


def restore(disk: Mapping[str, bytes | None], directory: Path) -> None:
    """Make a directory that holds what the disk does; a journal knows its own staging directory by the inode."""
    for path, data in disk.items():
        if data is None:
            (directory / path).mkdir()
    for path, data in disk.items():
        if path == JOURNAL and data:
            inode = (directory / path).parent.stat().st_ino
            data = encode_journal(replace(decode_journal(data, path), place=inode))
        if data is not None:
            (directory / path).write_bytes(data)


@pytest.mark.parametrize(
    "scenario",
    [
        "three shards over the same names",
        "five shards over three",
        "a single file with an index over shards",
        "shards over a single file",
        "a single file over another",
    ],
)
def test_after_a_power_cut_the_old_or_the_new_checkpoint_is_there(
    tmp_path: Path, scenario: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides = SCENARIOS[scenario]
    assert sides.old is not None
    directory = tmp_path / "ckpt"
    save(directory, 1, sides.old)
    recorder = Recorder(directory)
    with monkeypatch.context() as patch:
        patch.setattr(os, "cpu_count", lambda: 1)  # one call after another
        recorder.install(patch)
        save(directory, 2, sides.new)
    last = recorder.moments[-1]
    disks = {tuple(disk.items()): moment is last for moment in recorder.moments for disk in moment.disks()}

    seen = {1: 0, 2: 0}
    for number, (disk, is_last) in enumerate(disks.items()):
        restored = tmp_path / str(number)
        restore(dict(disk), restored)
        found = whole(restored)
        assert found == 2 if is_last else found in {1, 2}, [path for path, _ in disk]
        seen[found] += 1
        side, files = NEXT[number % 2]
        save(restored, 3, {**side, "durable": False})
        assert whole(restored) == 3
        assert contents(restored).keys() == files
    assert seen[1] >= 5
    assert seen[2] >= 1
