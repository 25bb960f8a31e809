"""Saving: to the page cache, to disk with fsync, and to memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import safetensors.torch
import torch

import tensorkeep
import tensorkeep.torch
from benchmarks import inputs, limits
from benchmarks.case import AtLeast, Case, Contender, Place
from tensorkeep.transport.system import finish_freeing

__all__ = ["CASES"]


class _Job:
    """Tensors in memory, and where to save them."""

    def __init__(self, source: Path, target: Path) -> None:
        self.source = source
        self.target = target
        self.tensors = {name: tensor.clone() for name, tensor in safetensors.torch.load_file(source).items()}

    @cached_property
    def buffers(self) -> list[limits.Bytes]:
        return [tensor.view(torch.uint8).reshape(-1).numpy() for tensor in self.tensors.values()]


def _to(where: Callable[[Place], Path]) -> Callable[[Place], _Job]:
    """Declare 1.3 GB in 101 tensors, on their way to a directory."""

    def prepare(place: Place) -> _Job:
        source = inputs.tensor_file(place.folder, "BF16", (2048, place.size(3142, 32)), place.size(101, 11))
        return _Job(source, where(place) / "saved.safetensors")

    return prepare


def _many(place: Place) -> _Job:
    """Declare 20,000 tensors of 2 kB, like the state of an optimizer, on their way to memory."""
    source = inputs.tensor_file(place.folder, "F32", (512,), place.size(20_000, 200))
    return _Job(source, place.tmpfs / "saved.safetensors")


def _remove(job: _Job) -> None:
    job.target.unlink()


def _settle(job: _Job) -> None:
    """Flush the older file to disk, as if hours had passed since the last save."""
    if job.target.exists():
        _sync(job.target)


def _finish(_: _Job) -> None:
    """Let no other contender pay for blocks that are freed in the background."""
    finish_freeing()


def _sync(path: Path) -> None:
    for target in (path, path.parent):
        fd = os.open(target, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def _peer_durable(job: _Job) -> None:
    safetensors.torch.save_file(job.tensors, job.target)
    _sync(job.target)


_OURS = Contender("tensorkeep", lambda job: tensorkeep.torch.save_file(job.tensors, job.target))
_PEERS = (
    Contender("safetensors", lambda job: safetensors.torch.save_file(job.tensors, job.target)),
    Contender("torch.save", lambda job: torch.save(job.tensors, job.target)),
)
_CP = Contender("cp", lambda job: limits.copy_of_file(job.source, job.target))
_LIMITS = (
    Contender("fallocate and write", lambda job: limits.write_buffers(job.buffers, job.target)),
    _CP,
)

CASES = (
    Case(
        name="save/new",
        title="`torch.save_file`, 1.3 GB in 101 BF16 tensors, a new file",
        prepare=_to(lambda place: place.folder),
        after=_remove,
        ours=_OURS,
        peers=_PEERS,
        limits=_LIMITS,
        target=AtLeast(1.5),
        rounds=11,
        remark="The time is one copy into the page cache by one thread: the kernel lets only one thread write to a "
        "file, and two threads writing through a mapping were slower.",
    ),
    Case(
        name="save/overwrite",
        title="the same over an older file",
        prepare=_to(lambda place: place.folder),
        before=_settle,
        after=_finish,
        ours=_OURS,
        peers=_PEERS,
        limits=_LIMITS,
        target=AtLeast(1.5),
        rounds=11,
        remark="The older file is on disk when the clock starts. Freeing its blocks is part of the others' time, and "
        "slow if the disk is mounted with `discard`; tensorkeep leaves it to a thread. On ext4, a rename over an "
        "older file also waits until the new one is on its way to disk, unless its blocks were reserved. "
        "`torch.save`, `cp` and the raw write do not rename: they write in place, so a crash leaves neither the old "
        "file nor the new one.",
    ),
    Case(
        name="save/tmpfs",
        title="the same, a new file on tmpfs",
        prepare=_to(lambda place: place.tmpfs),
        after=_remove,
        ours=_OURS,
        peers=_PEERS,
        limits=(
            Contender("write", lambda job: limits.write_buffers(job.buffers, job.target, reserve=False)),
            _CP,
        ),
        target=AtLeast(1.0),
        rounds=11,
    ),
    Case(
        name="save/many",
        title="`torch.save_file`, 20,000 F32 tensors of 2 kB, to tmpfs",
        prepare=_many,
        after=_remove,
        ours=_OURS,
        peers=(
            *_PEERS,
            Contender(
                "tensorkeep.save, with digests", lambda job: tensorkeep.save(job.tensors, job.target, durable=False)
            ),
        ),
        limits=(Contender("write", lambda job: limits.write_buffers(job.buffers, job.target, reserve=False)),),
        target=AtLeast(6.0),
        remark="Describing a tensor takes some 2 us of Python: a dozen questions to torch, one record, its place in "
        "the header. With digests, hashing 2 kB takes as long again.",
    ),
    Case(
        name="save/durable",
        title="the same, a new file, with fsync",
        prepare=_to(lambda place: place.folder),
        after=_remove,
        ours=Contender("tensorkeep", lambda job: tensorkeep.save(job.tensors, job.target, durable=True)),
        peers=(Contender("safetensors, then fsync", _peer_durable),),
        limits=(
            Contender(
                "fallocate, write, fsync",
                lambda job: limits.write_buffers(job.buffers, job.target, durable=True),
            ),
        ),
        rounds=5,
        remark="The cost of surviving a power cut. Neither `save_file` pays it; `tensorkeep.save` does by default.",
    ),
)
