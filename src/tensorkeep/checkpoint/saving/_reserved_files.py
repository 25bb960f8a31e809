"""The reserved files of a save, as one process fills them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from threading import Lock
from typing import Any, Final, Protocol, Self, TypeAlias

from tensorkeep.buffers import Buffer
from tensorkeep.checkpoint.saving._directory_destination import Place
from tensorkeep.errors import IntegrityError, SourceMissingError, UnsupportedError
from tensorkeep.parallel import Workers
from tensorkeep.tensors import Digesting, stored_pieces
from tensorkeep.transport import ByteRange, ByteSource, LocalFile, Reserved, ReservedFile

Beat: TypeAlias = Callable[[], Any]
"""Shows that this process is alive, and raises if the save is over; called with every piece."""

_BEAT_EVERY_S: Final = 0.5

_MAX_OPEN: Final = 64
"""Files to keep open: a process may often have 1,024 descriptors, and a checkpoint more shards."""

_NOT_SHARED: Final = (
    "All ranks must see the directory: save to a file system that they share, or to a store, such as s3://bucket/step"
)


class _OpenFile:
    """A file and how many threads use it."""

    def __init__(self, file: ReservedFile) -> None:
        self.file = file
        self.n_users = 0


class ReservedFiles:
    """Files that are opened when they are written to; a context manager, which closes all. Usable from threads."""

    def __init__(self, reserved: tuple[Reserved, ...], beat: Beat, *, durable: bool = False) -> None:
        self._reserved = reserved
        self._beat = beat
        self._durable = durable
        self._open: OrderedDict[int, _OpenFile] = OrderedDict()
        self._written: set[int] = set()
        self._lock = Lock()
        self._max_open = _MAX_OPEN

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._max_open = -1
            self._close_unused()  # a thread that still writes closes its file itself

    @contextmanager
    def using(self, number: int) -> Iterator[ReservedFile]:
        """Give a file, open until the block ends."""
        with self._lock:
            if self._max_open < 0:
                raise UnsupportedError("the save is over", hint="End all threads that write before its block")
            entry = self._open.get(number) or self._opened(number)
            self._open.move_to_end(number)
            entry.n_users += 1
            self._close_unused()
        try:
            yield entry.file
        finally:
            with self._lock:
                entry.n_users -= 1
                self._close_unused()

    def _opened(self, number: int) -> _OpenFile:
        try:
            entry = self._open[number] = _OpenFile(ReservedFile(self._reserved[number], is_synced=self._durable))
        except SourceMissingError as error:
            raise error.with_fields(hint=_NOT_SHARED) from None
        self._written.add(number)
        return entry

    def _close_unused(self) -> None:
        """Close files until there are few enough, the least recently used first."""
        unused = [number for number, entry in self._open.items() if not entry.n_users]
        for number in unused[: max(0, len(self._open) - max(self._max_open, 0))]:
            self._open.pop(number).file.close()

    def fill(self, place: Place, nbytes: int, contents: Iterable[Buffer], digesting: Digesting) -> None:
        """Write all bytes of one tensor to its place, and digest them."""
        with self.using(place.file) as file:
            write_all(file, place.start, nbytes, contents, digesting, self._beat)

    def copy(self, place: Place, source: ByteSource, span: ByteRange) -> None:
        """Copy the bytes of one tensor, whose digest is known, to its place; by one thread at a time."""
        start = place.start
        with self.using(place.file) as file:
            if isinstance(source, LocalFile):
                file.copy_from(start, source, span)
                return
            for piece in stored_pieces(source, span):
                view = memoryview(piece).cast("B")
                file.write(start, view)
                start += len(view)
                self._beat()

    def sync(self) -> None:
        """Wait until the disk has what was written, if it must; show meanwhile that this process is alive."""
        if not self._durable:
            return
        with Workers(1, "tensorkeep-sync") as thread:
            for number in sorted(self._written):
                with self.using(number) as file:
                    waiting = thread.submit(file.sync)
                    while not wait([waiting], _BEAT_EVERY_S).done:
                        self._beat()
                    waiting.result()


class _Writable(Protocol):
    def write(self, offset: int, data: memoryview) -> None: ...


def write_all(
    file: _Writable, start: int, nbytes: int, contents: Iterable[Buffer], digesting: Digesting, beat: Beat
) -> None:
    """Write all bytes of one tensor, and digest them."""
    done = 0
    for piece in digesting.passing(nbytes, contents):
        view = memoryview(piece).cast("B")
        if done + len(view) <= nbytes:
            file.write(start + done, view)
        done += len(view)
        beat()
    if done != nbytes:
        raise IntegrityError(
            "a tensor has another number of bytes than its shape says",
            expected=f"{nbytes:,} bytes",
            found=f"{done:,}",
            hint="Do not resize tensors while they are saved",
        )
