"""Directories that are removed: the name first, then the files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tensorkeep.transport import delete_directory, delete_moved_aside, move_aside


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "checkpoint-1"
    (path / "sub").mkdir(parents=True)
    (path / "sub" / "file").write_bytes(b"1")
    return path


def test_a_directory_loses_its_name_and_keeps_its_files(directory: Path) -> None:
    aside = Path(move_aside(str(directory)))

    assert not directory.exists()
    assert aside.parent == directory.parent
    assert aside.name.startswith(".checkpoint-1.tensorkeep-removed-")
    assert (aside / "sub" / "file").read_bytes() == b"1"


def test_what_dead_processes_moved_aside_is_deleted(directory: Path) -> None:
    move_aside(str(directory))
    older = directory.parent / ".checkpoint-0.tensorkeep-removed"  # as older versions named it
    older.mkdir()
    kept = [directory.parent / name for name in ("checkpoint-2", ".other", "a.tensorkeep-removed-0123456789abcdef")]
    for path in kept:
        path.mkdir()

    assert delete_moved_aside(str(directory.parent)) == {}
    assert sorted(directory.parent.iterdir()) == sorted(kept)


def test_of_a_link_only_the_link_is_deleted(directory: Path) -> None:
    link = directory.parent / "link"
    link.symlink_to(directory)

    delete_directory(move_aside(str(link)))

    assert os.listdir(directory.parent) == ["checkpoint-1"]
    assert (directory / "sub" / "file").exists()


def test_what_cannot_be_deleted_is_returned(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    aside = move_aside(str(directory))

    def refuse(path: str) -> None:
        raise OSError(16, "Device or resource busy", path)

    monkeypatch.setattr("shutil.rmtree", refuse)
    failed = delete_moved_aside(str(directory.parent))

    assert list(failed) == [aside]
    assert failed[aside].errno == 16
