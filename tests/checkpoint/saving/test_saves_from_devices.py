"""Saves of torch's tensors on devices through host buffers: with torch's own copies, on the CPU by another name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import tensorkeep
from tensorkeep.arrays.torch import _device_memory, _fetches, streams
from tensorkeep.errors import TransportError
from tensorkeep.transport.atomic import _sink
from tests.support.tensors.thread_streams import Stream, ThreadStreams


@pytest.fixture(autouse=True)
def caller(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stream]:
    """Let the CPU have streams, and return the one in which the caller works."""
    monkeypatch.setitem(streams.STREAMS, "cpu", ThreadStreams)
    yield Stream()
    assert not [thread for thread in threading.enumerate() if thread.name == "tensorkeep-read"]


def state() -> dict[str, Any]:
    """Return tensors that are not as in a file, and so come from a device."""
    torch.manual_seed(1)
    small = {f"small.{n}": torch.randn(n % 7 + 2, 3).T for n in range(300)}
    dtypes = (torch.bfloat16, torch.float8_e4m3fn, torch.int8, torch.float64, torch.uint16)
    typed = {f"typed.{dtype}": torch.arange(60).reshape(6, 10).to(dtype).T for dtype in dtypes}
    large = {f"large.{n}": torch.randn(1100 + n, 900).T for n in range(3)}
    odd = {
        "conj": torch.randn(20, 30, dtype=torch.complex64).conj(),
        "host": torch.randn(9),
        "empty": torch.empty(0, 2),
    }
    return {**small, **typed, **large, **odd}


def begin_to_write(values: dict[str, Any], caller: Stream) -> None:
    """Write the state to tensors in the stream of the caller; those on the host, at once."""
    for name, tensor in state().items():
        if values[name].is_contiguous():  # on the host
            values[name].copy_(tensor)
            continue
        caller.begin(lambda name=name, tensor=tensor: values[name].copy_(tensor))


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Give a list of the bytes of each host buffer, which grows as they are made."""
    noted: list[int] = []
    made = _device_memory.TorchDeviceMemory.host_buffer

    def host_buffer(self: Any, nbytes: int) -> Any:
        noted.append(nbytes)
        return made(self, nbytes)

    monkeypatch.setattr(_device_memory.TorchDeviceMemory, "host_buffer", host_buffer)
    return noted


def is_equal(path: Path) -> bool:
    loaded = tensorkeep.load(path, framework="torch")
    return loaded.keys() == state().keys() and all(loaded[name].equal(tensor) for name, tensor in state().items())


@pytest.mark.parametrize("host_budget", [2**20, 2**28])
@pytest.mark.parametrize("digests", [True, False])
def test_files_are_those_of_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host_budget: int, *, digests: bool
) -> None:
    with tensorkeep.staging(host_budget=host_budget):
        tensorkeep.save(state(), tmp_path / "device.safetensors", digests=digests)
    monkeypatch.delitem(streams.STREAMS, "cpu")
    tensorkeep.save(state(), tmp_path / "cpu.safetensors", digests=digests)

    assert (tmp_path / "device.safetensors").read_bytes() == (tmp_path / "cpu.safetensors").read_bytes()


@pytest.mark.parametrize("snapshot", [None, "host", "device"])
def test_what_is_saved_was_written_in_the_stream_of_the_caller(tmp_path: Path, caller: Stream, snapshot: Any) -> None:
    values = {name: torch.zeros_like(tensor) for name, tensor in state().items()}
    with ThreadStreams.stream(caller):
        begin_to_write(values, caller)
        if snapshot is None:
            tensorkeep.save_checkpoint(values, tmp_path / "saved", max_shard_size="1MB")
        else:
            handle = tensorkeep.save_async(values, tmp_path / "saved", snapshot=snapshot)
            for tensor in values.values():
                tensor.zero_()
            handle.result(60)

    assert is_equal(tmp_path / "saved")


KEY = tensorkeep.Key(bytes(range(32)))

WAYS: dict[str, dict[str, Any]] = {
    "blocks": {"block_digests": True},
    "encrypted": {"encrypt": KEY},
    "both": {"block_digests": True, "encrypt": KEY},
    "bucket": {},
    "bucket, blocks": {"block_digests": True},
}
"""Saves in which one thread takes the bytes of each file in order."""


@pytest.mark.parametrize("way", WAYS)
def test_a_single_thread_gets_small_tensors_together(
    tmp_path: Path, sizes: list[int], caller: Stream, way: str
) -> None:
    values = {name: torch.zeros_like(tensor) for name, tensor in state().items()}
    target: Any = f"memory://{tmp_path.name}/saved" if way.startswith("bucket") else tmp_path / "saved"
    with ThreadStreams.stream(caller):
        begin_to_write(values, caller)
        tensorkeep.save_checkpoint(values, target, **WAYS[way])

    assert max(sizes) <= 2**22
    n_passes = 2 if way.startswith("bucket") else 1  # for the digests, and to the store
    assert len(sizes) < 10 * n_passes
    key = WAYS[way].get("encrypt")
    loaded = tensorkeep.load(target, framework="torch", verify=True, **({"key": key} if key else {}))
    assert loaded.keys() == state().keys()
    assert all(loaded[name].equal(tensor) for name, tensor in state().items())


@pytest.mark.parametrize("options", [{}, {"block_digests": True}])
def test_small_tensors_of_the_cpu_do_not_separate_those_of_a_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """Such as the steps of an optimizer, whose names are between those of its moments."""
    torch.manual_seed(2)
    values: dict[str, torch.Tensor] = {}
    for n in range(200):
        values |= {
            f"{n}.exp_avg": torch.randn(40, 30).T,
            f"{n}.step": torch.tensor(float(n)),
            f"{n}.z": torch.empty(0),
        }
    values |= {"100.large": torch.randn(700, 900)}
    n_parts: list[int] = []
    fetch = _fetches.TorchFetches.fetch

    def counted(self: Any, parts: Any, buffer: Any) -> Any:
        n_parts.append(len(parts))
        return fetch(self, parts, buffer)

    monkeypatch.setattr(_fetches.TorchFetches, "fetch", counted)
    tensorkeep.save_checkpoint(values, tmp_path / "device", **options)
    monkeypatch.delitem(streams.STREAMS, "cpu")
    tensorkeep.save_checkpoint(values, tmp_path / "cpu", **options)

    assert sum(n_parts) == 200
    assert len(n_parts) <= 4  # before the large one and after it
    made, expected = (tmp_path / name / "model.safetensors" for name in ("device", "cpu"))
    assert made.read_bytes() == expected.read_bytes()


def test_files_written_side_by_side_share_the_budget(tmp_path: Path, sizes: list[int]) -> None:
    values = {f"{n}": torch.randn(600, 500).T for n in range(4)}
    with tensorkeep.staging(host_budget=2**20, n_threads=4):
        tensorkeep.save_checkpoint(values, tmp_path / "saved", max_shard_size="1MB")
    assert len(list((tmp_path / "saved").glob("model-*"))) == 4
    assert sum(sizes) <= 2 * 2**20
    assert max(sizes) <= 2**20 // 2


def test_a_device_without_room_copies_small_tensors_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = torch.empty

    def full(*size: Any, **options: Any) -> torch.Tensor:
        if "pin_memory" not in options and options.get("dtype") is torch.uint8:
            raise torch.OutOfMemoryError("the device is full")
        return empty(*size, **options)

    monkeypatch.setattr(_fetches.torch, "empty", full)
    tensorkeep.save(state(), tmp_path / "x.safetensors")
    monkeypatch.undo()
    assert is_equal(tmp_path / "x.safetensors")


@pytest.mark.parametrize("what", ["write", "progress"])
def test_a_failure_leaves_the_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    tensorkeep.save_checkpoint(state(), tmp_path / "saved")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    def stop(done: int, total: int) -> None:
        if done > 2_000_000:
            raise KeyboardInterrupt

    changed = {name: tensor + 1 for name, tensor in state().items() if name.startswith("large")}
    error, progress = (TransportError, None) if what == "write" else (KeyboardInterrupt, stop)
    with monkeypatch.context() as patches:
        if what == "write":
            patches.setattr(_sink, "write_at", full)
        with pytest.raises(error):
            tensorkeep.save_checkpoint(changed, tmp_path / "saved", progress=progress)

    assert is_equal(tmp_path / "saved")
    assert len(list((tmp_path / "saved").iterdir())) == 1


KILLED = """
import os, signal, sys, torch, tensorkeep
from tensorkeep.arrays.torch import streams
from tensorkeep.transport.atomic import _sink
from tests.support.tensors.thread_streams import ThreadStreams

streams.STREAMS["cpu"] = ThreadStreams
write_at, left = _sink.write_at, [2]

def killed(fd, offset, data):
    write_at(fd, offset, data)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)

_sink.write_at = killed
with tensorkeep.staging(host_budget=2**20, n_threads=2):
    tensorkeep.save_checkpoint({str(n): torch.ones(800, 900).T for n in range(4)}, sys.argv[1])
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_killed_process_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(state(), tmp_path / "saved")
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", KILLED, str(tmp_path / "saved")]
    assert subprocess.run(command, env=environment, timeout=120, check=False).returncode == -signal.SIGKILL
    assert is_equal(tmp_path / "saved")
