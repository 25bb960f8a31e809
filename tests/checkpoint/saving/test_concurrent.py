"""Readers while a checkpoint is saved, and two that save at once."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import tensorkeep
from tensorkeep.errors import BusyError, TransportError
from tensorkeep.layout import Location, locate
from tests.support import SUPPORT
from tests.support.checkpoint.numbered_saves import (
    FIVE,
    SCENARIOS,
    SINGLE,
    THREE,
    contents,
    number_of,
    save,
    tensors,
    whole,
)
from tests.support.soak import rounds

READER = SUPPORT / "checkpoint" / "read_during_saves.py"
SECONDS = rounds(2, 300)

ALTERNATIONS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "the same names": (THREE,),
    "other shards": (THREE, FIVE),
    "one file": (SINGLE,),
    "one file and shards": (SINGLE, THREE),
    "one file with and without an index": (SINGLE, {**SINGLE, "sha256": True}),
    "shards with SHA-256": ({**THREE, "sha256": True},),
}


@pytest.mark.filterwarnings("error::UserWarning")
def test_files_of_the_next_save_are_not_taken_for_strays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 0, THREE)
    (tmp_path / "model-00001-of-00005.safetensors").write_bytes(b"the next save puts it here before its index")
    monkeypatch.setattr("tensorkeep.kinds.safetensors._consistent_read._is_replaced", lambda *_: True)

    assert whole(tmp_path) == 0


@pytest.mark.filterwarnings("error::UserWarning")
def test_old_files_are_not_taken_for_strays_of_a_save_that_began_during_the_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 0, THREE)
    pids: list[int] = []

    def locate_while_saved(path: str, variant: str | None) -> Location | None:
        """Let a save put its index into place right after the first look, and end before the second."""
        if pids:
            with suppress(ProcessLookupError):
                os.kill(pids[0], signal.SIGCONT)
                os.waitpid(pids[0], 0)
            return locate(path, variant)
        location = locate(path, variant)
        pids.append(save_until_old_shards_are_removed(tmp_path))
        return location

    monkeypatch.setattr("tensorkeep.kinds.safetensors._consistent_read.locate", locate_while_saved)

    assert number_of(tensorkeep.load(tmp_path)) == 1


def save_until_old_shards_are_removed(directory: Path) -> int:
    """Return the pid of a save that has stopped before it removes the first shard of the old checkpoint."""
    pid = os.fork()
    if pid:
        assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
        return pid
    unlink = os.unlink

    def stopping(path: Any, **keywords: Any) -> None:
        if os.fspath(path).endswith("model-00001-of-00003.safetensors"):
            os.kill(os.getpid(), signal.SIGSTOP)
        unlink(path, **keywords)

    os.unlink = stopping
    try:
        save(directory, 1, FIVE)
    finally:
        os._exit(0)


@pytest.mark.parametrize("sides", ALTERNATIONS)
@pytest.mark.soak
def test_readers_see_whole_checkpoints_while_others_are_saved(tmp_path: Path, sides: str) -> None:
    save(tmp_path, 0, ALTERNATIONS[sides][0])
    readers = [
        subprocess.Popen(
            [sys.executable, str(READER), str(tmp_path), str(SECONDS), backend],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for backend in ("mmap", "pread")
    ]
    for number, side in zip(itertools.count(1), itertools.cycle(ALTERNATIONS[sides])):
        save(tmp_path, number, {**side, "durable": False})
        if all(reader.poll() is not None for reader in readers):
            break
    for reader in readers:
        _, complaint = reader.communicate()
        assert reader.returncode == 0, complaint


SAVES_AND_WAITS = """
import sys
from tests.support.checkpoint.numbered_saves import THREE, tensors
import tensorkeep
def wait(done, of):
    if done < of:
        return
    print("saving", flush=True)
    sys.stdin.readline()
tensorkeep.save_checkpoint(tensors(7), sys.argv[1], progress=wait, **THREE)
"""


@contextmanager
def save_under_way(directory: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a save in another process that is not finished before it is told."""
    saver = subprocess.Popen(
        [sys.executable, "-c", SAVES_AND_WAITS, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert saver.stdout is not None
    assert saver.stdout.readline() == "saving\n"
    try:
        yield saver
    finally:
        saver.communicate("go on\n")


def test_the_second_of_two_saves_is_told_who_is_busy(tmp_path: Path) -> None:
    save(tmp_path, 1, THREE)
    before = contents(tmp_path)
    with save_under_way(tmp_path) as saver:
        for side in (THREE, FIVE, SINGLE):
            with pytest.raises(BusyError, match=f"process {saver.pid} ") as caught:
                save(tmp_path, 2, side)
            assert isinstance(caught.value, TransportError)
            assert caught.value.path == str(tmp_path)
        assert whole(tmp_path) == 1
        assert {name: data for name, data in contents(tmp_path).items() if name in before} == before
        save(tmp_path, 3, THREE, "fp16")

    assert saver.returncode == 0
    assert whole(tmp_path) == 7
    assert whole(tmp_path, "fp16") == 3
    save(tmp_path, 4, THREE)
    files = SCENARIOS["three shards over the same names"].files | SCENARIOS["a variant over shards of it"].files
    assert contents(tmp_path).keys() == files


def test_a_killed_save_keeps_nobody_busy(tmp_path: Path) -> None:
    save(tmp_path, 1, THREE)
    with save_under_way(tmp_path) as saver:
        saver.kill()
        saver.wait()
        assert any(name.endswith(".tensorkeep-staging") for name in os.listdir(tmp_path))
        assert whole(tmp_path) == 1
        save(tmp_path, 2, FIVE)

    assert whole(tmp_path) == 2
    assert contents(tmp_path).keys() == SCENARIOS["five shards over three"].files


def test_of_two_threads_one_saves_and_one_is_told(tmp_path: Path) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def wait(done: int, of: int) -> None:
        inside.set()
        go_on.wait()

    first = threading.Thread(
        target=tensorkeep.save_checkpoint, args=(tensors(1), tmp_path), kwargs={"progress": wait}
    )
    first.start()
    inside.wait()
    try:
        with pytest.raises(BusyError, match=f"process {os.getpid()} "):
            save(tmp_path, 2, THREE)
    finally:
        go_on.set()
        first.join()

    assert whole(tmp_path) == 1


def test_a_checkpoint_that_is_open_stays_readable_after_it_was_replaced(tmp_path: Path) -> None:
    save(tmp_path, 1, FIVE)
    for backend in ("mmap", "pread"):
        with tensorkeep.open(tmp_path, backend=backend) as old:
            before = old.load()
            save(tmp_path, 2, THREE)
            after = old.load()
            for name, tensor in tensors(1).items():
                assert (before[name] == tensor).all()
                assert (after[name] == tensor).all()
        save(tmp_path, 1, FIVE)


def test_a_save_of_what_is_loaded_from_the_same_place(tmp_path: Path) -> None:
    save(tmp_path, 1, FIVE)
    tensorkeep.save_checkpoint(tensorkeep.open(tmp_path), tmp_path, **THREE)
    assert whole(tmp_path) == 1
    loaded = tensorkeep.load(tmp_path, backend="mmap")
    tensorkeep.save_checkpoint(loaded, tmp_path, **THREE)

    assert whole(tmp_path) == 1
    assert contents(tmp_path).keys() == SCENARIOS["three shards over five"].files
