"""HDF5 files through h5py, and so through the HDF5 library. Nothing does this unless the caller names it.

Datasets of numbers are read box by box, as chunks that lie one after another. What the file keeps in other files is
not asked for.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import product
from math import prod
from typing import Any, Final

import numpy as np

from tensorkeep.buffers import Buffer
from tensorkeep.errors import FormatError, LimitError, TensorkeepError, importing
from tensorkeep.formats import Checksum, StoredChunk
from tensorkeep.limits import MAX_DEFLATE_RATIO, MAX_EXPANDED_NBYTES, PACK_NBYTES
from tensorkeep.transport import ByteRange, ByteSource

ENGINE: Final = "h5py"


class LibraryFile:
    """A file that h5py has open; one thread reads at a time."""

    def __init__(self, source: ByteSource) -> None:
        self.source = source
        self._lock = threading.Lock()
        self._file: Any = None
        with importing(h5py="h5py"):
            import h5py
        self.dataset_class: Any = h5py.Dataset
        with self.reading():
            self._file = h5py.File(io.BufferedReader(_Stream(source)), "r")

    def __reduce__(self) -> tuple[Any, ...]:
        return LibraryFile, (self.source,)

    @contextmanager
    def reading(self) -> Iterator[Any]:
        """Give the file, and make one error of ours of whatever goes wrong in the library."""
        with self._lock:
            try:
                yield self._file
            except TensorkeepError:
                raise
            except Exception as error:  # noqa: BLE001 - it raises errors of all kinds about broken files
                found = f"{type(error).__name__}: {error}"
                raise FormatError("h5py cannot read the file", path=self.source.name, found=found) from None


class _Stream(io.RawIOBase):
    """A source as a file object."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = (0, self._position, self._source.nbytes)[whence]
        self._position = max(0, start + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        into = memoryview(buffer).cast("B")
        nbytes = max(0, min(len(into), self._source.nbytes - self._position))
        if nbytes:
            self._source.read_into([(self._position, into[:nbytes])])
        self._position += nbytes
        return nbytes


class LibraryChunks:
    """The elements of one dataset as chunks: its own, or rows of about a MiB. See `tensorkeep.formats.Chunks`."""

    is_big_endian = False
    fill = b""
    fill_shape: tuple[int, ...] = ()

    def __init__(
        self, file: LibraryFile, name: str, dtype: str, shape: tuple[int, ...], chunk: tuple[int, ...] | None
    ) -> None:
        self._file = file
        self._arguments = (name, dtype, shape, chunk)
        self._tensor_shape = shape
        itemsize = np.dtype(dtype).itemsize
        n_rows = max(1, PACK_NBYTES // max(1, prod(shape[1:]) * itemsize))
        own = (n_rows, *shape[1:]) if chunk is None else (*chunk, *shape[len(chunk) :])
        self.shape = tuple(max(1, min(extent, most)) for extent, most in zip(own, shape, strict=False))
        self.source: ByteSource = _Elements(file, name, dtype, shape, self.shape)
        n_chunks = self.source.nbytes // max(1, prod(self.shape) * itemsize)
        if n_chunks * prod(self.shape) * itemsize > MAX_EXPANDED_NBYTES + MAX_DEFLATE_RATIO * file.source.nbytes:
            raise LimitError(
                f"dataset `{name}` is larger than its file can hold",
                tensor=name,
                path=file.source.name,
                found=f"{shape} {dtype}",
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return LibraryChunks, (self._file, *self._arguments)

    def stored(self) -> Mapping[tuple[int, ...], StoredChunk]:
        """Return all chunks: the library knows which are stored."""
        return _All(self._tensor_shape, self.shape, np.dtype(self._arguments[1]).itemsize)

    def unpack(self, chunk: StoredChunk, data: Buffer) -> Buffer:  # noqa: ARG002 - the protocol's
        """Return the elements, which the library has unpacked."""
        return data

    def checksums(self) -> list[Checksum]:
        """Return nothing: the library checks what it reads by itself."""
        return []


class _All(Mapping[tuple[int, ...], StoredChunk]):
    """Every chunk of a grid, by its place; its bytes follow the ones before it."""

    def __init__(self, shape: tuple[int, ...], chunk: tuple[int, ...], itemsize: int) -> None:
        self._grid = _grid_of(shape, chunk)
        self._nbytes = prod(chunk) * itemsize

    def __getitem__(self, place: tuple[int, ...]) -> StoredChunk:
        number = 0
        for at, extent in zip(place, self._grid, strict=True):
            if not 0 <= at < extent:
                raise KeyError(place)
            number = number * extent + at
        return StoredChunk(ByteRange(number * self._nbytes, (number + 1) * self._nbytes), is_plain=True)

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        return product(*map(range, self._grid))

    def __len__(self) -> int:
        return prod(self._grid)


class _Elements:
    """The elements of a dataset as a source: chunk after chunk, each as large as the others."""

    gap_nbytes = 0

    def __init__(
        self, file: LibraryFile, name: str, dtype: str, shape: tuple[int, ...], chunk: tuple[int, ...]
    ) -> None:
        self._file = file
        self._name = name
        self._dtype = np.dtype(dtype).newbyteorder("<")
        self._shape = shape
        self._chunk = chunk
        self._grid = _grid_of(shape, chunk)
        self._chunk_nbytes = prod(chunk) * self._dtype.itemsize
        self.name = file.source.name
        self.nbytes = prod(self._grid) * self._chunk_nbytes

    def map(self, span: ByteRange) -> None:
        """Return None: the elements are nowhere in this form."""

    def read(self, span: ByteRange) -> Buffer:
        """Return the bytes of a range."""
        data = bytearray(len(span))
        self.read_into([(span.start, memoryview(data))])
        return data

    def pieces(self, span: ByteRange) -> Iterator[Buffer]:
        """Yield the bytes of a range, chunk by chunk."""
        for start in range(span.start, span.stop, self._chunk_nbytes):
            yield self.read(ByteRange(start, min(start + self._chunk_nbytes, span.stop)))

    def read_into(self, parts: Iterable[tuple[int, memoryview]]) -> None:
        """Fill buffers."""
        for start, into in parts:
            done = 0
            while done < len(into):
                number, offset = divmod(start + done, self._chunk_nbytes)
                piece = memoryview(self._read_chunk(number)).cast("B")[offset : offset + len(into) - done]
                into[done : done + len(piece)] = piece
                done += len(piece)

    def _read_chunk(self, number: int) -> bytes:
        place: list[int] = []
        for extent in reversed(self._grid):
            number, at = divmod(number, extent)
            place.insert(0, at)
        index = tuple(
            slice(at * step, min((at + 1) * step, extent))
            for at, step, extent in zip(place, self._chunk, self._shape, strict=True)
        )
        with self._file.reading() as file:
            dataset = file[self._name]
            n_own = len(dataset.shape)  # elements have the other dimensions
            read = np.asarray(dataset[index[:n_own] or ()])
        whole = np.zeros(self._chunk, self._dtype)
        whole[tuple(slice(part.stop - part.start) for part in index) or ...] = read
        return whole.tobytes()

    def close(self) -> None:
        """Do nothing: its opener closes the file."""


def _grid_of(shape: tuple[int, ...], chunk: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(-(-extent // step) for extent, step in zip(shape, chunk, strict=True))
