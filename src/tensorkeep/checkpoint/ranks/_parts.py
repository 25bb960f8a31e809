"""A part of a tensor that one rank has, and its places in a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod
from typing import Any, Protocol

import msgspec

from tensorkeep.arrays import OnDevice, StreamedTensor, TensorToWrite
from tensorkeep.checkpoint.ranks._rank_plan import stored_shape
from tensorkeep.dtypes import DType
from tensorkeep.limits import WRITE_NBYTES
from tensorkeep.tensors import Region, Rows, rows_of
from tensorkeep.transport import ReservedFile


class Part(Protocol):
    """A part of a tensor, as an array library gives it."""

    @property
    def dtype(self) -> DType:
        """Its row in the dtype table."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements of the whole tensor along each dimension, as the library counts them."""

    @property
    def region(self) -> Region:
        """Which part of the tensor it is."""

    def on_device(self) -> OnDevice | None:
        """Return where it is, if its device copies in the background."""

    def blocks(self) -> Iterator[tuple[Region, memoryview]]:
        """Yield the part in C order: regions of the tensor and their bytes."""


def nbytes_of(part: Part) -> int:
    """Return the bytes of a part."""
    return part.dtype.nbytes(prod(stored_shape(part.dtype, part.region.shape)))


def part_to_write(parts: Sequence[Part], item: int, beat: Callable[[], Any]) -> TensorToWrite:
    """Describe a part as a tensor of its own.

    It asks for the part each time its bytes are read; if the part is on a device, it keeps it.
    """
    part = parts[item]
    on_device = part.on_device()

    def buffers() -> Iterator[memoryview]:
        for _, content in parts[item].blocks():
            for begin in range(0, len(content), WRITE_NBYTES):
                beat()
                yield content[begin : begin + WRITE_NBYTES]

    return StreamedTensor(
        part.dtype,
        stored_shape(part.dtype, part.region.shape),
        nbytes_of(part),
        buffers,
        on_device=None if on_device is None else _beating(on_device, beat),
    )


def _beating(on_device: OnDevice, beat: Callable[[], Any]) -> OnDevice:
    """Show that this process is alive with every part that is copied."""

    def parts(nbytes: int) -> Iterator[tuple[int, Any]]:
        for each in on_device.parts(nbytes):
            beat()
            yield each

    return msgspec.structs.replace(on_device, parts=parts)


def write_block(
    file: ReservedFile,
    start: int,
    shape: tuple[int, ...],
    region: Region,
    data: memoryview,
    beat: Callable[[], Any],
) -> None:
    """Write a block of a tensor to its places, in rows of the file."""
    write_rows(file, start, rows_of(region, shape, len(data) // region.n_elements), data, beat)


def write_rows(
    file: ReservedFile, start: int, places: Iterable[Rows], data: memoryview, beat: Callable[[], Any]
) -> None:
    """Write bytes to their places in a tensor, which begins somewhere in the file."""
    done = 0
    for rows in places:
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
