"""Reading whole tensors into existing ones.

Bytes that need no conversion are read straight into the tensor's memory, in large parallel reads. All others pass in
pieces through a small buffer, and are converted and copied from there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from math import prod
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import torch

from tensorkeep.arrays import DeviceMemory, Target, adapter_for, pieces
from tensorkeep.dtypes import BY_NAME, DType, torch_row
from tensorkeep.entries import TensorEntry
from tensorkeep.limits import READ_NBYTES
from tensorkeep.models.filling._jobs import Job, suits_device
from tensorkeep.models.filling._made import fill_made
from tensorkeep.tensors.to_device import (
    Filling,
    Part,
    StagingOptions,
    begin_filling,
    device_memory_of,
    fill_each_device,
)
from tensorkeep.transport import ByteRange, ByteSource

_BATCH_NBYTES: Final = 16 * READ_NBYTES
"""Bytes read straight into tensors between two progress reports."""

_STAGED_NBYTES: Final = READ_NBYTES
"""Bytes of the buffer for tensors that must be converted."""

_PIECE_NBYTES: Final = 2**22
"""Bytes of one piece in that buffer, before or after conversion, whichever is larger."""

_Item = TypeVar("_Item")
_Report = Callable[[int], None]


class _Stored(msgspec.Struct, frozen=True, eq=False):
    """A job whose bytes are in a source as they are.

    Attributes:
        dtype: The dtype of the stored bytes.
        shape: In elements of that dtype.
        source: The source of the bytes.
        span: Half-open range of the source.
        into: The tensor to fill.
    """

    dtype: DType
    shape: tuple[int, ...]
    source: ByteSource
    span: ByteRange
    into: torch.Tensor

    @property
    def is_direct(self) -> bool:
        """Whether the stored bytes can be read straight into the tensor's memory."""
        into = self.into
        return (
            torch_row(into.dtype) == self.dtype
            and into.device.type == "cpu"
            and into.is_contiguous()
            and not (into.is_conj() or into.is_neg())
            and sys.byteorder == "little"
        )


class _Piece(msgspec.Struct, frozen=True, eq=False):
    """A part of a tensor that passes through the buffer.

    Attributes:
        span: The whole bytes of the source that hold it.
        dtype: The dtype of the stored bytes.
        first: Elements to skip at the start, where several share a byte.
        into: A view of the tensor to fill.
    """

    span: ByteRange
    dtype: DType
    first: int
    into: torch.Tensor


def fill(jobs: Iterable[Job], report: _Report) -> None:
    """Fill tensors, and report bytes of the checkpoint as they are read."""
    jobs = list(jobs)
    # Reads bypass autograd, which must notice that memory it saved for a backward pass has changed
    for tensor in (tensor for job in jobs for tensor in job.versioned):
        if not tensor.is_inference():
            torch.autograd.graph.increment_version(tensor)
    stored = [(job, _stored(job)) for job in jobs]
    present = [each for _, each in stored if each is not None]
    _fill_directly([each for each in present if each.is_direct], report)
    others = _fill_on_devices([each for each in present if not each.is_direct], report)
    _fill_in_pieces(others, report)
    for job in fill_made([job for job, each in stored if each is None], report):
        _compute(job, report)


def _fill_directly(tensors: list[_Stored], report: _Report) -> None:
    """Read straight into the tensors' memory."""
    for source, group in _by_source(tensors):
        for batch in _batched(_memory_of(group), lambda part: len(part[1]), _BATCH_NBYTES):
            source.read_into(batch)
            report(sum(len(memory) for _, memory in batch))


def _fill_on_devices(tensors: list[_Stored], report: _Report) -> list[_Stored]:
    """Let devices copy, and convert, what is read meanwhile; return the tensors that are left."""
    devices: dict[torch.device, list[_Stored]] = {}
    for each in tensors:
        devices.setdefault(each.into.device, []).append(each)
    left: list[_Stored] = []
    loads: list[tuple[DeviceMemory, list[_Stored]]] = []
    for device, group in devices.items():
        memory = device_memory_of(adapter_for("torch", device))
        left += (each for each in group if memory is None or not suits_device(each.into, each.dtype))
        if memory is not None:
            loads.append((memory, [each for each in group if suits_device(each.into, each.dtype)]))
    fill_each_device(loads, _begin_on_device, report)
    return left


def _begin_on_device(load: tuple[DeviceMemory, list[_Stored]], options: StagingOptions) -> Filling:
    memory, tensors = load
    targets = [Target(each.into, each.dtype) for each in tensors]
    parts = [Part(number, each.source, each.span, each.dtype.itemsize) for number, each in enumerate(tensors)]
    return begin_filling(memory, targets, parts, options)


def _fill_in_pieces(tensors: list[_Stored], report: _Report) -> None:
    """Read into a small buffer, and convert and copy from there."""
    staging = np.empty(_STAGED_NBYTES if tensors else 0, np.uint8)
    for source, group in _by_source(tensors):
        for pieces_read in _batched(_pieces_of(group), lambda piece: len(piece.span), _STAGED_NBYTES):
            _pass_through(source, pieces_read, staging.data)
            report(sum(len(piece.span) for piece in pieces_read))


def _stored(job: Job) -> _Stored | None:
    lazy, source, span = job.lazy, job.lazy.source, job.lazy.span
    if source is None or span is None:
        return None
    return _Stored(BY_NAME[lazy.dtype], lazy.shape, source, span, job.into.detach())


def _by_source(tensors: list[_Stored]) -> Iterator[tuple[ByteSource, list[_Stored]]]:
    """Group by source, in the order of the file, so that neighbors are read together."""
    groups: dict[int, list[_Stored]] = {}
    for stored in tensors:
        groups.setdefault(id(stored.source), []).append(stored)
    for group in groups.values():
        yield group[0].source, sorted(group, key=lambda stored: stored.span.start)


def _batched(items: Iterable[_Item], size: Callable[[_Item], int], max_size: int) -> Iterator[list[_Item]]:
    batch: list[_Item] = []
    total = 0
    for item in items:
        if batch and total + size(item) > max_size:
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size(item)
    if batch:
        yield batch


def _memory_of(group: Iterable[_Stored]) -> Iterator[tuple[int, memoryview]]:
    """Give each tensor's offset in the source and its memory, in batches if it is large."""
    for stored in group:
        memory = stored.into.reshape(-1).view(torch.uint8).numpy().data
        for begin in range(0, len(memory), _BATCH_NBYTES):
            yield stored.span.start + begin, memory[begin : begin + _BATCH_NBYTES]


def _pieces_of(group: Iterable[_Stored]) -> Iterator[_Piece]:
    for stored in group:
        dtype, shape, into = stored.dtype, stored.shape, stored.into
        if dtype.is_packed and torch_row(into.dtype) == dtype:  # both have two elements in a byte
            dtype, shape, into = BY_NAME["U8"], tuple(into.shape), into.view(torch.uint8)
        start, done = stored.span.start, 0
        for index in pieces(shape, max(dtype.itemsize, into.element_size(), 4), _PIECE_NBYTES):
            part = into[index]
            first = done % dtype.n_per_group
            done += part.numel()
            begin = dtype.nbytes(done - part.numel() - first)
            end = -(-done // dtype.n_per_group) * dtype.n_per_group
            yield _Piece(ByteRange(start + begin, start + dtype.nbytes(end)), dtype, first, part)


def _pass_through(source: ByteSource, batch: list[_Piece], staging: memoryview) -> None:
    """Read pieces into the buffer, and copy them from there."""
    parts: list[tuple[int, memoryview]] = []
    begin = 0
    for piece in batch:
        parts.append((piece.span.start, staging[begin : begin + len(piece.span)]))
        begin += len(piece.span)
    source.read_into(parts)
    for piece, (_, data) in zip(batch, parts, strict=True):
        _copy(piece.into, _decoded(data, piece))


def _decoded(data: memoryview, piece: _Piece) -> torch.Tensor:
    """Make a tensor of a piece's bytes; sub-byte dtypes, with which torch cannot compute, become F32."""
    n_elements = piece.first + piece.into.numel()
    n_elements += -n_elements % piece.dtype.n_per_group
    entry = TensorEntry(piece.dtype.name, (n_elements,), (0, len(data)))
    if not piece.dtype.is_packed:
        tensor: torch.Tensor = adapter_for("torch").views(data, {"": entry}, 0)[""]
        return tensor
    elements = adapter_for("numpy").views(data, {"": entry}, 0)[""].astype(np.float32)
    return torch.from_numpy(elements[piece.first : piece.first + piece.into.numel()])


def _compute(job: Job, report: _Report) -> None:
    """Fill a tensor with one that must be computed piece by piece, such as a cast one."""
    lazy, into = job.lazy, job.into.detach()
    itemsize = max(BY_NAME[lazy.dtype].itemsize, into.element_size())
    for index in pieces(lazy.shape, itemsize, _PIECE_NBYTES):
        part = lazy[index]
        if not isinstance(part, torch.Tensor):
            dtype = BY_NAME[lazy.dtype]
            part = adapter_for("torch").from_elements(np.ascontiguousarray(part).view(dtype.bits_name), dtype)
        _copy(into[index], part)
        report(BY_NAME[lazy.dtype].nbytes(prod(part.shape)))


def _copy(into: torch.Tensor, values: torch.Tensor) -> None:
    with _writing_to(into):
        into.copy_(values.reshape(into.shape))


def _writing_to(tensor: torch.Tensor) -> AbstractContextManager[Any]:
    return torch.inference_mode() if tensor.is_inference() else torch.no_grad()
