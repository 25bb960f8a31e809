"""A temporary file without a name, for bytes that are made once and sent perhaps several times."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import Final

from tensorkeep.buffers import Buffer
from tensorkeep.errors import as_transport_error
from tensorkeep.transport.atomic._sink import FileSink

_PIECE_NBYTES: Final = 4 * 2**20


class Spool:
    """A file in the system's temporary directory, which is gone with the last reference to this."""

    def __init__(self) -> None:
        directory = tempfile.gettempdir()
        with as_transport_error("could not make a temporary file", directory):
            self._file = tempfile.TemporaryFile(prefix="tensorkeep-")  # noqa: SIM115 - it lives as long as this
            self.sink = FileSink(os.dup(self._file.fileno()), os.path.join(directory, "a temporary file"))

    def __del__(self) -> None:
        if hasattr(self, "sink"):
            self.sink.close()

    @property
    def nbytes(self) -> int:
        """Bytes that were written."""
        return os.fstat(self._file.fileno()).st_size

    def pieces(self) -> Iterator[Buffer]:
        """Yield what was written; again at each call."""
        with as_transport_error("could not read a temporary file", tempfile.gettempdir()):
            self._file.seek(0)
            while piece := self._file.read(_PIECE_NBYTES):
                yield piece
