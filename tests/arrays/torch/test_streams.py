"""Threads that do parts of the caller's work on a device do them in the order of the caller's stream."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import tensorkeep
from tensorkeep.arrays.torch import streams
from tensorkeep.arrays.torch._dense import TorchArrays
from tests.support.tensors.thread_streams import DEFAULT, Stream, ThreadStreams


@pytest.fixture(autouse=True)
def caller(monkeypatch: pytest.MonkeyPatch) -> Stream:
    """Let the CPU have streams, and return the one in which the caller works."""
    monkeypatch.setitem(streams.STREAMS, "cpu", ThreadStreams)
    return Stream()


@pytest.mark.parametrize("n_rows", [30, 3000])
def test_a_save_follows_the_work_of_the_caller(tmp_path: Path, caller: Stream, n_rows: int) -> None:
    state = {name: torch.zeros(n_rows, 700).T for name in "abcd"}  # not as in a file, and so read as from a device

    with ThreadStreams.stream(caller):
        for tensor in state.values():
            caller.begin(lambda tensor=tensor: tensor.fill_(1))
        tensorkeep.save_checkpoint(state, tmp_path / "saved", max_shard_size="1kB")

    loaded = tensorkeep.load(tmp_path / "saved")
    assert len(list((tmp_path / "saved").glob("model-*"))) == 4
    assert all(loaded[name].all() for name in state)


def test_a_patch_follows_the_work_of_the_caller(tmp_path: Path, caller: Stream) -> None:
    torch.manual_seed(1)
    old = {f"{n}.weight": torch.randn(40, 30) for n in range(4)}
    new = {name: tensor + (torch.rand_like(tensor) > 0.9) for name, tensor in old.items()}
    tensorkeep.save_checkpoint(old, tmp_path / "old")
    tensorkeep.save_checkpoint(new, tmp_path / "new")
    tensorkeep.patches.make(tmp_path / "old", tmp_path / "new", tmp_path / "x.patch.safetensors")
    model = torch.nn.ModuleList(torch.nn.Linear(30, 40, bias=False) for _ in range(4))

    with ThreadStreams.stream(caller):
        caller.begin(lambda: model.load_state_dict(old))
        tensorkeep.torch.apply_patch(model, tmp_path / "x.patch.safetensors")

    assert all(tensor.equal(new[name]) for name, tensor in model.state_dict().items())


def test_small_parts_are_moved_in_the_stream_of_the_caller(
    tmp_path: Path, caller: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = {f"{n}": torch.full((20, 30), n) for n in range(50)}
    tensorkeep.torch.save_file(state, tmp_path / "x.safetensors")
    found: set[tuple[threading.Thread, Stream]] = set()
    place = TorchArrays.place

    def noted(self: Any, tensors: Any) -> Any:
        found.add((threading.current_thread(), ThreadStreams.current_stream()))
        return place(self, tensors)

    monkeypatch.setattr(TorchArrays, "place", noted)
    with (
        tensorkeep.open(tmp_path / "x.safetensors", framework="torch", device="cpu:0") as opened,
        ThreadStreams.stream(caller),
    ):
        parts = opened.load_parts({name: slice(3, 5) for name in state})

    assert all(parts[name].equal(tensor[3:5]) for name, tensor in state.items())
    assert {stream for _, stream in found} == {caller} != {DEFAULT}
