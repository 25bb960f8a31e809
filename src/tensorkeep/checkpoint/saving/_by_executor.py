"""A save whose files the workers of an executor fill: this process reserves them, adds the headers and commits.

Workers copy tensors that are in files. Others, such as cast ones, are written by this process meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from tensorkeep.arrays import TensorToWrite
from tensorkeep.checkpoint.saving._destination import Destination
from tensorkeep.checkpoint.saving._directory_destination import DirectoryDestination, Place
from tensorkeep.checkpoint.saving._options import SaveOptions
from tensorkeep.checkpoint.saving._plan import SavePlan
from tensorkeep.checkpoint.saving._reserved_files import ReservedFiles
from tensorkeep.errors import UnsupportedError
from tensorkeep.executors import batches_for_tasks, run_in, task_nbytes
from tensorkeep.parallel import ProgressMeter, Workers
from tensorkeep.tensors import Digesting, StoredTensor, refuse_other_bytes, stored_pieces
from tensorkeep.transport import ByteRange, HandedOver, Reserved

if TYPE_CHECKING:
    from concurrent.futures import Executor

_MOST_NBYTES: Final = 2**28
"""Most bytes of a task, if no single tensor has more."""


class TensorToCopy(msgspec.Struct, frozen=True):
    """A tensor that is in a file.

    Attributes:
        name: Its new name.
        source: The file.
        span: Its first byte there, and the byte after its last.
        place: Where it goes.
        digest: The digest that the file has for it, or None.
    """

    name: str
    source: HandedOver
    span: tuple[int, int]
    place: Place
    digest: bytes | None

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return self.span[1] - self.span[0]


class CopyTask(msgspec.Struct, frozen=True):
    """Tensors to copy.

    Attributes:
        files: The reserved files.
        tensors: What goes into them.
        durable: Whether the disk must have it.
    """

    files: tuple[Reserved, ...]
    tensors: tuple[TensorToCopy, ...]
    durable: bool


def fill_by(executor: Executor, destination: Destination, plan: SavePlan, options: SaveOptions) -> None:
    """Reserve the files of a save, and let workers fill them."""
    if not isinstance(destination, DirectoryDestination):
        raise UnsupportedError("workers write to a directory that all of them see", expected="a directory on disk")
    if options.encryption is not None or options.block_digests or options.reuse is not None:
        raise UnsupportedError("workers copy tensors as they are", expected="no encryption, no digests of blocks")
    reservation = destination.reserve()
    copied: list[TensorToCopy] = []
    own: dict[str, TensorToWrite] = {}
    handed: dict[int, HandedOver | None] = {}
    for name, tensor in ((name, each) for file in plan.files.values() for name, each in file.items()):
        source = _handed_over(tensor, handed)
        if source is None or not isinstance(tensor, StoredTensor):
            own[name] = tensor
        else:
            span = (tensor.span.start, tensor.span.stop)
            copied.append(TensorToCopy(name, source, span, reservation.places[name], tensor.digest))
    copied.sort(key=lambda tensor: (tensor.place.file, tensor.place.start))
    nbytes = task_nbytes(sum(tensor.nbytes for tensor in copied), _MOST_NBYTES)
    batches = batches_for_tasks(copied, lambda tensor: tensor.nbytes, nbytes)
    tasks = [_task(batch, reservation.files, options.durable) for batch in batches]
    meter = ProgressMeter(options.progress, plan.nbytes)
    digests: dict[str, bytes] = {}

    def take(task: CopyTask, found: list[bytes]) -> None:
        destination.refresh()
        digests.update(zip((tensor.name for tensor in task.tensors), found, strict=True))
        meter.add(sum(tensor.nbytes for tensor in task.tensors))

    with Workers(1, "tensorkeep-own") as thread:
        here = thread.submit(_write_own, own, reservation.files, reservation.places, meter, options.durable)
        try:
            run_in(executor, copy_tensors, tasks, take)
        except BaseException:
            meter.stop()
            raise
        digests |= here.result()
    destination.collect(digests)


def _handed_over(tensor: TensorToWrite, handed: dict[int, HandedOver | None]) -> HandedOver | None:
    if not isinstance(tensor, StoredTensor):
        return None
    key = id(tensor.source)
    if key not in handed:
        handed[key] = HandedOver.of(tensor.source)
    return handed[key]


def _task(batch: Sequence[TensorToCopy], files: tuple[Reserved, ...], durable: bool) -> CopyTask:
    """Return a task with the files that it needs, and no others."""
    numbers = sorted({tensor.place.file for tensor in batch})
    tensors = tuple(
        msgspec.structs.replace(tensor, place=Place(numbers.index(tensor.place.file), tensor.place.start))
        for tensor in batch
    )
    return CopyTask(tuple(files[number] for number in numbers), tensors, durable)


def copy_tensors(task: CopyTask) -> list[bytes]:
    """Copy tensors from file to file, and return their digests; that is all a worker does for a save."""
    with ReservedFiles(task.files, os.getpid) as files, Digesting() as digesting:
        for tensor in task.tensors:
            with tensor.source.opened() as source:
                span = ByteRange(*tensor.span)
                if tensor.digest is None:
                    files.fill(tensor.place, tensor.nbytes, stored_pieces(source, span), digesting)
                else:
                    files.copy(tensor.place, source, span)
                    digesting.carry(tensor.digest)
        if task.durable:
            files.sync()
        return digesting.digests()


def _write_own(
    tensors: dict[str, TensorToWrite],
    reserved: tuple[Reserved, ...],
    places: dict[str, Place],
    meter: ProgressMeter,
    durable: bool,
) -> dict[str, bytes]:
    with ReservedFiles(reserved, lambda: None) as files, Digesting() as digesting:
        for name, tensor in tensors.items():
            files.fill(places[name], tensor.nbytes, tensor.buffers(), digesting)
            meter.add(tensor.nbytes)
        if durable:
            files.sync()
        digests = digesting.digests()
        refuse_other_bytes(tensors.items(), digests)
        return dict(zip(tensors, digests, strict=True))
