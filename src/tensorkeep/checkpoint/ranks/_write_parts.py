"""What one rank does in files that all ranks see: it writes its parts, and digests the tensors assigned to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import ExitStack
from typing import Any, Final

from tensorkeep.arrays import TensorToWrite
from tensorkeep.checkpoint.ranks._assignments import FillAssignment, PartToWrite, TensorToDigest
from tensorkeep.checkpoint.ranks._parts import Part, nbytes_of, write_block
from tensorkeep.checkpoint.saving import Reservation
from tensorkeep.digests import new_hasher
from tensorkeep.errors import SourceMissingError
from tensorkeep.parallel import Workers
from tensorkeep.tensors import Digesting
from tensorkeep.transport import ByteRange, Reserved, ReservedFile, open_source

_Beat = Callable[[], Any]
"""Shows that this rank is alive, and raises if another one failed; called with every piece."""

_BEAT_EVERY_S: Final = 0.5

_NOT_SHARED: Final = (
    "All ranks must see the directory: save to a file system that they share, or to a store, such as s3://bucket/step"
)


class _Files:
    """The files of a save, each opened when it is first written to."""

    def __init__(self, reserved: tuple[Reserved, ...], stack: ExitStack) -> None:
        self._reserved = reserved
        self._stack = stack
        self._open: dict[int, ReservedFile] = {}

    def __getitem__(self, number: int) -> ReservedFile:
        if number not in self._open:
            try:
                self._open[number] = file = ReservedFile(self._reserved[number])
            except SourceMissingError as error:
                raise error.with_fields(hint=_NOT_SHARED) from None
            self._stack.callback(file.close)
        return self._open[number]

    def sync(self, beat: _Beat) -> None:
        """Wait until the disk has what was written, and keep the other ranks informed meanwhile."""
        with Workers(1, "tensorkeep-sync") as thread:
            for file in self._open.values():
                waiting = thread.submit(file.sync)
                while not wait([waiting], _BEAT_EVERY_S).done:
                    beat()
                waiting.result()


def write_parts(parts: Sequence[Part], assigned: FillAssignment, *, durable: bool, beat: _Beat) -> dict[str, bytes]:
    """Write the parts of this rank, and return the digests of tensors that it has whole."""
    with ExitStack() as stack, Digesting() as digesting:
        files = _Files(assigned.files, stack)
        in_order = sorted(assigned.parts, key=lambda part: (part.place.file, part.place.start))
        for part in in_order:
            _write(parts[part.item], part, files, digesting, beat)
        if durable:
            files.sync(beat)
        whole = (part.name for part in in_order if part.is_whole)
        return dict(zip(whole, digesting.digests(), strict=True))


def _write(part: Part, assigned: PartToWrite, files: _Files, digesting: Digesting, beat: _Beat) -> None:
    file, start = files[assigned.place.file], assigned.place.start
    if not assigned.is_whole:
        for block, content in part.blocks():
            write_block(file, start, part.shape, block, content, beat)
        return
    _write_through(file, start, nbytes_of(part), (content for _, content in part.blocks()), digesting, beat)


def _write_through(
    file: ReservedFile, start: int, nbytes: int, contents: Iterator[Any], digesting: Digesting, beat: _Beat
) -> None:
    for piece in digesting.passing(nbytes, contents):
        view = memoryview(piece).cast("B")
        file.write(start, view)
        start += len(view)
        beat()


def write_own(
    reserved: Reservation, to_write: Mapping[str, TensorToWrite], *, durable: bool, beat: _Beat
) -> dict[str, bytes]:
    """Write the tensors that the first rank got with values that are not tensors, and return their digests."""
    with ExitStack() as stack, Digesting() as digesting:
        files = _Files(reserved.files, stack)
        for name, tensor in to_write.items():
            place = reserved.places[name]
            _write_through(files[place.file], place.start, tensor.nbytes, tensor.buffers(), digesting, beat)
        if durable:
            files.sync(beat)
        return dict(zip(to_write, digesting.digests(), strict=True))


def digest_parts(assigned: FillAssignment, beat: _Beat) -> dict[str, bytes]:
    """Return the digests of tensors that several ranks wrote; called when all have written."""
    return {tensor.name: _digest(assigned, tensor, beat) for tensor in assigned.digests}


def _digest(assigned: FillAssignment, tensor: TensorToDigest, beat: _Beat) -> bytes:
    hasher = new_hasher()
    source = open_source(assigned.files[tensor.place.file].path)
    try:
        start = tensor.place.start
        for piece in source.pieces(ByteRange(start, start + tensor.nbytes)):
            hasher.update(piece)
            beat()
    finally:
        source.close()
    return hasher.digest()
