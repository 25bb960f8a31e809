"""Block digests from the file beside the data, read where they are needed."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from tensorkeep.digests import DIGEST_NBYTES
from tensorkeep.digests.blocks import PAGE_LENGTH, TreeError, TreeShape, check_page, parents_of_pages
from tensorkeep.errors import IntegrityError
from tensorkeep.transport.remote import RemotePath, is_url
from tensorkeep.transport.sources import ByteRange, ByteSource, LocalFile

_AT_ONCE_NBYTES: Final = 2**22
"""Bytes of a remote file that come with the first request: all digests for 8 GB of data."""

_PAGE_NBYTES: Final = PAGE_LENGTH * DIGEST_NBYTES


class BlockProof:
    """Digests from the file beside the data, which is opened when the first one is needed; what is read is kept.

    `start` is the first byte of the data in its own file.
    """

    def __init__(self, path: str, start: int, data_nbytes: int, *, binding: bytes, root: bytes) -> None:
        self._shape = TreeShape(data_nbytes)
        self._start = start
        self._path = path
        self._binding = binding
        self._root = root
        self._opened: tuple[ByteSource, bytes] | None = None
        self._pages: dict[int, bytes] = {}

    @property
    def shape(self) -> TreeShape:
        """The blocks."""
        return self._shape

    @property
    def start(self) -> int:
        """First byte of the first block in the source."""
        return self._start

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_opened": None, "_pages": {}}

    def of(self, numbers: Collection[int]) -> dict[int, bytes]:
        """Return the digest of some blocks, checked."""
        wanted = {number // PAGE_LENGTH for number in numbers}
        try:
            self._read(sorted(wanted - self._pages.keys()))
        except TreeError as error:
            raise self._refusal(str(error)) from None
        found = {}
        for number in numbers:
            start = number % PAGE_LENGTH * DIGEST_NBYTES
            found[number] = self._pages[number // PAGE_LENGTH][start : start + DIGEST_NBYTES]
        return found

    def _read(self, numbers: list[int]) -> None:
        if not numbers:
            return
        source, parents = self._opened or self._open()
        pages = {number: bytearray(self._page_nbytes(number)) for number in numbers if number not in self._pages}
        start = self.shape.blocks_start
        source.read_into((start + number * _PAGE_NBYTES, memoryview(page)) for number, page in pages.items())
        for number, page in pages.items():
            check_page(page, number, parents)
            self._pages[number] = bytes(page)

    def _page_nbytes(self, number: int) -> int:
        return min(_PAGE_NBYTES, self.shape.nbytes - self.shape.blocks_start - number * _PAGE_NBYTES)

    def _open(self) -> tuple[ByteSource, bytes]:
        shape = self.shape
        source = self._source()
        if source.nbytes != shape.nbytes:
            raise self._refusal(f"{source.nbytes:,} bytes")
        has_levels = len(shape.lengths) > 1
        top = bytes(source.read(ByteRange(0, shape.blocks_start if has_levels else shape.nbytes)))
        parents = parents_of_pages(top, shape, self._binding, self._root)
        if parents is None:
            self._pages[0] = top[shape.blocks_start :]
        self._opened = source, parents or b""
        return self._opened

    def _source(self) -> ByteSource:
        """Open the file; from a server, all of it comes with the first request unless it is large."""
        if not is_url(self._path):
            return LocalFile(self._path, backend="pread")
        return RemotePath.of(self._path).read_by(head_nbytes=min(self.shape.nbytes, _AT_ONCE_NBYTES)).open()

    def _refusal(self, found: str) -> IntegrityError:
        return IntegrityError(
            "the block digests are not those that were saved",
            path=self._path,
            expected=f"{self.shape.nbytes:,} bytes with root {self._root.hex()[:16]}…",
            found=found,
            hint="Remove the file: slices are then checked by reading their whole tensors",
        )
