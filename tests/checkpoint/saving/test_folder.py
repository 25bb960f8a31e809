"""Directories of any files, saved complete or not at all, and held against their manifest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

import tensorkeep
from tensorkeep.checkpoint import save_folder, verify_folder
from tensorkeep.errors import (
    BusyError,
    FormatError,
    IntegrityError,
    RefusedError,
    SourceMissingError,
    TransportError,
    UnsupportedError,
)
from tests.support import SUPPORT

PROGRAM = SUPPORT / "checkpoint" / "interrupted_folder.py"


def save(directory: Path, number: int = 1) -> None:
    with save_folder(directory) as staging:
        tensorkeep.save_checkpoint({"a": np.full(1000, number), "b": np.ones(500)}, staging, max_shard_size=8000)
        tensorkeep.save({"groups": [{"lr": 0.1, "momentum": np.ones(3)}]}, f"{staging}/optimizer.safetensors")
        Path(staging, "config").mkdir()
        Path(staging, "config", "model.json").write_text(json.dumps({"number": number}))
        Path(staging, "empty").touch()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    save(tmp_path / "run-5")
    return tmp_path / "run-5"


@pytest.mark.parametrize("swaps", [1, 0])
@pytest.mark.parametrize("old", [1, 0])
def test_killed_at_any_call_the_old_or_the_new_is_whole(tmp_path: Path, old: int, swaps: int) -> None:
    command = [sys.executable, str(PROGRAM), str(tmp_path), str(old), str(swaps)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)

    assert counts["kills"] >= 20, "too few calls were seen to say anything"
    assert counts["old"] >= 10
    assert counts["new"] >= 2


def test_what_is_whole(directory: Path) -> None:
    assert verify_folder(directory) == verify_folder(directory, quick=True) == []
    assert os.listdir(directory.parent) == ["run-5"]
    done = tensorkeep.verify(directory)
    assert done.is_whole
    assert (done.n_shards, done.n_tensors, done.n_others) == (3, 3, 3)
    with tensorkeep.open(directory) as opened:
        assert opened["a"][3] == 1


def test_a_block_that_raises_changes_nothing(directory: Path) -> None:
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}

    def fail() -> None:
        with save_folder(directory) as staging:
            Path(staging, "new").touch()
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        fail()

    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before
    assert os.listdir(directory.parent) == ["run-5"]


def test_what_the_new_one_does_not_have_goes_and_what_others_put_there_stays(directory: Path) -> None:
    (directory / "notes.txt").write_text("good run")
    (directory / "config" / "more.txt").write_text("inner")
    with save_folder(directory) as staging:
        Path(staging, "only").write_text("this")

    assert sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()) == [
        "config/more.txt",
        "notes.txt",
        "only",
        "tensorkeep.manifest.json",
    ]
    assert verify_folder(directory) == []


def test_links_of_others_stay_and_what_saves_left_goes(directory: Path) -> None:
    (directory / "latest").symlink_to("notes.txt")
    (directory / "nested").mkdir()
    (directory / "nested" / "other").symlink_to(directory.parent)
    (directory / "nested" / "lost").symlink_to("nowhere")
    (directory / ".model.tensorkeep-staging").mkdir()
    (directory / ".model.tensorkeep-staging" / "half").write_bytes(b"half")
    os.mkfifo(directory / "pipe")

    with save_folder(directory) as staging:
        Path(staging, "state").write_bytes(b"new")

    assert os.readlink(directory / "latest") == "notes.txt"
    assert os.readlink(directory / "nested" / "other") == str(directory.parent)
    assert os.readlink(directory / "nested" / "lost") == "nowhere"
    assert not (directory / ".model.tensorkeep-staging").exists()
    assert (directory / "pipe").is_fifo()


def test_a_link_is_followed_and_modes_are_kept(directory: Path) -> None:
    directory.chmod(0o750)
    link = directory.parent / "latest"
    link.symlink_to("run-5")
    save(link, 2)

    assert link.is_symlink()
    assert (tensorkeep.load(directory)["a"] == 2).all()
    assert directory.stat().st_mode & 0o777 == 0o750


def test_one_writer_at_a_time(directory: Path) -> None:
    with save_folder(directory), pytest.raises(BusyError), save_folder(directory):
        pass


def test_the_working_directory_is_not_replaced(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(directory / "config")
    for path in (".", "..", directory):
        with pytest.raises(RefusedError, match="working directory"), save_folder(path):
            pass


def flipped(path: Path, place: int = -1) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "kind", "name", "is_seen_quickly"),
    [
        (lambda it: (it / "optimizer.safetensors").unlink(), "missing", "optimizer.safetensors", True),
        (lambda it: flipped(it / "config" / "model.json"), "file", "config/model.json", True),
        (lambda it: flipped(it / "optimizer.safetensors", 30), "header", "optimizer.safetensors", True),
        (lambda it: flipped(it / "optimizer.safetensors"), "data", "optimizer.safetensors", False),
        (lambda it: (it / "empty").write_text("x"), "file", "empty", True),
        (lambda it: os.truncate(it / "model-00001-of-00002.safetensors", 99), "file", None, True),
        (lambda it: tensorkeep.save({"o": [0]}, it / "optimizer.safetensors"), "file", "optimizer.safetensors", True),
    ],
)
def test_damage_is_named(
    directory: Path, damage: Callable[[Path], None], kind: str, name: str | None, is_seen_quickly: bool
) -> None:
    damage(directory)

    for findings in (verify_folder(directory), tensorkeep.verify(directory).findings):
        assert [(finding.kind, finding.shard) for finding in findings] == [
            (kind, name or "model-00001-of-00002.safetensors")
        ]
    assert bool(verify_folder(directory, quick=True)) == is_seen_quickly


def test_every_flip_in_the_manifest_is_seen(directory: Path) -> None:
    path = directory / "tensorkeep.manifest.json"
    text = path.read_bytes()
    for place in range(len(text)):
        path.write_bytes(text[:place] + bytes([text[place] ^ 1]) + text[place + 1 :])
        with pytest.raises((FormatError, IntegrityError, UnsupportedError)):
            verify_folder(directory)


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../b", "a//b", "", "c:x", "a\\b", "dir/ab:c"])
def test_a_manifest_leads_nowhere_else(directory: Path, name: str) -> None:
    from tensorkeep.layout._manifest import FileRecord, emit_manifest  # the text that such a writer would make

    (directory / "tensorkeep.manifest.json").write_bytes(emit_manifest({name: FileRecord(1, blake3="0" * 64)}))
    with pytest.raises(FormatError):
        verify_folder(directory)


def test_a_later_manifest_is_refused(directory: Path) -> None:
    path = directory / "tensorkeep.manifest.json"
    path.write_bytes(msgspec.json.encode({**msgspec.json.decode(path.read_bytes()), "version": 2, "more": 1}))
    with pytest.raises(UnsupportedError, match="version 2"):
        verify_folder(directory)


def test_what_is_no_such_directory(tmp_path: Path) -> None:
    tensorkeep.save({"a": np.ones(3)}, tmp_path / "a.safetensors")
    with pytest.raises(SourceMissingError, match="no manifest"):
        verify_folder(tmp_path)
    with pytest.raises(SourceMissingError, match="Create it first"), save_folder(tmp_path / "x" / "y"):
        pass
    with pytest.raises(TransportError, match="only directories"), save_folder(tmp_path / "a.safetensors"):
        pass


@pytest.mark.skipif(os.name == "nt", reason="names that Windows does not have")
@pytest.mark.parametrize("name", ["at-12:00.txt", "a\\b", "two\nlines", "not UTF-8 \udcff"])
def test_a_name_that_no_manifest_can_list_is_refused_before_the_swap(tmp_path: Path, name: str) -> None:
    with save_folder(tmp_path / "run") as folder:
        Path(folder, "a.txt").write_text("old")

    with pytest.raises(UnsupportedError, match="not every system"), save_folder(tmp_path / "run") as folder:
        Path(folder, name).write_text("new")

    assert [path.name for path in tmp_path.glob("run/*.txt")] == ["a.txt"]
    assert not verify_folder(tmp_path / "run")
