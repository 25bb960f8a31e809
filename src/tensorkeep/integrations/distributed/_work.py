"""What one rank does of a save: it writes its parts, and makes digests of what it wrote alone or is given to read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from typing import Any, Final

from torch.distributed.checkpoint.planner import SavePlan, SavePlanner

from tensorkeep.arrays import TensorToWrite
from tensorkeep.checkpoint import MultiWriterSave
from tensorkeep.digests import new_hasher
from tensorkeep.errors import SourceMissingError
from tensorkeep.integrations.distributed._layout import region_of
from tensorkeep.integrations.distributed._parts import blocks_of, part_of, write_block
from tensorkeep.integrations.distributed._survey import tensor_data_of
from tensorkeep.integrations.distributed._tasks import Digesting, Task, Writing
from tensorkeep.tensors import Digesting as PassingDigests
from tensorkeep.transport import ByteRange, Reserved, ReservedFile, open_source

_Look = Callable[[], Any]

_LOOK_EVERY_S: Final = 0.5

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

    def sync(self, look: _Look) -> None:
        """Wait until the disk has what was written."""
        with ThreadPoolExecutor(1, thread_name_prefix="tensorkeep-sync") as thread:
            for file in self._open.values():
                waiting = thread.submit(file.sync)
                while not wait([waiting], _LOOK_EVERY_S).done:
                    look()
                waiting.result()


def write_parts(plan: SavePlan, planner: SavePlanner, task: Task, *, durable: bool, look: _Look) -> dict[str, bytes]:
    """Write the parts of tensors that this rank has."""
    with ExitStack() as stack, PassingDigests() as passing:
        files = _Files(task.files, stack)
        writings = sorted(task.writings, key=lambda writing: (writing.place.file, writing.place.start))
        for writing in writings:
            _write(plan, planner, writing, files, passing, look)
        if durable:
            files.sync(look)
        whole = (writing.name for writing in writings if writing.is_whole)
        return dict(zip(whole, passing.digests(), strict=True))


def _write(
    plan: SavePlan, planner: SavePlanner, writing: Writing, files: _Files, passing: PassingDigests, look: _Look
) -> None:
    item = plan.items[writing.item]
    part = part_of(writing.name, item, planner)
    region, shape = region_of(item), tuple(tensor_data_of(item).size)
    file, start = files[writing.place.file], writing.place.start
    if not writing.is_whole:
        for block, content in blocks_of(writing.name, part, region):
            write_block(file, start, shape, block, content, look)
        return
    contents = (content for _, content in blocks_of(writing.name, part, region))
    _write_through(file, start, region.n_elements * part.element_size(), contents, passing, look)


def _write_through(
    file: ReservedFile,
    start: int,
    nbytes: int,
    contents: Iterator[Any],
    passing: PassingDigests,
    look: _Look,
) -> None:
    for piece in passing.passing(nbytes, contents):
        view = memoryview(piece).cast("B")
        file.write(start, view)
        start += len(view)
        look()


def write_own(save: MultiWriterSave, to_write: Mapping[str, TensorToWrite], *, durable: bool) -> dict[str, bytes]:
    """Write the tensors that the first rank was told of with values that are no tensors."""
    with ExitStack() as stack, PassingDigests() as passing:
        files = _Files(save.files, stack)
        for name, host in to_write.items():
            place = save.places[name]
            _write_through(files[place.file], place.start, host.nbytes, host.buffers(), passing, save.refresh)
        if durable:
            files.sync(save.refresh)
        return dict(zip(to_write, passing.digests(), strict=True))


def digest_parts(task: Task, look: _Look) -> dict[str, bytes]:
    """Make the digests of tensors that several ranks wrote, when all have written."""
    return {digesting.name: _digest(task, digesting, look) for digesting in task.digestings}


def _digest(task: Task, digesting: Digesting, look: _Look) -> bytes:
    hasher = new_hasher()
    source = open_source(task.files[digesting.place.file].path)
    try:
        start = digesting.place.start
        for piece in source.pieces(ByteRange(start, start + digesting.nbytes)):
            hasher.update(piece)
            look()
    finally:
        source.close()
    return hasher.digest()
