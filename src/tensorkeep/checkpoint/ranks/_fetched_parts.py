"""Parts of tensors on devices, which threads write and hash while the devices copy the next ones."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from tensorkeep.arrays import Fetched, OnDevice
from tensorkeep.checkpoint.ranks._assignments import PartToWrite
from tensorkeep.checkpoint.ranks._parts import Part, nbytes_of, write_rows
from tensorkeep.checkpoint.saving import Beat, ReservedFiles
from tensorkeep.tensors import FetchedDigests, Region, Rows, fetch_each, rows_of, rows_within

_BATCH_NBYTES: Final = 2**30
"""Bytes of parts that are written together. A planner may have copied them, and the copies stay until then."""


class FetchedParts:
    """Parts on devices that are written when there are enough of them, and in the end.

    Attributes:
        digests: Name to digest, of tensors that were written whole.
    """

    def __init__(self, files: ReservedFiles, beat: Beat) -> None:
        self._files = files
        self._beat = beat
        self._batch: list[_PartOnDevice] = []
        self._nbytes = 0
        self._beating = threading.Lock()
        self.digests: dict[str, bytes] = {}

    def add(self, part: Part, on_device: OnDevice, assigned: PartToWrite) -> None:
        """Take a part."""
        nbytes = nbytes_of(part)
        self._batch.append(_PartOnDevice(assigned, on_device, part.shape, part.region, nbytes))
        self._nbytes += nbytes
        if self._nbytes >= _BATCH_NBYTES:
            self.write()

    def write(self) -> None:
        """Write all parts that were taken."""
        batch, self._batch, self._nbytes = self._batch, [], 0
        digests = FetchedDigests([each.nbytes for each in batch])

        def take(parts: Sequence[Fetched], data: memoryview) -> None:
            for each in parts:
                part, content = batch[each.tensor], data[each.start : each.stop]
                with self._files.using(part.assigned.place.file) as file:
                    start = part.assigned.place.start
                    write_rows(file, start, part.rows(each.offset, len(content)), content, self._one_beat)
                if part.assigned.is_whole:
                    digests.add(each.tensor, content)

        fetch_each(((number, each.nbytes, each.on_device) for number, each in enumerate(batch)), take)
        self.digests |= {
            each.assigned.name: digest
            for each, digest in zip(batch, digests.made, strict=True)
            if each.assigned.is_whole
        }

    def _one_beat(self) -> None:
        with self._beating:
            self._beat()


class _PartOnDevice(msgspec.Struct, frozen=True, eq=False):
    """A part to write.

    Attributes:
        assigned: Where it goes.
        on_device: Where it is.
        shape: Elements of the whole tensor along each dimension, as the library counts them.
        region: Which part of the tensor it is.
        nbytes: Its bytes.
    """

    assigned: PartToWrite
    on_device: OnDevice
    shape: tuple[int, ...]
    region: Region
    nbytes: int

    def rows(self, offset: int, nbytes: int) -> Iterator[Rows]:
        """Give the places of some of its bytes in the tensor, which may be this part alone."""
        if self.assigned.is_whole:
            return iter([Rows(offset, nbytes, 1, nbytes)])
        rows = rows_of(self.region, self.shape, self.nbytes // self.region.n_elements)
        return rows_within(rows, offset, offset + nbytes)
