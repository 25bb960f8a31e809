"""The values of arrays in files of their own, in local directories."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from typing import Any

from tensorkeep.errors import TransportError, as_transport_error
from tensorkeep.kinds.orbax._links import size_without_links
from tensorkeep.kinds.orbax._values import ValueFiles
from tensorkeep.limits import MAX_DATABASE_KEYS
from tensorkeep.transport import Backend, ByteRange, walk

_NO_SUCH_FILE = {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG}


class FolderStore:
    """See `tensorkeep.formats.zarr.ZarrStore`. Files are looked for when their keys are asked for.

    Attributes:
        source: The bytes of all values.
    """

    def __init__(self, directory: str, backend: Backend) -> None:
        self._arguments = (directory, backend)
        self.source = ValueFiles(directory, backend)

    def __reduce__(self) -> tuple[Any, ...]:
        return FolderStore, self._arguments

    @property
    def file_names(self) -> list[str]:
        """All files, as paths below the directory."""
        return list(self._below(self.source.name))

    @property
    def n_keys(self) -> int:
        """How many keys there are at most."""
        return MAX_DATABASE_KEYS

    def find(self, key: str) -> ByteRange | None:
        """Return where a value is in the source; None if there is no such key."""
        path = os.path.join(self.source.name, key)
        try:
            with as_transport_error("could not find the file", path):
                nbytes = os.stat(path).st_size
        except TransportError as error:
            if error.errno in _NO_SUCH_FILE:
                return None
            raise
        return self.source.span_in(key, ByteRange(0, nbytes))

    def keys_below(self, name: str) -> Iterator[str]:
        """Yield all keys that begin with a name and a slash."""
        return self._below(os.path.join(self.source.name, name))

    def _below(self, directory: str) -> Iterator[str]:
        for folder, _, files in walk(directory):
            for file in files:
                yield os.path.relpath(os.path.join(folder, file), self.source.name).replace(os.sep, "/")

    def names_with(self, suffix: str) -> list[str]:
        """Return what is before a suffix in all keys that have it."""
        return [
            os.path.relpath(folder, self.source.name).replace(os.sep, "/")
            for folder, _, files in walk(self.source.name)
            if suffix.removeprefix("/") in files
        ]

    def look_up(self, keys: Iterable[str]) -> None:
        """Do nothing: each is found at once."""

    def stored_nbytes(self, keys: Iterable[str]) -> int:  # noqa: ARG002
        """Return the bytes of all files."""
        return size_without_links(self.source.name)

    def is_checked(self, span: ByteRange) -> bool:  # noqa: ARG002
        """Return False: nothing has a checksum."""
        return False
