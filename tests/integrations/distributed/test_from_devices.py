"""Ranks whose tensors are on devices: with torch's own copies, on the CPU by another name."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

import tensorkeep
from tensorkeep.arrays.torch import _device_memory, _fetches, streams
from tensorkeep.checkpoint.ranks import _fetched_parts
from tensorkeep.integrations.distributed import TensorkeepWriter
from tests.support.integrations.distributed.gloo_ranks import Ranks, save
from tests.support.tensors.late_device import CpuStreams
from tests.support.tensors.thread_streams import Stream, ThreadStreams

N_SMALL = 300


def whole() -> dict[str, torch.Tensor]:
    torch.manual_seed(3)
    small = {f"small.{n}": torch.randn(n % 7 + 2, 3) for n in range(N_SMALL)}
    return {
        **small,
        "rows": torch.randn(1201, 900),
        "columns": torch.randn(700, 1203).to(torch.bfloat16),
        "depth": torch.randint(0, 99, (5, 40, 90)),
        "conj": torch.randn(20, 30, dtype=torch.complex64),
    }


def not_as_in_a_file(tensor: torch.Tensor) -> torch.Tensor:
    """Return the same numbers in an order that files do not have; on the CPU, others are read where they are."""
    if tensor.is_complex():
        return tensor.conj().clone().conj()
    return tensor.mT.contiguous().mT


def of_rank(rank: int) -> dict[str, Any]:
    """Return a rank's parts of all tensors, and values that are on the host."""
    mesh = init_device_mesh("cpu", (4,))
    parts: dict[str, Any] = {}
    for name, tensor in whole().items():
        axis = {"rows": 0, "columns": 1, "depth": 2}.get(name)
        if axis is None:
            parts[name] = not_as_in_a_file(tensor)
            continue
        local = not_as_in_a_file(tensor.chunk(4, axis)[rank])
        parts[name] = DTensor.from_local(
            local, mesh, [Shard(axis)], run_check=False, shape=tensor.shape, stride=tensor.stride()
        )
    steps = {f"small.{n} step": torch.tensor(float(n)) for n in range(N_SMALL)}
    return {**parts, **steps, "epoch": 3}


@contextmanager
def devices() -> Iterator[list[int]]:
    """Let the CPU be a device, and give a list of the bytes of each host buffer, which grows as they are made."""
    sizes: list[int] = []
    made = _device_memory.TorchDeviceMemory.host_buffer

    def host_buffer(self: Any, nbytes: int) -> Any:
        sizes.append(nbytes)
        return made(self, nbytes)

    streams.STREAMS["cpu"] = CpuStreams
    _device_memory.TorchDeviceMemory.host_buffer = host_buffer  # type: ignore[method-assign]
    try:
        yield sizes
    finally:
        _device_memory.TorchDeviceMemory.host_buffer = made  # type: ignore[method-assign]
        del streams.STREAMS["cpu"]


def save_from_devices(rank: int, path: str, options: dict[str, Any]) -> tuple[list[int], int]:
    """Save, and return the sizes of host buffers and the number of copies that a device began."""
    state = of_rank(rank)
    begun: list[int] = []
    fetch = _fetches.TorchFetches.fetch

    def counted(self: Any, parts: Any, buffer: Any) -> Any:
        begun.append(len(parts))
        return fetch(self, parts, buffer)

    _fetches.TorchFetches.fetch = counted  # type: ignore[method-assign]
    try:
        with devices() as sizes, tensorkeep.staging(host_budget=2**20):
            save(state, path, **options)
    finally:
        _fetches.TorchFetches.fetch = fetch  # type: ignore[method-assign]
    return sizes, len(begun)


def save_from_hosts(rank: int, path: str, options: dict[str, Any]) -> None:
    save(of_rank(rank), path, **options)


def is_right(path: Path, **options: Any) -> bool:
    loaded = tensorkeep.load(path, framework="torch", verify=True, **options)
    steps = all(loaded[f"small.{n} step"] == n for n in range(N_SMALL))
    return steps and loaded["epoch"] == 3 and all(loaded[name].equal(tensor) for name, tensor in whole().items())


@pytest.mark.parametrize("layout", ["in_place", "per_rank"])
def test_files_are_those_of_the_cpu(ranks: Ranks, tmp_path: Path, layout: str) -> None:
    (tmp_path / "device").mkdir()
    (tmp_path / "cpu").mkdir()
    options = {"layout": layout, "max_shard_size": "3MB"}
    done = ranks.run(save_from_devices, str(tmp_path / "device"), options)
    ranks.run(save_from_hosts, str(tmp_path / "cpu"), options)

    assert is_right(tmp_path / "device")
    names = sorted(file.name for file in (tmp_path / "cpu").iterdir())
    assert names == sorted(file.name for file in (tmp_path / "device").iterdir())
    assert all((tmp_path / "device" / name).read_bytes() == (tmp_path / "cpu" / name).read_bytes() for name in names)
    for sizes, n_copies in done:
        assert 0 < sum(sizes) <= 2**20
        assert n_copies < 12  # of more than 75 parts on each rank


def test_encrypted_files_get_small_tensors_together(ranks: Ranks, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(bytes(range(32)))
    (tmp_path / "saved").mkdir()
    key = tensorkeep.Key.from_file(tmp_path / "key")
    done = ranks.run(save_from_devices, str(tmp_path / "saved"), {"encrypt": key})
    assert is_right(tmp_path / "saved", key=key)
    assert all(n_copies < 12 for _, n_copies in done)


class Rank:
    """The only rank, whose device does its work late."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(streams.STREAMS, "cpu", ThreadStreams)
        self.caller = Stream()
        self.values = {name: not_as_in_a_file(torch.zeros_like(tensor)) for name, tensor in whole().items()}

    def save(self, path: Any) -> None:
        """Save what the device is still writing."""
        with ThreadStreams.stream(self.caller):
            for name, tensor in whole().items():
                self.caller.begin(lambda name=name, tensor=tensor: self.values[name].copy_(tensor))
            dcp.save(self.values, storage_writer=TensorkeepWriter(path), no_dist=True)


@pytest.fixture
def rank(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rank]:
    yield Rank(monkeypatch)
    assert not [thread for thread in threading.enumerate() if thread.name == "tensorkeep-read"]


@pytest.mark.parametrize("place", ["directory", "store"])
@pytest.mark.filterwarnings("ignore")
def test_what_is_saved_was_written_in_the_stream_of_the_caller(tmp_path: Path, rank: Rank, place: str) -> None:
    target: Any = f"memory://{tmp_path.name}" if place == "store" else tmp_path / "saved"
    rank.save(target)
    loaded = tensorkeep.load(target, framework="torch", verify=True)
    assert all(loaded[name].equal(tensor) for name, tensor in whole().items())


@pytest.mark.filterwarnings("ignore")
def test_parts_are_written_in_batches(tmp_path: Path, rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[int] = []
    fetch_each = _fetched_parts.fetch_each

    def counted(tensors: Any, take: Any) -> None:
        batch = list(tensors)
        batches.append(sum(nbytes for _, nbytes, _ in batch))
        fetch_each(batch, take)

    monkeypatch.setattr(_fetched_parts, "_BATCH_NBYTES", 2**20)
    monkeypatch.setattr(_fetched_parts, "fetch_each", counted)
    rank.save(tmp_path / "saved")
    assert len(batches) > 2
    assert sum(batches) == sum(tensor.nbytes for tensor in whole().values())
    loaded = tensorkeep.load(tmp_path / "saved", framework="torch", verify=True)
    assert all(loaded[name].equal(tensor) for name, tensor in whole().items())


@pytest.mark.filterwarnings("ignore")
def test_a_device_that_fails_leaves_the_old_checkpoint(
    tmp_path: Path, rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensorkeep.save_checkpoint({"old": torch.ones(3)}, tmp_path / "saved")

    def lost(*_: Any) -> Any:
        raise RuntimeError("the device is lost")

    monkeypatch.setattr(_fetches.TorchFetches, "fetch", lost)
    with pytest.raises(dcp.CheckpointException, match="the device is lost"):
        rank.save(tmp_path / "saved")

    assert tensorkeep.load(tmp_path / "saved")["old"].equal(torch.ones(3))
    assert len(list((tmp_path / "saved").iterdir())) == 1
