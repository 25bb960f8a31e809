"""The reserved files of a save, as one process fills them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import wait
from threading import Lock
from typing import Any, Final, Self, TypeAlias

from tensorkeep.buffers import Buffer
from tensorkeep.checkpoint.saving._directory_destination import Place
from tensorkeep.errors import IntegrityError, SourceMissingError
from tensorkeep.parallel import Workers
from tensorkeep.tensors import Digesting
from tensorkeep.transport import Reserved, ReservedFile

Beat: TypeAlias = Callable[[], Any]
"""Shows that this process is alive, and raises if the save is over; called with every piece."""

_BEAT_EVERY_S: Final = 0.5

_NOT_SHARED: Final = (
    "All ranks must see the directory: save to a file system that they share, or to a store, such as s3://bucket/step"
)


class ReservedFiles:
    """Each file is opened when it is first written to; a context manager, which closes all. Usable from threads."""

    def __init__(self, reserved: tuple[Reserved, ...], beat: Beat) -> None:
        self._reserved = reserved
        self._beat = beat
        self._open: dict[int, ReservedFile] = {}
        self._lock = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._open.values():
            file.close()

    def __getitem__(self, number: int) -> ReservedFile:
        with self._lock:
            if number not in self._open:
                try:
                    self._open[number] = ReservedFile(self._reserved[number])
                except SourceMissingError as error:
                    raise error.with_fields(hint=_NOT_SHARED) from None
            return self._open[number]

    def fill(self, place: Place, nbytes: int, contents: Iterable[Buffer], digesting: Digesting) -> None:
        """Write all bytes of one tensor to its place, and digest them."""
        file, start, stop = self[place.file], place.start, place.start + nbytes
        for piece in digesting.passing(nbytes, contents):
            view = memoryview(piece).cast("B")
            if len(view) <= stop - start:
                file.write(start, view)
            start += len(view)
            self._beat()
        if start != stop:
            raise IntegrityError(
                "a tensor has another number of bytes than its shape says",
                expected=f"{nbytes:,} bytes",
                found=f"{start - place.start:,}",
                hint="Do not resize tensors while they are saved",
            )

    def sync(self) -> None:
        """Wait until the disk has what was written, and show meanwhile that this process is alive."""
        with Workers(1, "tensorkeep-sync") as thread:
            for file in self._open.values():
                waiting = thread.submit(file.sync)
                while not wait([waiting], _BEAT_EVERY_S).done:
                    self._beat()
                waiting.result()
