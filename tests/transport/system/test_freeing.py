"""Large files that are replaced or removed: their blocks are freed, soon, and no later than the next save or fork."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest

import tensorkeep
from tensorkeep.transport import delete_directory
from tensorkeep.transport.system import finish_freeing, freed_in_background

LARGE = {"w": np.zeros(5_000_000, np.float32)}


def unnamed_files() -> list[str]:
    """Return the open files of this process that have no name any more."""
    links = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:
            continue
    return [link for link in links if link.endswith("(deleted)") and "freeing" in link]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "freeing"
    folder.mkdir()
    return folder


@pytest.fixture
def slow_close(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Make threads that free files wait for an event."""
    goes_on = threading.Event()
    close = os.close

    def close_later(fd: int) -> None:
        if threading.current_thread().name == "tensorkeep-free":
            goes_on.wait(20)
        close(fd)

    monkeypatch.setattr(os, "close", close_later)
    return goes_on


def test_a_save_does_not_wait_until_the_old_file_is_freed(folder: Path, slow_close: threading.Event) -> None:
    tensorkeep.save(LARGE, folder / "x.safetensors", durable=False)
    tensorkeep.save({"w": LARGE["w"] + 1}, folder / "x.safetensors", durable=False)

    assert len(unnamed_files()) == 1
    assert tensorkeep.load(folder / "x.safetensors")["w"][0] == 1
    slow_close.set()
    finish_freeing()
    assert unnamed_files() == []


def test_neither_do_shards_nor_a_directory(folder: Path, slow_close: threading.Event) -> None:
    for number in range(2):
        state = {"a": LARGE["w"] + number, "b": LARGE["w"] - number}
        tensorkeep.save_checkpoint(state, folder, max_shard_size="21MB", durable=False)
    assert len(unnamed_files()) == 2
    slow_close.set()
    finish_freeing()
    slow_close.clear()

    delete_directory(str(folder))

    assert len(unnamed_files()) == 2
    assert not folder.exists()
    slow_close.set()
    finish_freeing()
    assert unnamed_files() == []


@pytest.mark.parametrize("way", ["fork", "save"])
def test_a_fork_and_the_next_save_wait_for_it(folder: Path, slow_close: threading.Event, way: str) -> None:
    for _ in range(2):
        tensorkeep.save(LARGE, folder / "x.safetensors", durable=False)
    assert unnamed_files()
    threading.Timer(0.2, slow_close.set).start()

    if way == "save":
        tensorkeep.save({"w": np.zeros(1)}, folder / "y.safetensors", durable=False)
        assert unnamed_files() == []
        return
    child = os.fork()
    if child == 0:
        os._exit(len(unnamed_files()))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_without_another_thread_the_caller_frees(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    (folder / "x").write_bytes(bytes(17 * 2**20))

    with freed_in_background([str(folder / "x")]):
        (folder / "x").unlink()

    assert unnamed_files() == []


def test_small_files_links_and_pipes_are_left_alone(folder: Path) -> None:
    large = folder / "large"
    large.write_bytes(bytes(17 * 2**20))
    os.link(large, folder / "other name")
    os.symlink(large, folder / "link")
    os.mkfifo(folder / "pipe")
    (folder / "small").write_bytes(b"x")
    before = os.listdir("/proc/self/fd")

    with freed_in_background([str(path) for path in folder.iterdir()]):
        assert os.listdir("/proc/self/fd") == before
