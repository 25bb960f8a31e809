"""A rank's part of a tensor: its bytes, its description as a tensor, and its places in a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import torch
from torch.distributed.checkpoint.planner import SavePlanner, WriteItem

from tensorkeep.arrays import StreamedTensor, TensorToWrite, pieces, tensor_to_write
from tensorkeep.dtypes import torch_row
from tensorkeep.errors import DtypeError, UnsupportedError
from tensorkeep.integrations.distributed._global_plan import region_of, stored_shape
from tensorkeep.integrations.distributed._local_objects import tensor_data_of
from tensorkeep.limits import PACK_NBYTES, WRITE_NBYTES
from tensorkeep.tensors import Region, narrowed, rows_of
from tensorkeep.transport import ReservedFile


def part_of(name: str, item: WriteItem, planner: SavePlanner) -> torch.Tensor:
    """Return a part that this rank has, with the dtype that was planned."""
    wanted = tensor_data_of(item).properties.dtype
    part = planner.resolve_data(item)
    if not isinstance(part, torch.Tensor) or torch_row(part.dtype) != torch_row(wanted):
        raise DtypeError(
            f"the planner gives another dtype for tensor `{name}` than it planned",
            tensor=name,
            expected=str(wanted),
            found=str(getattr(part, "dtype", type(part).__name__)),
        )
    return part


def part_to_write(name: str, item: WriteItem, planner: SavePlanner, beat: Callable[[], Any]) -> TensorToWrite:
    """Describe a part as a tensor of its own, which asks the planner for the part each time its bytes are read."""
    dtype, region = torch_row(tensor_data_of(item).properties.dtype), region_of(item)
    if dtype is None:
        raise DtypeError(f"tensor `{name}` has a dtype that the format cannot hold", tensor=name)
    shape = stored_shape(dtype, region.shape)

    def buffers() -> Iterator[memoryview]:
        for _, content in blocks_of(name, part_of(name, item, planner), region):
            for begin in range(0, len(content), WRITE_NBYTES):
                beat()
                yield content[begin : begin + WRITE_NBYTES]

    return StreamedTensor(dtype, shape, dtype.nbytes(prod(shape)), buffers)


def blocks_of(name: str, part: torch.Tensor, region: Region) -> Iterator[tuple[Region, memoryview]]:
    """Yield a part as blocks: a region of the tensor and its bytes, in C order."""
    part = part.detach()
    tensor_to_write(part, name)  # refuses what has no bytes here
    if tuple(part.shape) != region.shape:
        raise UnsupportedError(
            f"a part of tensor `{name}` does not have the planned shape",
            tensor=name,
            expected=str(list(region.shape)),
            found=str(list(part.shape)),
        )
    if part.device.type == "cpu" and part.is_contiguous() and not (part.is_conj() or part.is_neg()):
        yield region, _bytes_of(part, name)
        return
    for index in pieces(region.shape, part.element_size(), PACK_NBYTES):
        yield narrowed(region, index), _bytes_of(part[index].cpu().resolve_conj().resolve_neg().contiguous(), name)


def _bytes_of(tensor: torch.Tensor, name: str) -> memoryview:
    buffers = [memoryview(buffer).cast("B") for buffer in tensor_to_write(tensor, name).buffers()]
    return buffers[0] if len(buffers) == 1 else memoryview(b"".join(buffers))


def write_block(
    file: ReservedFile,
    start: int,
    shape: tuple[int, ...],
    region: Region,
    data: memoryview,
    beat: Callable[[], Any],
) -> None:
    """Write a block of a tensor to its places, in rows of the file."""
    done = 0
    for rows in rows_of(region, shape, len(data) // region.n_elements):
        if rows.nbytes >= WRITE_NBYTES:
            for row in range(rows.n_rows):
                place = start + rows.first + row * rows.step
                for begin in range(0, rows.nbytes, WRITE_NBYTES):
                    piece = data[done + begin : done + min(begin + WRITE_NBYTES, rows.nbytes)]
                    file.write(place + begin, piece)
                    beat()
                done += rows.nbytes
            continue
        n_together = max(1, WRITE_NBYTES // rows.nbytes)
        for begin in range(0, rows.n_rows, n_together):
            stop = done + rows.nbytes * min(n_together, rows.n_rows - begin)
            file.write_rows(start + rows.first + begin * rows.step, rows.step, data[done:stop], rows.nbytes)
            beat()
            done = stop
