"""Opens a path, URL, bytes or file object as a byte source."""

from __future__ import annotations

import os
from typing import IO, TypeAlias, cast

from tensorkeep.buffers import Buffer
from tensorkeep.errors import SourceMissingError, UnsupportedError
from tensorkeep.transport.remote import RemotePath, is_url
from tensorkeep.transport.sources import BACKENDS, Backend, ByteSource, LocalFile, MemorySource, StreamSource

Openable: TypeAlias = "str | os.PathLike[str] | Buffer | IO[bytes]"
"""What can be opened: a path or URL, the bytes themselves, or a seekable binary file object."""


def open_source(target: Openable, *, backend: Backend = "auto") -> ByteSource:
    """Open for reading."""
    if backend not in BACKENDS:
        raise UnsupportedError(f'backend "{backend}" is invalid (expected one of: "mmap", "pread")')
    if isinstance(target, (str, os.PathLike)):
        path = os.fspath(target)
        return RemotePath.of(path).open() if is_url(path) else LocalFile(path, backend=backend)
    if hasattr(target, "read") and hasattr(target, "seek") and not hasattr(target, "find"):
        return StreamSource(cast("IO[bytes]", target))
    try:
        return MemorySource(memoryview(cast("Buffer", target)))
    except TypeError:
        pass
    raise UnsupportedError(
        "this object cannot be opened",
        expected="a path, bytes or a seekable binary file object",
        found=type(target).__name__,
    )


def open_listed(path: str, *, backend: Backend = "auto") -> ByteSource:
    """Open one of many files that another file names; if it is missing, no file with a similar name is looked for."""
    if not is_url(path) and not os.path.exists(path):
        raise SourceMissingError.at(path)
    return open_source(path, backend=backend)
