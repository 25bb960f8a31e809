"""The files of one item as a source that has a name and a size; what reads the arrays opens them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NoReturn

from tensorkeep.buffers import Buffer
from tensorkeep.errors import UnsupportedError
from tensorkeep.transport import ByteRange


class FolderSource:
    """A directory of files.

    Attributes:
        name: The directory.
        nbytes: Bytes of all files in it.
    """

    gap_nbytes = 0

    def __init__(self, name: str, nbytes: int) -> None:
        self.name = name
        self.nbytes = nbytes

    def map(self, span: ByteRange) -> None:
        """Return None: it is not one file."""

    def read(self, span: ByteRange) -> Buffer:  # noqa: ARG002
        """Refuse."""
        self._refuse()

    def pieces(self, span: ByteRange) -> Iterator[Buffer]:  # noqa: ARG002
        """Refuse."""
        self._refuse()

    def read_into(self, parts: Iterable[tuple[int, memoryview]]) -> None:  # noqa: ARG002
        """Refuse."""
        self._refuse()

    def close(self) -> None:
        """Do nothing: no file is open."""

    def _refuse(self) -> NoReturn:
        raise UnsupportedError("a directory of files is not read as one", path=self.name)
