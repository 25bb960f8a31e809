"""Tensors that are in no file as they are read: devices compute or convert them, or copy what threads make."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import numpy as np
import torch

from tensorkeep.arrays import DeviceMemory, Target, adapter_for
from tensorkeep.dtypes import BY_NAME, torch_row
from tensorkeep.models.filling._jobs import Job, suits_device
from tensorkeep.parallel import scaled_report
from tensorkeep.tensors import AssembledReader, LazyTensor, StridedReader, TensorReader, load_together, parse_index
from tensorkeep.tensors.indexing import Selection
from tensorkeep.tensors.lazy import computed_of, fill_computed
from tensorkeep.tensors.readers import CastReader, Reader, gathers, reads_staged
from tensorkeep.tensors.to_device import (
    Block,
    Filling,
    Part,
    Staged,
    StagingOptions,
    begin_filling,
    device_memory_of,
    fill_blocks,
    fill_each_device,
    require_room,
)
from tensorkeep.transport import ByteRange

Report: TypeAlias = Callable[[int], None]
"""Takes bytes of the checkpoint that were read since the last call."""


def fill_made(jobs: Iterable[Job], report: Report) -> list[Job]:
    """Fill tensors on devices that copy by themselves; return the jobs that are left."""
    left: list[Job] = []
    loads: dict[torch.device, tuple[DeviceMemory, list[Job]]] = {}
    for job in jobs:
        into = job.into.detach()
        memory = device_memory_of(adapter_for("torch", into.device))
        if memory is None or tuple(into.shape) != job.lazy.shape or not suits_device(into, BY_NAME[job.lazy.dtype]):
            left.append(job)
        else:
            there = loads.setdefault(into.device, (memory, []))[1]
            there.append(Job(job.lazy.with_framework("torch", into.device), into))
    with torch.inference_mode():  # parameters may be inference tensors, which cannot be written to otherwise
        for memory, there in loads.values():
            converted = _fill_converted(memory, _fill_computed(memory, there, report), report)
            left += _fill_copied(memory, converted, report)
    return left


def _fill_computed(memory: DeviceMemory, jobs: Sequence[Job], report: Report) -> list[Job]:
    """Fill tensors that the device computes from stored ones, such as quantized ones."""
    by_number = {str(number): job for number, job in enumerate(jobs)}
    for computed in computed_of({number: job.lazy for number, job in by_number.items()}):
        into = {number: by_number[number].into for number in computed.tensors}
        require_room(memory, computed.nbytes_beside, None)
        fill_computed(computed, into, load_together, lambda number: report(by_number[number].lazy.nbytes))
        for number in computed.tensors:
            del by_number[number]
    return list(by_number.values())


def _fill_converted(memory: DeviceMemory, jobs: Sequence[Job], report: Report) -> list[Job]:
    """Fill tensors with stored numbers that the device converts."""
    left: list[Job] = []
    targets: list[Target] = []
    parts: list[Part] = []
    n_made = n_stored = 0
    for job in jobs:
        lazy, found = job.lazy, _converted(job)
        if found is None:
            left.append(job)
            continue
        dtype = lazy.entry.known_dtype or BY_NAME[lazy.dtype]
        start, stop = (found.data_start + offset for offset in lazy.entry.data_offsets)
        parts.append(Part(len(targets), found.source, ByteRange(start, stop), dtype.itemsize))
        targets.append(Target(job.into, dtype))
        n_made, n_stored = n_made + lazy.nbytes, n_stored + stop - start

    def begin(load: DeviceMemory, options: StagingOptions) -> Filling:
        return begin_filling(load, targets, parts, options)

    fill_each_device([memory] if parts else [], begin, scaled_report(report, n_made, n_stored))
    return left


def _converted(job: Job) -> Staged | None:
    """Return where stored numbers are that the device can convert to the dtype of a tensor."""
    reader, entry = job.lazy.reader, job.lazy.entry
    found = reader.staged({"": entry}) if reads_staged(reader) else None
    return found[1] if found is not None and found[1].cast_to == torch_row(job.into.dtype) else None


def _fill_copied(memory: DeviceMemory, jobs: Iterable[Job], report: Report) -> list[Job]:
    """Fill tensors with what threads make in the host buffers."""
    left: list[Job] = []
    blocks: list[tuple[Target, Block]] = []
    for job in jobs:
        block = block_of(job.lazy, parse_index(..., job.lazy.shape))
        if block is None:
            left.append(job)
        else:
            blocks.append((Target(job.into, block.dtype), block))
    fill_blocks([(memory, blocks)] if blocks else [], report)
    return left


def block_of(lazy: LazyTensor, selection: Selection) -> Block | None:
    """Return how threads read a part of a tensor, piece by piece, into host buffers; None if they do not."""
    reader, dtype = lazy.reader, BY_NAME[lazy.dtype]
    if gathers(reader):
        found = reader.staged_block(lazy.name, lazy.entry, selection)
        return None if found is None else found[1]
    if not _is_read_in_pieces(reader):
        return None
    in_numpy = reader.with_framework("numpy")

    def read(index: tuple[int | slice, ...], into: memoryview) -> None:
        part = selection.part(index)
        values = in_numpy.read(lazy.name, lazy.entry, part)
        np.frombuffer(into, dtype.bits_name).reshape(part.block_shape)[...] = values.view(dtype.bits_name)

    return Block(lazy.name, dtype, selection.block_shape, read)


def _is_read_in_pieces(reader: Reader) -> bool:
    """Whether reading pieces takes no longer than reading all, and runs no function of the caller's in a thread."""
    while isinstance(reader, CastReader):
        reader = reader.stored
    return isinstance(reader, TensorReader | StridedReader | AssembledReader)
