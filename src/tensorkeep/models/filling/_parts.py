"""Reading parts of a checkpoint's tensors into existing ones, and hardly more bytes than these parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from math import prod
from operator import mul
from typing import Final

import msgspec
import numpy as np
import torch

from tensorkeep.arrays import DeviceMemory, Target, adapter_for, pieces
from tensorkeep.dtypes import BY_NAME, torch_row
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import DtypeError
from tensorkeep.models.filling._jobs import Job, suits_device
from tensorkeep.models.filling._made import block_of
from tensorkeep.models.filling._whole import fill
from tensorkeep.tensors import LazyTensor, Region, TensorReader, narrowed, parse_index, rows_of, run_of
from tensorkeep.tensors.to_device import Block, device_memory_of, fill_blocks
from tensorkeep.transport import ByteRange, LocalFile

_STAGED_NBYTES: Final = 2**22
"""Bytes of the buffer that rows are read into."""

_SIGNED: Final = {1: "i1", 2: "i2", 4: "i4", 8: "i8"}
"""Bytes per element to an integer dtype of NumPy: torch takes these from NumPy and views them as any dtype."""


class PartJob(msgspec.Struct, frozen=True, eq=False):
    """A tensor to fill with a part of a saved one.

    Attributes:
        lazy: The saved tensor.
        region: The part, in elements of the checkpoint.
        into: A tensor of the region's shape; of packed dtypes (F4), with half as many elements in the last dimension.
    """

    lazy: LazyTensor
    region: Region
    into: torch.Tensor


def check_castable(lazy: LazyTensor, into: torch.Tensor, name: str) -> None:
    """Check that a saved tensor can be cast to the dtype of another."""
    stored = BY_NAME.get(lazy.dtype)
    found = getattr(torch, stored.torch, None) if stored is not None and stored.torch else None
    is_packed = stored is not None and stored.is_packed
    if is_packed and (torch_row(into.dtype) == stored or into.dtype.is_floating_point):
        return
    if found is None or not torch.can_cast(found, into.dtype):
        raise DtypeError(
            f"tensor `{name}` cannot be cast to the dtype of the tensor it goes into",
            tensor=name,
            expected=str(into.dtype).removeprefix("torch."),
            found=lazy.dtype,
        )


def fill_parts(jobs: Iterable[PartJob], report: Callable[[int], None]) -> None:
    """Fill tensors with parts of saved ones.

    A contiguous part is read straight into the tensor's memory, together with its neighbors in the file. Other parts
    are read row by row from local files; from elsewhere in larger reads that include small gaps between rows.
    """
    runs: list[Job] = []
    others: list[PartJob] = []
    for job in jobs:
        if not job.region.n_elements:
            continue
        run = _run(job)
        if run is not None:
            runs.append(Job(run, job.into))
        else:
            others.append(job)
    fill(runs, report)
    for job in _gather_on_devices(others, report):
        _fill_rows(job, report)


def _gather_on_devices(jobs: Iterable[PartJob], report: Callable[[int], None]) -> list[PartJob]:
    """Let devices copy what is gathered meanwhile; return the jobs that are left."""
    left: list[PartJob] = []
    loads: dict[torch.device, tuple[DeviceMemory, list[tuple[Target, Block]]]] = {}
    for job in jobs:
        lazy, into = job.lazy, job.into.detach()
        memory = device_memory_of(adapter_for("torch", into.device))
        suits = memory is not None and suits_device(into, BY_NAME[lazy.dtype])
        block = _block_on(into.device, lazy, job.region) if suits else None
        if memory is None or block is None:
            left.append(job)
        else:
            loads.setdefault(into.device, (memory, []))[1].append((Target(into, block.dtype), block))
    fill_blocks(list(loads.values()), report)
    return left


def _block_on(device: torch.device, lazy: LazyTensor, region: Region) -> Block | None:
    selection = parse_index(region.index, lazy.shape)
    if isinstance(lazy.reader, TensorReader):
        return lazy.reader.block(lazy.name, lazy.entry, selection)
    return block_of(lazy.with_framework("torch", device), selection)


def _run(job: PartJob) -> LazyTensor | None:
    """Return a part whose bytes are contiguous as a tensor of its own, otherwise None."""
    lazy = job.lazy
    run = run_of(job.region, lazy.shape)
    dtype = BY_NAME[lazy.dtype]
    if run is None or lazy.span is None or (run.start * dtype.bits % 8, len(run) * dtype.bits % 8) != (0, 0):
        return None
    start = lazy.entry.data_offsets[0] + dtype.nbytes(run.start)
    entry = TensorEntry(dtype.name, job.region.shape, (start, start + dtype.nbytes(len(run))))
    return LazyTensor(lazy.name, entry, lazy.reader)


def _fill_rows(job: PartJob, report: Callable[[int], None]) -> None:
    dtype = BY_NAME[job.lazy.dtype]
    into = job.into.detach()
    read = _reading_of(job.lazy)
    itemsize = max(dtype.itemsize, into.element_size())
    for index in pieces(job.region.shape, itemsize, _STAGED_NBYTES):
        part = narrowed(job.region, index)
        values = read(part)
        with torch.no_grad():
            target = into[_halved(index, into)]
            target.copy_(values.reshape(target.shape))
        report(dtype.nbytes(part.n_elements))


def _reading_of(lazy: LazyTensor) -> Callable[[Region], torch.Tensor]:
    """Return the best way to read parts that are not contiguous."""
    source = lazy.source
    if not isinstance(source, LocalFile) or BY_NAME[lazy.dtype].is_packed:
        return partial(_read, lazy)
    if source.backend == "mmap":
        return partial(_map_rows, lazy)
    return partial(_read_rows, lazy, memoryview(bytearray(_STAGED_NBYTES)))


def _map_rows(lazy: LazyTensor, part: Region) -> torch.Tensor:
    """Map the span of a part while it is needed: only pages that hold some of it are touched."""
    source, span = lazy.source, lazy.span
    dtype = BY_NAME[lazy.dtype]
    strides = [prod(lazy.shape[axis + 1 :]) * dtype.itemsize for axis in range(lazy.ndim)]
    first = (span.start if span else 0) + sum(map(mul, part.starts, strides))
    last = first + sum((size - 1) * stride for size, stride in zip(part.shape, strides, strict=True))
    mapped = source.map(ByteRange(first, last + dtype.itemsize)) if source else None
    if mapped is None or (first - mapped[1]) % dtype.itemsize:
        return _read(lazy, part)
    buffer, start = mapped
    elements = np.ndarray(part.shape, f"<{_SIGNED[dtype.itemsize]}", buffer, first - start, tuple(strides))
    return torch.from_numpy(elements).view(getattr(torch, dtype.torch or ""))


def _read_rows(lazy: LazyTensor, staging: memoryview, part: Region) -> torch.Tensor:
    """Read the rows of a part, and nothing between them."""
    dtype, source, span = BY_NAME[lazy.dtype], lazy.source, lazy.span
    parts: list[tuple[int, memoryview]] = []
    done = 0
    for rows in rows_of(part, lazy.shape, dtype.itemsize):
        for row in range(rows.n_rows):
            offset = (span.start if span else 0) + rows.first + row * rows.step
            parts.append((offset, staging[done : done + rows.nbytes]))
            done += rows.nbytes
    if source is not None:
        source.read_into(parts)
    entry = TensorEntry(dtype.name, (part.n_elements,), (0, done))
    tensor: torch.Tensor = adapter_for("torch").views(staging[:done], {"": entry}, 0)[""]
    return tensor


def _read(lazy: LazyTensor, part: Region) -> torch.Tensor:
    values = lazy[part.index]
    if isinstance(values, torch.Tensor):
        return values
    dtype = BY_NAME[lazy.dtype]
    tensor: torch.Tensor = adapter_for("torch").from_elements(values.view(dtype.bits_name), dtype)
    return tensor


def _halved(index: tuple[int | slice, ...], into: torch.Tensor) -> tuple[int | slice, ...]:
    """Convert an index of elements to one of pairs, for a tensor that counts packed elements in pairs."""
    row = torch_row(into.dtype)
    if row is None or not row.is_packed or len(index) < into.ndim:
        return index
    last = index[-1]
    return (*index[:-1], last // 2 if isinstance(last, int) else slice(last.start // 2, last.stop // 2))
