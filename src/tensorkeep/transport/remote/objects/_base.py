"""The vocabulary of remote transport: stores, objects in them, and versions of objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import msgspec

from tensorkeep.buffers import Buffer
from tensorkeep.errors import (
    RangeNotServedError,
    SourceChangedError,
    SourceMissingError,
    TransportError,
    UnsupportedError,
)
from tensorkeep.transport.sources import ByteRange


class ManyRefusedError(TransportError):
    """A server did not send the several ranges of one request; it may send them one by one."""


class Version(msgspec.Struct, frozen=True):
    """Identifies one version of an object.

    Attributes:
        nbytes: Its size in bytes.
        etag: The ETag, or None.
        modified: Time of the last change, as the server gives it, or None.
        number: Version id in a store that keeps versions, or None.
        sha256: SHA-256 of the object as the server gives it, 64 hexadecimal digits, or None.
    """

    nbytes: int
    etag: str | None = None
    modified: Any = None
    number: str | None = None
    sha256: str | None = None

    @property
    def is_pinned(self) -> bool:
        """Whether a request can demand this version; a weak ETag cannot (RFC 9110, 13.1.1)."""
        return self.number is not None or (self.etag is not None and not self.etag.startswith("W/"))

    def is_same(self, other: Version) -> bool:
        """Whether both have the same bytes, as far as the server says."""
        if (self.nbytes, self.number, self.etag) != (other.nbytes, other.number, other.etag):
            return False
        return self.is_pinned or self.modified == other.modified  # servers of one site may disagree on times


class StoredObject(msgspec.Struct, frozen=True):
    """An object in a listing.

    Attributes:
        name: Its path below the listed one, with / between parts.
        nbytes: Its size in bytes.
        etag: The ETag without quotes, or None.
        modified: Seconds since 1970 of the last change by the store's clock, or None.
    """

    name: str
    nbytes: int
    etag: str | None
    modified: float | None

    def is_of(self, version: Version) -> bool:
        """Whether this is a version of the object, as far as the listing says."""
        has_etags = self.etag is not None and version.etag is not None
        return self.nbytes == version.nbytes and (not has_etags or self.etag == bare_etag(version.etag or ""))


def bare_etag(etag: str) -> str:
    """Return an ETag as listings have it, some of them without quotes."""
    return etag.removeprefix("W/").strip('"')


class Opening(msgspec.Struct, frozen=True):
    """Result of the first request.

    Attributes:
        version: The version that was opened.
        head: The first bytes; all of them if the server does not support ranges and they are not too many.
        serves_ranges: Whether ranges can be read; if not, only the beginning.
    """

    version: Version
    head: Buffer
    serves_ranges: bool = True


class Stream(Protocol):
    """The bytes of a request, as they come."""

    def read_into(self, into: memoryview) -> int:
        """Read some of the next bytes; 0 at the end."""

    def close(self) -> None:
        """Release the connection, also before the end."""


class Chunks:
    """A stream over chunks that a library yields."""

    def __init__(self, chunks: Iterable[Buffer]) -> None:
        self._chunks = iter(chunks)
        self._rest = memoryview(b"")

    def read_into(self, into: memoryview) -> int:
        """Read some of the next bytes."""
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk).cast("B")
        nbytes = min(len(into), len(self._rest))
        into[:nbytes] = self._rest[:nbytes]
        self._rest = self._rest[nbytes:]
        return nbytes

    def close(self) -> None:
        """Drop the remaining chunks."""
        self._chunks, self._rest = iter(()), memoryview(b"")


class RemoteObject(Protocol):
    """An object in a store. Each call makes one request; callers retry.

    Attributes:
        name: Its URL, without secrets.
        takes_many: Whether to ask for several ranges in one request.
    """

    name: str

    @property
    def takes_many(self) -> bool: ...

    def open(self, nbytes: int, *, max_whole_nbytes: int) -> Opening:
        """Request the first bytes, and learn the version."""

    def stream(self, span: ByteRange, version: Version) -> Stream:
        """Request a range."""

    def stream_many(self, spans: Sequence[ByteRange], version: Version) -> Stream:
        """Request several ranges at once."""


class Body(msgspec.Struct, frozen=True):
    """The content of an object to write.

    Attributes:
        nbytes: Size in bytes.
        pieces: Yields the bytes in order; called again for each retry.
    """

    nbytes: int
    pieces: Callable[[], Iterable[Buffer]]


class RemoteStore(Protocol):
    """A store of objects, by path."""

    def at(self, path: str) -> RemoteObject:
        """Return an object, without a request."""

    def names(self, path: str) -> list[str] | None:
        """Return the names in a directory; None if the store cannot list it."""


@runtime_checkable
class ListingStore(RemoteStore, Protocol):
    """A store that lists what is in it at any depth, with sizes."""

    def objects(self, path: str) -> list[StoredObject]:
        """Return all objects below a directory, at any depth; if any."""


@runtime_checkable
class WritableStore(ListingStore, Protocol):
    """A store that can be written to.

    Attributes:
        guards: Whether `swap` is one conditional write; if not, it looks first and then writes.
    """

    @property
    def guards(self) -> bool: ...

    def copy(self, old: str, new: str) -> None:
        """Copy an object within the store, which sends no data."""

    def put(self, path: str, body: Body, connections: int) -> None:
        """Create or replace an object; others see it only once it is complete."""

    def swap(self, path: str, data: bytes, before: Version | None) -> None:
        """Create or replace a small object, unless someone else changed it since `before`."""

    def remove(self, path: str) -> None:
        """Remove an object if it exists."""

    def remove_all(self, paths: list[str]) -> None:
        """Remove objects; where one is missing, the others may be left."""


def changed(name: str, expected: Version, found: Version | None = None) -> SourceChangedError:
    """Return the error for an object that was replaced."""
    return SourceChangedError(
        "the file was replaced by another while it was open",
        path=name,
        expected=f"{expected.nbytes:,} bytes, version {expected.etag or expected.modified}",
        found=f"{found.nbytes:,} bytes, version {found.etag or found.modified}" if found else None,
        hint="Open it again",
    )


@contextmanager
def gone_is_changed(name: str, version: Version) -> Iterator[None]:
    """Report an object that disappeared as changed: a save that replaces a checkpoint removes its shards."""
    try:
        yield
    except SourceMissingError:
        raise SourceChangedError(
            "the file was removed while it was open, as by a save that replaced it",
            path=name,
            expected=f"{version.nbytes:,} bytes, version {version.etag or version.modified}",
            found="nothing",
            hint="Open the checkpoint again",
        ) from None


def swapped(name: str) -> SourceChangedError:
    """Return the error for an object that someone else wrote in the meantime."""
    return SourceChangedError(
        "another save was finished here in the meantime",
        path=name,
        expected="what was there when this save began",
        hint="Nothing was replaced; save again if this state is to be the one that counts",
    )


def read_only(name: str, what: str) -> UnsupportedError:
    """Return the error for a store that cannot be written to."""
    return UnsupportedError(
        f"{what} cannot be written to",
        path=name,
        expected="a path, or a URL of s3, gs, az, or a file system of fsspec that can be written to",
        hint="Save to a directory, and copy that to where it is served from; tensorkeep.push publishes it on the Hub",
    )


def whole_file_too_large(name: str, nbytes: int | None, max_nbytes: int) -> RangeNotServedError:
    """Return the error for a large object on a server without support for ranges."""
    return RangeNotServedError(
        "the server sends whole files only, so single ranges cannot be read",
        path=name,
        expected=f"ranges, or at most {max_nbytes:,} bytes",
        found=f"{nbytes:,} bytes" if nbytes is not None else "more",
        hint="tensorkeep.fetch downloads it"
        if nbytes is not None
        else "tensorkeep.remote(url, whole_nbytes=...) allows more; the whole file is held in memory",
    )
