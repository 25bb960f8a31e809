"""What is saved in the background is the state as it was, byte for byte what `save` writes, and no error is lost."""

from __future__ import annotations

import datetime as dt
import gc
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.arrays import StreamedTensor, tensor_to_write
from tensorkeep.checkpoint.saving import _snapshot
from tensorkeep.checkpoint.saving._save_async import SaveArguments, save_async
from tensorkeep.checkpoint.saving._save_queue import SaveHandle
from tensorkeep.checkpoint.saving._snapshot import release_snapshots, take_snapshot
from tensorkeep.errors import IntegrityError, SourceMissingError, StateError, UnsupportedError
from tensorkeep.tensors import prepare
from tests.support import SUPPORT
from tests.support.checkpoint.async_saver import number_of, state
from tests.support.soak import SEED, rounds

PROGRAM = SUPPORT / "checkpoint" / "async_saver.py"
N_KILLS = rounds(8, 1000)
TIMEOUT_S = 60.0


class Gate:
    """Holds up the save that reports to it."""

    def __init__(self) -> None:
        self.is_open = threading.Event()
        self.held_up: list[SaveHandle] = []

    def __call__(self, done: int, of: int) -> None:
        assert self.is_open.wait(TIMEOUT_S)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.is_open.set()
    for save in gate.held_up:  # it must not write into a directory that pytest removes
        save.wait(TIMEOUT_S)


def held_up(directory: Path, gate: Gate) -> SaveHandle:
    """Begin a save that others in the directory have to wait for until the gate opens."""
    gate.held_up.append(save_async({"first": np.zeros(3)}, directory / "first.safetensors", progress=gate))
    return gate.held_up[-1]


def varied() -> dict[str, Any]:
    """Return a state with tensors of all ways to lie in memory, some larger than a piece of a copy, some empty."""
    generator = torch.Generator().manual_seed(1)
    large = torch.randn(3000, 1100, generator=generator)
    tied = torch.arange(20.0)
    images = torch.randn(4, 3, 50, 60, generator=generator)
    array = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    return {
        "epoch": 3,
        "when": dt.date(2026, 11, 21),
        "model": {
            "large": large,
            "crosswise": torch.randn(1500, 1200, generator=generator).t(),
            "part of large": large[10:2000, ::2],
            "tied": [tied, tied, tied[3:7]],
            "images": images.to(memory_format=torch.channels_last),
            "bfloat16": large[:5].bfloat16(),
            "scalar": torch.tensor(7),
            "empty": torch.empty(0, 5),
            "conjugate": torch.tensor([1 + 2j, 3 - 4j]).conj(),
            "expanded": torch.tensor([1.0, 2.0]).expand(3, 2),
            "parameter": torch.nn.Parameter(torch.ones(3)),
        },
        "arrays": [array, array.T, array[:, ::-1], np.arange(2_000_000.0), np.array(True), np.zeros((0, 3))],
        "big endian": np.arange(5, dtype=">f4"),
        "sparse": torch.eye(4).to_sparse(),
        "text": ["x" * 10_000, b"y" * 10_000],
    }


def tensors_of(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from tensors_of(each)
    elif isinstance(value, (torch.Tensor, np.ndarray)):
        yield value


def train_on(value: Any) -> None:
    """Change every tensor in place."""
    with torch.no_grad():
        for tensor in tensors_of(value):
            if isinstance(tensor, np.ndarray):
                tensor[...] = 0
            else:
                (tensor._values() if tensor.is_sparse else tensor.untyped_storage()).fill_(0)


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"ties": "copy", "metadata": {"a": "b"}, "durable": False},
        {"digests": False, "align": 64},
    ],
    ids=repr,
)
def test_the_file_is_the_one_that_save_writes_though_training_goes_on(
    tmp_path: Path, options: dict[str, Any], gate: Gate
) -> None:
    tensorkeep.save(varied(), tmp_path / "expected.safetensors", **options)
    state = varied()

    first = held_up(tmp_path, gate)
    handle = save_async(state, tmp_path / "saved.safetensors", max_waiting=1, **options)
    train_on(state)
    gate.is_open.set()
    first.result(TIMEOUT_S)
    handle.result(TIMEOUT_S)

    assert (tmp_path / "saved.safetensors").read_bytes() == (tmp_path / "expected.safetensors").read_bytes()
    assert tensorkeep.verify(tmp_path / "saved.safetensors").findings == ()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_shard_size": "3MB", "split_large": True, "sha256": True, "index_metadata": {"step": 3}},
        {"max_shard_size": "5MB", "ties": "copy", "variant": "fp16", "metadata": {"a": "b"}},
    ],
    ids=repr,
)
def test_the_directory_is_the_one_that_save_checkpoint_writes(
    tmp_path: Path, options: dict[str, Any], gate: Gate
) -> None:
    tensorkeep.save_checkpoint(varied(), tmp_path / "expected", **options)
    state = varied()

    held_up(tmp_path, gate)
    handle = save_async(state, tmp_path / "saved", max_waiting=1, **options)
    train_on(state)
    gate.is_open.set()
    handle.result(TIMEOUT_S)

    assert files(tmp_path / "saved") == files(tmp_path / "expected")


def test_a_directory_is_one_though_its_name_is_that_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").mkdir()
    save_async({"w": np.ones(3)}, tmp_path / "x.safetensors").result(TIMEOUT_S)

    assert os.listdir(tmp_path / "x.safetensors") == ["model.safetensors"]


def test_tensors_that_cross_blocks_of_memory_are_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release_snapshots()
    monkeypatch.setattr(_snapshot, "_BLOCK_NBYTES", 100_000)
    tensorkeep.save(varied(), tmp_path / "expected.safetensors")
    save_async(varied(), tmp_path / "saved.safetensors").result(TIMEOUT_S)
    release_snapshots()

    assert (tmp_path / "saved.safetensors").read_bytes() == (tmp_path / "expected.safetensors").read_bytes()


def test_tensors_of_files_are_not_copied_in_memory(tmp_path: Path) -> None:
    tensorkeep.save({"a": np.arange(6.0), "b": np.ones((2, 3))}, tmp_path / "a.safetensors", metadata={"k": "v"})
    with tensorkeep.open(tmp_path / "a.safetensors") as opened:
        cast = {"cast": opened["a"].cast("F32"), "new": np.arange(3)}
        snapshot = take_snapshot(prepare(cast))
        assert len(snapshot.memory.blocks) == 1
        assert take_snapshot(prepare(opened)).memory.blocks == []
        for state, name in ((opened, "whole"), (cast, "cast")):
            tensorkeep.save(state, tmp_path / "expected.safetensors")
            save_async(state, tmp_path / f"{name}.safetensors").result(TIMEOUT_S)
            expected = (tmp_path / "expected.safetensors").read_bytes()
            assert (tmp_path / f"{name}.safetensors").read_bytes() == expected


def test_rows_of_split_tensors_come_from_the_copy(tmp_path: Path, gate: Gate) -> None:
    tensor = np.arange(1_000_000, dtype=np.int32).reshape(1000, 1000)
    held_up(tmp_path, gate)
    handle = save_async({"w": tensor}, tmp_path / "split", max_waiting=1, max_shard_size=1_000_000, split_large=True)
    tensor[...] = -1
    gate.is_open.set()
    handle.result(TIMEOUT_S)

    assert len(os.listdir(tmp_path / "split")) == 5
    np.testing.assert_array_equal(
        tensorkeep.load(tmp_path / "split")["w"], np.arange(1_000_000, dtype=np.int32).reshape(1000, 1000)
    )


def test_what_is_no_data_is_refused_at_once_and_the_next_save_goes_on(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"optim\.hook"):
        save_async({"optim": {"hook": lambda: None}}, tmp_path / "x.safetensors")

    assert os.listdir(tmp_path) == []
    save_async({"w": np.ones(3)}, tmp_path / "x.safetensors").result(TIMEOUT_S)


def test_options_are_those_of_save_or_of_save_checkpoint(tmp_path: Path) -> None:
    both = (tensorkeep.save.__kwdefaults__ or {}) | (tensorkeep.save_checkpoint.__kwdefaults__ or {})
    assert SaveArguments.__annotations__.keys() == both.keys()
    with pytest.raises(TypeError, match="save, which saves to a file, takes no sha256"):
        save_async({}, tmp_path / "x.safetensors", sha256=True)
    with pytest.raises(TypeError, match="save_checkpoint, which saves to a directory, takes no digests"):
        save_async({}, tmp_path / "x", digests=False)
    with pytest.raises(UnsupportedError, match="max_waiting"):
        save_async({}, tmp_path / "x", max_waiting=-1)
    with pytest.raises(UnsupportedError):
        save_async({}, tmp_path / "x", max_shard_size="many")
    with pytest.raises(UnsupportedError, match="ties"):
        save_async({}, tmp_path / "x", ties="maybe")  # type: ignore[arg-type]
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("nbytes", [0, 23, 25, 2**21])
def test_a_tensor_of_another_size_than_it_says_is_an_error(nbytes: int) -> None:
    host = tensor_to_write(np.arange(3.0), "w")
    wrong = StreamedTensor(host.dtype, host.shape, host.nbytes, lambda: iter([b"x" * nbytes]), host.extent)
    prepared = prepare({"w": np.arange(3.0)})
    prepared.to_write["w"] = wrong

    with pytest.raises(IntegrityError, match="another number of bytes") as caught:
        take_snapshot(prepared)

    assert caught.value.tensor == "w"


def test_what_the_caller_changes_afterwards_comes_too_late(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = {"key": "before"}
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    held_up(tmp_path / "here", gate)
    handle = save_async({"w": np.ones(3)}, "x.safetensors", metadata=metadata, max_waiting=1)
    metadata["key"] = "after"
    os.chdir(tmp_path / "there")
    gate.is_open.set()
    handle.result(TIMEOUT_S)

    assert handle.path == str(tmp_path / "here" / "x.safetensors")
    with tensorkeep.open(tmp_path / "here" / "x.safetensors") as opened:
        assert opened.metadata["key"] == "before"


def test_a_handle_tells_how_far_it_is(tmp_path: Path, gate: Gate) -> None:
    handle = held_up(tmp_path, gate)

    assert not handle.done()
    assert not handle.wait(0.01)
    assert "running" in repr(handle)
    for ask in (handle.result, handle.exception):
        with pytest.raises(TimeoutError, match=r"first\.safetensors is not finished after 0.01 s"):
            ask(0.01)
    gate.is_open.set()
    assert handle.wait(TIMEOUT_S)
    assert handle.done()
    assert handle.exception() is None
    handle.result()
    assert repr(handle) == f"SaveHandle({str(tmp_path / 'first.safetensors')!r}, saved)"


def test_a_save_goes_on_without_its_handle(tmp_path: Path, gate: Gate) -> None:
    handle = held_up(tmp_path, gate)
    del handle
    gc.collect()
    gate.is_open.set()
    save_async({"second": np.ones(3)}, tmp_path / "second.safetensors").result(TIMEOUT_S)

    assert sorted(os.listdir(tmp_path)) == ["first.safetensors", "second.safetensors"]


def test_another_save_waits_and_a_queue_is_bounded(tmp_path: Path, gate: Gate) -> None:
    first = held_up(tmp_path, gate)
    second = save_async({"w": np.full(3, 2)}, tmp_path / "x.safetensors", max_waiting=2)
    third = save_async({"w": np.full(3, 3)}, tmp_path / "x.safetensors", max_waiting=2)
    fourth: list[SaveHandle] = []
    thread = threading.Thread(
        target=lambda: fourth.append(save_async({"w": np.full(3, 4)}, tmp_path / "x.safetensors", max_waiting=2))
    )
    thread.start()
    thread.join(0.1)

    assert thread.is_alive(), "there is room for two, and it did not wait"
    assert not any(handle.done() for handle in (first, second, third))
    gate.is_open.set()
    thread.join(TIMEOUT_S)
    last = save_async({"w": np.full(3, 5)}, tmp_path / "x.safetensors")
    assert all(handle.done() for handle in (first, second, third, *fourth)), "with max_waiting=0 all others are done"
    last.result(TIMEOUT_S)
    assert tensorkeep.load(tmp_path / "x.safetensors")["w"].tolist() == [5, 5, 5]


def test_other_directories_do_not_wait(tmp_path: Path, gate: Gate) -> None:
    (tmp_path / "other").mkdir()
    first = held_up(tmp_path, gate)
    save_async({"w": np.ones(3)}, tmp_path / "other" / "x.safetensors").result(TIMEOUT_S)

    assert not first.done()


def test_a_link_to_a_directory_is_the_same_place(tmp_path: Path, gate: Gate) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    first = held_up(tmp_path / "real", gate)
    threading.Timer(0.1, gate.is_open.set).start()
    second = save_async({"w": np.ones(3)}, tmp_path / "link" / "x.safetensors")

    assert first.done()
    second.result(TIMEOUT_S)


def test_an_error_is_raised_by_the_next_save_once(tmp_path: Path) -> None:
    missing = tmp_path / "missing" / "x.safetensors"
    handle = save_async({"w": np.ones(3)}, missing)
    assert handle.wait(TIMEOUT_S)

    with pytest.raises(SourceMissingError, match="Create the directory first") as caught:
        save_async({"w": np.ones(3)}, missing)
    assert any("an earlier save" in note and str(missing) in note for note in caught.value.__notes__)
    with pytest.raises(SourceMissingError):
        handle.result()
    (tmp_path / "missing").mkdir()
    save_async({"w": np.ones(3)}, missing).result(TIMEOUT_S)
    assert missing.exists()


@pytest.mark.parametrize("ask", ["result", "exception"])
def test_an_error_that_was_seen_is_not_raised_again(tmp_path: Path, ask: str) -> None:
    handle = save_async({"w": np.ones(3)}, tmp_path / "missing" / "x.safetensors")
    if ask == "result":
        with pytest.raises(SourceMissingError):
            handle.result(TIMEOUT_S)
    else:
        assert isinstance(handle.exception(TIMEOUT_S), SourceMissingError)
    (tmp_path / "missing").mkdir()

    save_async({"w": np.ones(3)}, tmp_path / "missing" / "x.safetensors").result(TIMEOUT_S)


def test_each_of_several_errors_is_raised_once(tmp_path: Path, gate: Gate) -> None:
    def give_up(done: int, of: int) -> None:
        raise ValueError("given up")

    held_up(tmp_path, gate)
    paths = [tmp_path / f"{n}.safetensors" for n in range(2)]
    failing = [save_async({"w": np.ones(3)}, path, progress=give_up, max_waiting=9) for path in paths]
    gate.is_open.set()
    assert all(handle.wait(TIMEOUT_S) for handle in failing)
    seen: list[str] = []
    for _ in range(2):
        with pytest.raises(ValueError, match="given up") as caught:
            save_async({"w": np.ones(3)}, tmp_path / "x.safetensors", max_waiting=9)
        seen.extend(caught.value.__notes__)
    save_async({"w": np.ones(3)}, tmp_path / "x.safetensors", max_waiting=9).result(TIMEOUT_S)

    assert [str(path) in note for path, note in zip(paths, seen, strict=True)] == [True, True]
    assert sorted(os.listdir(tmp_path)) == ["first.safetensors", "x.safetensors"]


def test_what_progress_raises_ends_the_save_and_the_target_stays(tmp_path: Path) -> None:
    class MadeUpError(Exception):
        pass

    def give_up(done: int, of: int) -> None:
        threads.add(threading.current_thread())
        raise MadeUpError

    threads: set[threading.Thread] = set()
    path = tmp_path / "x.safetensors"
    tensorkeep.save({"w": np.ones(3)}, path)
    before = files(tmp_path)
    handle = save_async({"w": np.zeros(3)}, path, progress=give_up)
    with pytest.raises(MadeUpError):
        handle.result(TIMEOUT_S)

    assert files(tmp_path) == before
    assert threading.current_thread() not in threads
    assert "failed: MadeUpError" in repr(handle)


def test_threads_that_save_to_one_place_take_turns(tmp_path: Path) -> None:
    handles: list[SaveHandle] = []

    def save_often(number: int) -> None:
        path = tmp_path / "x.safetensors"
        handles.extend(save_async(state(10 * number + each), path, max_waiting=number % 2) for each in range(8))

    threads = [threading.Thread(target=save_often, args=(number,)) for number in range(1, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    for handle in handles:
        handle.result(TIMEOUT_S)

    assert len(handles) == 24
    assert number_of(tmp_path / "x.safetensors") % 10 == 7, "the last save of a thread is not the last of all"
    assert os.listdir(tmp_path) == ["x.safetensors"]


def test_threads_are_gone_when_nothing_is_left_to_do(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    save_async({"w": np.ones(3_000_000)}, tmp_path / "x.safetensors").result(TIMEOUT_S)
    deadline = time.monotonic() + TIMEOUT_S
    while any("tensorkeep" in thread.name for thread in set(threading.enumerate()) - before):
        assert time.monotonic() < deadline, threading.enumerate()
        time.sleep(0.01)


def run(what: str, path: Path, number: int = 2) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, PROGRAM, what, path, str(number)], capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_memory_is_used_again_and_released_on_request(tmp_path: Path) -> None:
    nbytes = 300_000_000
    done = run("tell_memory", tmp_path / "x.safetensors", nbytes)
    assert done.returncode == 0, done.stderr

    kept, released = map(int, done.stdout.split())

    assert kept < 1.4 * nbytes
    assert kept - released > 0.9 * nbytes


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("reason", ["no directory", "progress"])
def test_an_error_holds_no_memory_of_the_snapshot(tmp_path: Path, reason: str) -> None:
    folder = tmp_path / ("missing" if reason == "no directory" else ".")
    done = run("tell_memory_of_an_error", folder / "x.safetensors", 200_000_000)
    assert done.returncode == 0, done.stderr

    assert int(done.stdout) < 40_000_000


@pytest.mark.parametrize(
    ("what", "status"),
    [("end", 0), ("fail", 1), ("leave", 3), ("end_with_others_waiting", 0)],
)
def test_the_end_of_the_process_waits(tmp_path: Path, what: str, status: int) -> None:
    path = tmp_path / "x.safetensors"
    tensorkeep.save(state(1), path)
    done = run(what, path)

    assert done.returncode == status, done.stderr
    assert number_of(path) == 2
    assert os.listdir(tmp_path) == ["x.safetensors"]
    assert done.stderr == "" or "training failed" in done.stderr


def test_a_save_that_begins_at_the_very_end_is_done(tmp_path: Path) -> None:
    done = run("save_at_the_end", tmp_path / "x.safetensors")

    assert (done.returncode, done.stderr) == (0, "")
    assert number_of(tmp_path / "x.safetensors") == 2


def test_an_error_that_nobody_saw_is_reported_at_the_end(tmp_path: Path) -> None:
    done = run("ask_nobody", tmp_path)

    assert f"save_async to {tmp_path}/missing/x.safetensors" in done.stderr
    assert "SourceMissingError: could not write the file" in done.stderr
    assert done.stderr.count("Traceback") == 1


def test_an_error_that_somebody_saw_is_not(tmp_path: Path) -> None:
    done = run("ask", tmp_path)

    assert (done.returncode, done.stdout, done.stderr) == (0, "SourceMissingError\n", "")


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_an_interrupt_at_the_end_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    tensorkeep.save(state(1), path)
    with subprocess.Popen(
        [sys.executable, PROGRAM, "wait_for_an_interrupt", path, "2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"begun\n"
        time.sleep(0.5)
        assert process.poll() is None, "it did not wait"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=TIMEOUT_S)

    assert number_of(path) == 1
    tensorkeep.save(state(3), path)
    assert number_of(path) == 3
    assert os.listdir(tmp_path) == ["x.safetensors"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_has_no_part_in_it(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    done = run("fork", path)

    assert (done.returncode, done.stdout, done.stderr) == (0, "UnsupportedError\n", "")
    assert number_of(path) == 2
    assert number_of(f"{path}.child.safetensors") == 3


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("target", ["x.safetensors", "a directory"])
@pytest.mark.soak
def test_killed_at_any_time_the_old_or_the_new_state_is_there(tmp_path: Path, target: str) -> None:
    path = tmp_path / target
    rng = random.Random(SEED)
    number, n_new, longest_s = 0, 0, 0.2
    save_async(state(0), path).result(TIMEOUT_S)
    for n_killed in itertools.count():
        if n_killed >= N_KILLS and n_new >= N_KILLS // 5:  # fewer would have come too early to say anything
            break
        command: list[str | Path] = [sys.executable, PROGRAM, "again_and_again", path, str(number + 1)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout
            assert process.stdout.readline() == b"begun\n"
            time.sleep(rng.random() * longest_s)
            process.kill()
        found = number_of(path)
        assert found >= number
        n_new += found > number
        longest_s *= 1 if found > number else 1.2  # a busy machine saves more slowly
        number = found
    save_async(state(number + 1), path).result(TIMEOUT_S)

    assert number_of(path) == number + 1
    assert os.listdir(tmp_path) == [target]


def test_a_full_disk_is_an_error_of_the_save(tmp_path: Path) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("no unshare(1) to mount a small disk with")
    isolated = ["unshare", "--mount", "--map-root-user"]
    may_mount = subprocess.run(
        [*isolated, "mount", "-t", "tmpfs", "tmpfs", tmp_path], capture_output=True, check=False
    )
    if may_mount.returncode:
        pytest.skip(f"no rights to mount a small disk: {may_mount.stderr!r}")
    done = subprocess.run(
        [*isolated, sys.executable, PROGRAM, "on_a_small_disk", tmp_path, "1"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stderr == ""
    assert done.stdout.splitlines() == ["28 1 ['x.safetensors']"] * 2 + ["4"]
