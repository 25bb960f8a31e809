"""A save whose files the workers of an executor fill: this process reserves them, adds the headers and commits.

Workers copy tensors that are in files. They make those again whose origin is known: cast, assembled, decompressed.
Others are written by this process meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from tensorkeep.arrays import TensorToWrite
from tensorkeep.checkpoint.saving._destination import Destination
from tensorkeep.checkpoint.saving._directory_destination import DirectoryDestination, Place
from tensorkeep.checkpoint.saving._options import SaveOptions
from tensorkeep.checkpoint.saving._plan import SavePlan
from tensorkeep.checkpoint.saving._reserved_files import ReservedFiles
from tensorkeep.errors import UnsupportedError
from tensorkeep.executors import batches_for_tasks, run_in, task_nbytes
from tensorkeep.kinds.origins import Origin
from tensorkeep.parallel import ProgressMeter, Workers
from tensorkeep.tensors import Digesting, StoredTensor, refuse_other_bytes, stored_pieces
from tensorkeep.transport import ByteRange, HandedOver, Reserved

if TYPE_CHECKING:
    from concurrent.futures import Executor

_MOST_NBYTES: Final = 2**28
"""Most bytes of a task, if no single tensor has more."""

_MOST_MADE_NBYTES: Final = 2**30
"""The same where each task opens the checkpoint again."""


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


class TensorToMake(msgspec.Struct, frozen=True):
    """A tensor that is made again.

    Attributes:
        name: Its new name.
        origin: What it is made from.
        place: Where it goes.
        nbytes: Its bytes.
    """

    name: str
    origin: Origin
    place: Place
    nbytes: int


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


class MakeTask(msgspec.Struct, frozen=True):
    """Tensors of one checkpoint to make.

    Attributes:
        files: The reserved files.
        tensors: What goes into them.
        durable: Whether the disk must have it.
    """

    files: tuple[Reserved, ...]
    tensors: tuple[TensorToMake, ...]
    durable: bool


def fill_by(executor: Executor, destination: Destination, plan: SavePlan, options: SaveOptions) -> None:
    """Reserve the files of a save, and let workers fill them."""
    if not isinstance(destination, DirectoryDestination):
        raise UnsupportedError("workers write to a directory that all of them see", expected="a directory on disk")
    if options.encryption is not None or options.block_digests or options.reuse is not None:
        raise UnsupportedError("workers copy tensors as they are", expected="no encryption, no block digests")
    reservation = destination.reserve()
    copied: list[TensorToCopy] = []
    made: dict[int, list[TensorToMake]] = {}
    own: dict[str, TensorToWrite] = {}
    promised: dict[str, TensorToWrite] = {}
    handed: dict[int, HandedOver | None] = {}
    for name, tensor in ((name, each) for file in plan.files.values() for name, each in file.items()):
        source = _handed_over(tensor, handed)
        place = reservation.places[name]
        origin = _origin_of(name, tensor, plan, options)
        if source is not None and isinstance(tensor, StoredTensor):
            span = (tensor.span.start, tensor.span.stop)
            copied.append(TensorToCopy(name, source, span, place, tensor.digest))
        elif origin is not None:
            made.setdefault(id(origin.source), []).append(TensorToMake(name, origin, place, tensor.nbytes))
            promised[name] = tensor
        else:
            own[name] = tensor
    tasks: list[CopyTask | MakeTask] = [
        *_tasks(CopyTask, copied, reservation.files, _MOST_NBYTES, durable=options.durable),
        *(
            task
            for tensors in made.values()
            for task in _tasks(MakeTask, tensors, reservation.files, _MOST_MADE_NBYTES, durable=options.durable)
        ),
    ]
    meter = ProgressMeter(options.progress, plan.nbytes)
    digests: dict[str, bytes] = {}

    def take(task: CopyTask | MakeTask, found: list[bytes]) -> None:
        destination.refresh()
        digests.update(zip((tensor.name for tensor in task.tensors), found, strict=True))
        meter.add(sum(tensor.nbytes for tensor in task.tensors))

    with Workers(1, "tensorkeep-own") as thread:
        here = thread.submit(_write_own, own, reservation.files, reservation.places, meter, options.durable)
        try:
            run_in(executor, fill_files, tasks, take)
        except BaseException:
            meter.stop()
            raise
        digests |= here.result()
    refuse_other_bytes(promised.items(), [digests[name] for name in promised])
    destination.collect(digests)


def _handed_over(tensor: TensorToWrite, handed: dict[int, HandedOver | None]) -> HandedOver | None:
    if not isinstance(tensor, StoredTensor):
        return None
    key = id(tensor.source)
    if key not in handed:
        handed[key] = HandedOver.of(tensor.source)
    return handed[key]


def _origin_of(name: str, tensor: TensorToWrite, plan: SavePlan, options: SaveOptions) -> Origin | None:
    """Return the origin of a tensor that is written whole and unchanged, if it is known."""
    origin = options.origins.get(name)
    if origin is None or plan.prepared.to_write.get(name) is not tensor:
        return None
    return origin if (tensor.dtype.name, tensor.shape) == (origin.cast_to, origin.shape) else None


_Tensor = TypeVar("_Tensor", TensorToCopy, TensorToMake)
_FillTask = TypeVar("_FillTask", CopyTask, MakeTask)


def _tasks(
    kind: Callable[[tuple[Reserved, ...], tuple[_Tensor, ...], bool], _FillTask],
    tensors: list[_Tensor],
    files: tuple[Reserved, ...],
    most_nbytes: int,
    *,
    durable: bool,
) -> Iterator[_FillTask]:
    """Give tasks, each with the files that it needs, and no others."""
    tensors.sort(key=lambda tensor: (tensor.place.file, tensor.place.start))
    nbytes = task_nbytes(sum(tensor.nbytes for tensor in tensors), most_nbytes)
    for batch in batches_for_tasks(tensors, lambda tensor: tensor.nbytes, nbytes):
        numbers = sorted({tensor.place.file for tensor in batch})
        place_of = {number: place for place, number in enumerate(numbers)}
        renumbered = tuple(
            msgspec.structs.replace(tensor, place=Place(place_of[tensor.place.file], tensor.place.start))
            for tensor in batch
        )
        yield kind(tuple(files[number] for number in numbers), renumbered, durable)


def fill_files(task: CopyTask | MakeTask) -> list[bytes]:
    """Copy or make tensors, and return their digests; that is all a worker does for a save."""
    return copy_tensors(task) if isinstance(task, CopyTask) else make_tensors(task)


def copy_tensors(task: CopyTask) -> list[bytes]:
    """Copy tensors from file to file, and return their digests."""
    with ReservedFiles(task.files, os.getpid, durable=task.durable) as files, Digesting() as digesting:
        for tensor in task.tensors:
            with tensor.source.opened() as source:
                span = ByteRange(*tensor.span)
                if tensor.digest is None:
                    files.fill(tensor.place, tensor.nbytes, stored_pieces(source, span), digesting)
                else:
                    files.copy(tensor.place, source, span)
                    digesting.carry(tensor.digest)
        files.sync()
        return digesting.digests()


def make_tensors(task: MakeTask) -> list[bytes]:
    """Make tensors of one checkpoint, write them, and return their digests."""
    source = task.tensors[0].origin.source
    reserved = ReservedFiles(task.files, os.getpid, durable=task.durable)
    with source.opened() as opened, reserved as files, Digesting() as digesting:
        for tensor in task.tensors:
            made = tensor.origin.made(opened, tensor.name)
            files.fill(tensor.place, tensor.nbytes, made.tensor_to_write().buffers(), digesting)
        files.sync()
        return digesting.digests()


def _write_own(
    tensors: dict[str, TensorToWrite],
    reserved: tuple[Reserved, ...],
    places: dict[str, Place],
    meter: ProgressMeter,
    durable: bool,
) -> dict[str, bytes]:
    with ReservedFiles(reserved, lambda: None, durable=durable) as files, Digesting() as digesting:
        for name, tensor in tensors.items():
            files.fill(places[name], tensor.nbytes, tensor.buffers(), digesting)
            meter.add(tensor.nbytes)
        files.sync()
        digests = digesting.digests()
        refuse_other_bytes(tensors.items(), digests)
        return dict(zip(tensors, digests, strict=True))
