"""Small tensors on a device: all bits arrive, and torch copies several at once only where all its versions can."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import tensorkeep
from tensorkeep.arrays import Move, Target
from tensorkeep.arrays.torch import streams
from tensorkeep.arrays.torch._distribution import distribute
from tensorkeep.dtypes import BY_NAME, BY_TORCH
from tests.support.tensors.late_device import CpuStreams

INTEGERS = {torch.int8, torch.int16, torch.int32, torch.int64}
FLOATS = {torch.float64, torch.float32, torch.float16, torch.bfloat16}


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many tensors each call copies, which CUDA can do right only for some dtypes, the same for all."""
    calls: list[int] = []
    copy = torch._foreach_copy_

    def noted(into: Sequence[torch.Tensor], parts: Sequence[torch.Tensor]) -> Any:
        (to,), (stored,) = {tensor.dtype for tensor in into}, {tensor.dtype for tensor in parts}
        assert (to == stored and to in INTEGERS | {torch.complex128}) or {to, stored} <= FLOATS
        calls.append(len(into))
        return copy(into, parts)

    monkeypatch.setattr(torch, "_foreach_copy_", noted)
    return calls


def test_all_bits_of_every_dtype_arrive(at_once: list[int]) -> None:
    dtypes = [getattr(torch, name) for name, dtype in BY_TORCH.items() if not dtype.is_packed]
    tensors = [torch.full((48,), 0xFF, dtype=torch.uint8).view(dtype) for dtype in dtypes]  # NaNs with all bits set
    row = torch.full((48 * len(tensors),), 0xFF, dtype=torch.uint8)
    for tensor in tensors:
        tensor.view(torch.uint8).zero_()

    distribute(row, *moves_to(tensors))

    assert all(tensor.view(torch.uint8).eq(0xFF).all() for tensor in tensors)
    assert sum(at_once) == len(tensors) > 15
    assert len(at_once) < 12


def moves_to(tensors: Sequence[torch.Tensor]) -> tuple[list[Move], dict[int, Target]]:
    """Return moves of neighbors, of 48 bytes each, and their targets."""
    targets = {n: Target(each, BY_TORCH[str(each.dtype).removeprefix("torch.")]) for n, each in enumerate(tensors)}
    return [Move(n, 0, 48 * n, 48 * n + 48) for n in targets], targets


def test_tensors_of_one_dtype_go_to_tensors_of_several(at_once: list[int]) -> None:
    stored = BY_NAME["BF16"]
    dtypes = [torch.bfloat16, torch.float32, torch.float32, torch.float8_e5m2, torch.float16, torch.bfloat16]
    values = torch.arange(24 * len(dtypes)).bfloat16()
    targets = {n: Target(torch.zeros(4, 6, dtype=dtype), stored) for n, dtype in enumerate(dtypes)}
    targets[2] = Target(torch.zeros(6, 4).T, stored)

    distribute(values.view(torch.uint8), [Move(n, 0, 48 * n, 48 * n + 48) for n in targets], targets)

    for n, target in targets.items():
        assert target.tensor.equal(values[24 * n : 24 * n + 24].view(4, 6).to(dtypes[n]))
    assert at_once == [1, 2, 1, 1]  # not the one of F8


def test_nans_of_packed_weights_keep_their_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(streams.STREAMS, "cpu", CpuStreams)
    words = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    saved = {str(n): words.clone().view((torch.bfloat16, torch.float16)[n % 2]) for n in range(8)}
    tensorkeep.torch.save_file(saved, tmp_path / "x.safetensors")

    loaded = tensorkeep.load(tmp_path / "x.safetensors", framework="torch", device="cpu:0")

    assert all(tensor.view(torch.int16).equal(words) for tensor in loaded.values())


@pytest.mark.parametrize("default", ["meta", "cpu"])
def test_the_default_device_is_not_that_of_the_buffers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, default: str
) -> None:
    monkeypatch.setitem(streams.STREAMS, "cpu", CpuStreams)
    saved = {"large": torch.randn(300, 1000), "small": torch.randn(9)}
    tensorkeep.torch.save_file(saved, tmp_path / "x.safetensors")

    with torch.device(default):
        loaded = tensorkeep.load(tmp_path / "x.safetensors", framework="torch", device="cpu:0")

    assert all(loaded[name].equal(tensor) for name, tensor in saved.items())
