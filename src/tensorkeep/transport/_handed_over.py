"""A file as another process opens it, perhaps on another machine: it must be the same one there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from tensorkeep.errors import SourceChangedError, SourceMissingError
from tensorkeep.transport._paths import is_remote
from tensorkeep.transport.remote import RemoteSource
from tensorkeep.transport.sources import ByteSource, LocalFile


class HandedOver(msgspec.Struct, frozen=True):
    """An open file as a plain value.

    Attributes:
        path: The absolute path of a local file, else a name for messages.
        nbytes: Its size.
        mtime_ns: When it was last written.
        remote: An object on a server, in exactly one version; None for a local file.
    """

    path: str
    nbytes: int
    mtime_ns: int
    remote: RemoteSource | None = None

    @classmethod
    def of(cls, source: ByteSource | str) -> HandedOver | None:
        """Return the value for a file or an object on a server.

        None for anything else, such as memory, and for files that only this process has proven.
        """
        if isinstance(source, RemoteSource):
            return cls(source.name, source.nbytes, 0, source)
        if isinstance(source, LocalFile):
            return None if source.is_proven_here else cls(source.path, source.nbytes, source.mtime_ns)
        if not isinstance(source, str) or is_remote(source):
            return None
        try:
            status = os.stat(source)
        except OSError:  # opening it will say what is wrong
            return None
        return cls(os.path.abspath(source), status.st_size, status.st_mtime_ns)

    @contextmanager
    def opened(self) -> Iterator[ByteSource]:
        """Open it for a block; refuse a file that is not there, or is another one."""
        if self.remote is not None:
            yield self.remote
            return
        file = self._file()
        try:
            yield file
        finally:
            file.close()

    def _file(self) -> LocalFile:
        try:
            file = LocalFile(self.path, backend="pread")
        except SourceMissingError as error:
            raise error.with_fields(hint=_NOT_SHARED) from None
        if (file.nbytes, file.mtime_ns) != (self.nbytes, self.mtime_ns):
            raise SourceChangedError(
                "a worker does not find the file that it was told to read", path=self.path, hint=_NOT_SHARED
            )
        return file


_NOT_SHARED = "All workers must see the same files: read from a file system that they share, or from a server"
