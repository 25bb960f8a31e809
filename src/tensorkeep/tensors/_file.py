"""A file of tensors as a read-only mapping of name to lazy tensor."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Self

from tensorkeep.collector import PausedCollector
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import TensorNotFoundError, TransportError
from tensorkeep.formats.safetensors import Header, read_header
from tensorkeep.limits import MAX_HEADER_NBYTES
from tensorkeep.tensors._lazy import LazyTensor
from tensorkeep.tensors._reader import TensorReader
from tensorkeep.transport import Backend, Openable, open_source

__all__ = ["TensorFile", "load", "open_file"]


class TensorFile(Mapping[str, LazyTensor]):
    """Name to `LazyTensor`, in the order of the bytes in the file. Nothing but the header has been read.

    Closing is not needed for correctness: the file is let go of with the last reference. Usable from several
    threads, after a fork, and pickled (the path travels; the file must then be the same one).
    """

    def __init__(self, header: Header, reader: TensorReader) -> None:
        self._header = header
        self._reader = reader
        self._closed = False

    @property
    def path(self) -> str:
        """The path, or what stands for it in messages."""
        return self._reader.source.name

    @property
    def metadata(self) -> dict[str, str]:
        """The file's free text by key; a new dict, empty where the file has none."""
        return dict(self._header.metadata or {})

    @property
    def has_metadata(self) -> bool:
        """Whether the file has free text at all, be it empty."""
        return self._header.metadata is not None

    @property
    def entries(self) -> Mapping[str, TensorEntry]:
        """Name to what the header says, in the order of the bytes in the file."""
        return self._header.entries

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return self._header.data_nbytes

    @property
    def data_start(self) -> int:
        """Byte of the file at which the tensors' data begins."""
        return self._header.data_start

    def __getitem__(self, name: str) -> LazyTensor:
        """Return a tensor that reads on indexing.

        Args:
            name: Its name.

        Raises:
            TensorNotFoundError: If there is none of that name; the message has the nearest names.
        """
        return LazyTensor(name, self._entry(name), self._open_reader())

    def _entry(self, name: str) -> TensorEntry:
        entry = self._header.entries.get(name)
        if entry is None:
            near = _near(str(name), self._header.entries)
            raise TensorNotFoundError(
                f"File does not contain tensor {name}",
                path=self.path,
                tensor=str(name),
                hint="Did you mean " + " or ".join(f"`{other}`" for other in near) + "?" if near else None,
            )
        return entry

    def __iter__(self) -> Iterator[str]:
        """Give the names, in the order of the bytes in the file."""
        return iter(self._header.entries)

    def __len__(self) -> int:
        """Return the number of tensors."""
        return len(self._header.entries)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a tensor that reads on indexing, or something else where there is none of that name.

        Args:
            name: Its name.
            default: What to return instead.
        """
        return self[name] if name in self._header.entries else default

    def __eq__(self, other: object) -> bool:
        """Say whether the other is this very file object."""
        return self is other

    def __hash__(self) -> int:
        """Return a number that tells this file object from others."""
        return id(self)

    def __contains__(self, name: object) -> bool:
        """Say whether there is a tensor of that name."""
        return name in self._header.entries

    def load(self, names: Iterable[str] | None = None) -> dict[str, Any]:
        """Read whole tensors, without a copy where the file can be mapped.

        Args:
            names: Which: several, or one; all if None.

        Returns:
            Name to tensor of the file's framework, in the order of the bytes in the file. They are writable, share
            memory with no other, and writing to them never reaches the file.

        Raises:
            TensorNotFoundError: If a name is not in the file.
            DtypeError: If a dtype is unknown here or to the framework.
            LimitError: If a tensor has more dimensions than the framework allows.
            TransportError: If the bytes cannot be read.
        """
        entries: Mapping[str, TensorEntry] = self._header.entries
        if isinstance(names, str):
            names = [names]
        if names is not None:
            picked = {name: self._entry(name) for name in names}
            entries = dict(sorted(picked.items(), key=lambda item: item[1].data_offsets))
        return self._open_reader().load(entries)

    def _open_reader(self) -> TensorReader:
        self.check_open()
        return self._reader

    def check_open(self) -> None:
        """Refuse to go on with a file that was closed.

        Raises:
            TransportError: If it was.
        """
        if self._closed:
            raise TransportError("File is closed", path=self.path)

    def close(self) -> None:
        """Let go of the file; tensors that were read stay valid, lazy ones can no longer be read."""
        self._closed = True
        self._reader.close()

    def __enter__(self) -> Self:
        """Return the file itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()

    def __repr__(self) -> str:
        """Return path, number of tensors and size."""
        return f"TensorFile({self.path!r}, {len(self):,} tensors, {self.nbytes:,} bytes)"


def _near(name: str, names: Iterable[str]) -> list[str]:
    """Return up to three names that look like one, looking at a few hundred of about its length."""
    alike = (other for other in names if abs(len(other) - len(name)) <= 3)
    return difflib.get_close_matches(name, islice(alike, 300), n=3)


def open_file(
    target: Openable,
    *,
    framework: str = "numpy",
    device: Any = "cpu",
    backend: Backend = "auto",
    max_header_nbytes: int = MAX_HEADER_NBYTES,
) -> TensorFile:
    """Open a safetensors file: a read-only mapping of name to `LazyTensor`.

    Only the header is read, and all of it is checked.

    Args:
        target: A path, the bytes themselves, or a seekable binary file object.
        framework: The array library that tensors come out in: `"numpy"` or `"torch"`.
        device: Where tensors go; anything that torch takes.
        backend: `"mmap"`, `"pread"`, or `"auto"`: mapped unless the file is on a network or FUSE file system.
            Truncating a mapped file ends the process that touches it (SIGBUS); `"pread"` gives an error.
        max_header_nbytes: Longest header that is accepted, in bytes.

    Returns:
        The mapping; also a context manager.

    Raises:
        SourceMissingError: If there is no such file.
        HeaderError: If it is not a whole safetensors file.
        TransportError: If it cannot be read.
        UnsupportedError: If the target or the backend is none of the above.
    """
    source = open_source(target, backend=backend)
    with PausedCollector():
        header = read_header(source, max_header_nbytes=max_header_nbytes)
    return TensorFile(header, TensorReader(source, header.data_start, framework, device))


def load(
    target: Openable, *, framework: str = "numpy", device: Any = "cpu", backend: Backend = "auto"
) -> dict[str, Any]:
    """Read all tensors of a file.

    Args:
        target: A path, the bytes themselves, or a seekable binary file object.
        framework: The array library that tensors come out in: `"numpy"` or `"torch"`.
        device: Where tensors go; anything that torch takes.
        backend: How a local file is read; see `open_file`.

    Returns:
        Name to tensor, in the order of the bytes in the file.

    Raises:
        HeaderError: If it is not a whole safetensors file.
        DtypeError: If a dtype is unknown here or to the framework.
        LimitError: If a tensor has more dimensions than the framework allows.
        TransportError: If it cannot be read.
        UnsupportedError: If the target, framework or backend is none of the above.
    """
    with open_file(target, framework=framework, device=device, backend=backend) as file:
        return file.load()
