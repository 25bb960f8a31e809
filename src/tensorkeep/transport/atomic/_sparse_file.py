"""A file that several threads fill in any order."""

from __future__ import annotations

import os
import stat
from typing import Final

from tensorkeep.errors import TransportError, as_transport_error
from tensorkeep.transport.sources import Descriptor
from tensorkeep.transport.system import preallocate, preallocation_pays, write_at

_FLAGS: Final = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)


class PartialFile:
    """A file that has its final size from the start; an existing file of another size is emptied first."""

    def __init__(self, path: str, nbytes: int) -> None:
        self._path = path
        with as_transport_error("could not write the file", path):
            self._descriptor: Descriptor | None = Descriptor(os.open(path, _FLAGS, 0o666))
            self._make_room(self._descriptor.number, nbytes)

    def _make_room(self, fd: int, nbytes: int) -> None:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise TransportError("not a regular file", path=self._path)
        if status.st_size == nbytes:
            return
        os.ftruncate(fd, 0)
        if preallocation_pays(os.path.dirname(self._path)):
            preallocate(fd, nbytes)
        os.ftruncate(fd, nbytes)

    def _opened(self) -> Descriptor:
        if self._descriptor is None:
            raise TransportError("the file is closed", path=self._path)
        return self._descriptor

    def write(self, offset: int, data: memoryview) -> None:
        """Write bytes at an offset; several threads may do so at the same time."""
        with as_transport_error("could not write the file", self._path):
            descriptor = self._opened()
            write_at(descriptor.number, offset, data)

    def sync(self) -> None:
        """Wait until everything written is on the disk."""
        with as_transport_error("could not write the file", self._path):
            descriptor = self._opened()
            os.fsync(descriptor.number)

    def close(self) -> None:
        """Close the file once no thread is writing: the descriptor's number may then belong to another file."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with as_transport_error("could not write the file", self._path):
                os.close(os.dup(descriptor.number))
