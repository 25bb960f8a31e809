"""A rank's part of a tensor, written to its places in a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from tensorkeep.arrays import host_tensor, pieces
from tensorkeep.errors import UnsupportedError
from tensorkeep.limits import PACK_NBYTES, WRITE_NBYTES
from tensorkeep.tensors import Region, narrowed, rows_of
from tensorkeep.transport import ReservedFile

__all__ = ["blocks_of", "write_block"]


def blocks_of(name: str, part: torch.Tensor, region: Region) -> Iterator[tuple[Region, memoryview]]:
    """Give the bytes of a part, as blocks of the tensor.

    Args:
        name: The tensor's name, for messages.
        part: The part, on any device and in any memory layout.
        region: Which part of the tensor it is.

    Yields:
        The region of each block, and its bytes in C order: the part's own memory, or copies of bounded size, of
        which the next takes the place of the last. Together they are the part in C order.

    Raises:
        UnsupportedError: If the part is of another shape, or has no bytes of its own.
        DtypeError: If the format has no such dtype.
    """
    part = part.detach()
    host_tensor(part, name)  # refuses what has no bytes here
    if tuple(part.shape) != region.shape:
        raise UnsupportedError(
            f"a part of tensor `{name}` has another shape than was planned",
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
    buffers = [memoryview(buffer).cast("B") for buffer in host_tensor(tensor, name).buffers()]
    return buffers[0] if len(buffers) == 1 else memoryview(b"".join(buffers))


def write_block(
    file: ReservedFile,
    start: int,
    shape: tuple[int, ...],
    region: Region,
    data: memoryview,
    look: Callable[[], Any],
) -> None:
    """Write a block of a tensor to its places.

    Args:
        file: The file.
        start: First byte of the tensor in it.
        shape: The whole tensor's, elements along each dimension.
        region: Which part of it the block is; not empty.
        data: The bytes of the block, in C order.
        look: Called between pieces; what it raises ends the work.

    Raises:
        TransportError: If not everything could be written.
    """
    done = 0
    for rows in rows_of(region, shape, len(data) // region.n_elements):
        n_together = max(1, WRITE_NBYTES // rows.nbytes)
        for begin in range(0, rows.n_rows, n_together):
            stop = done + rows.nbytes * min(n_together, rows.n_rows - begin)
            file.write_rows(start + rows.first + begin * rows.step, rows.step, data[done:stop], rows.nbytes)
            look()
            done = stop
