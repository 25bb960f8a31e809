"""The vocabulary of remote transport: an object in a store, and what tells it from a later one of the same name."""

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
    """A server that was asked for several ranges at once gave something else; one by one, it may give them."""


class Version(msgspec.Struct, frozen=True):
    """What tells an object from another one that replaced it.

    Attributes:
        nbytes: Its size in bytes.
        etag: What the server calls this version; None where it does not say.
        modified: When it was last changed, as the server says; None where it does not.
        number: The version that a store with versions keeps; None elsewhere.
        sha256: SHA-256 of all of it, 64 hexadecimal digits, as the server says; None where it does not.
    """

    nbytes: int
    etag: str | None = None
    modified: Any = None
    number: str | None = None
    sha256: str | None = None

    @property
    def is_pinned(self) -> bool:
        """Whether the server can be asked for this version alone: weak tags do not count (RFC 9110, 13.1.1)."""
        return self.number is not None or (self.etag is not None and not self.etag.startswith("W/"))

    def is_same(self, other: Version) -> bool:
        """Say whether both are the same bytes, as far as the server says."""
        if (self.nbytes, self.number, self.etag) != (other.nbytes, other.number, other.etag):
            return False
        return self.is_pinned or self.modified == other.modified  # servers of one site may disagree on times


class Opening(msgspec.Struct, frozen=True):
    """What the first request brings.

    Attributes:
        version: What was opened.
        head: Its first bytes; where the server serves no ranges, all of them, or none if they are too many.
        serves_ranges: Whether the rest can be asked for in parts; else only all of it at once.
    """

    version: Version
    head: Buffer
    serves_ranges: bool = True


class Stream(Protocol):
    """The bytes of a range, as they come."""

    def read_into(self, into: memoryview) -> int:
        """Take the next bytes."""

    def close(self) -> None:
        """Let go of it, at the end or before."""


class Chunks:
    """A stream over bytes that a library hands out in chunks."""

    def __init__(self, chunks: Iterable[Buffer]) -> None:
        self._chunks = iter(chunks)
        self._rest = memoryview(b"")

    def read_into(self, into: memoryview) -> int:
        """Take the next bytes; see `Stream.read_into`."""
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
        """Let go of it; see `Stream.close`."""
        self._chunks, self._rest = iter(()), memoryview(b"")


class RemoteObject(Protocol):
    """An object, which is asked for with single requests; whoever calls tries again.

    Attributes:
        name: Its URL, without secrets.
        takes_many: Whether it may be asked for several ranges at once.
    """

    name: str

    @property
    def takes_many(self) -> bool: ...

    def open(self, nbytes: int, *, max_whole_nbytes: int) -> Opening:
        """Ask for the first bytes, and with them for all that is known of the object."""

    def stream(self, span: ByteRange, version: Version) -> Stream:
        """Ask for a range."""

    def stream_many(self, spans: Sequence[ByteRange], version: Version) -> Stream:
        """Ask for several ranges."""


class Body(msgspec.Struct, frozen=True):
    """What an object is to hold.

    Attributes:
        nbytes: How many bytes.
        pieces: Gives them in order, each time it is called: a store that failed may have to be told again.
    """

    nbytes: int
    pieces: Callable[[], Iterable[Buffer]]


class RemoteStore(Protocol):
    """Objects by name."""

    def at(self, path: str) -> RemoteObject:
        """Return an object, of which nothing is asked yet."""

    def names(self, path: str) -> list[str] | None:
        """Return the names of what stands right below a path."""


@runtime_checkable
class WritableStore(RemoteStore, Protocol):
    """Objects by name, which can be made, replaced and removed."""

    def put(self, path: str, body: Body, connections: int) -> None:
        """Make or replace an object, which others see when all of it is there, and not before."""

    def swap(self, path: str, data: bytes, before: Version | None) -> None:
        """Make or replace a small object, if nobody else has done so meanwhile."""

    def remove(self, path: str) -> None:
        """Remove an object, if it is there."""


def changed(name: str, expected: Version, found: Version | None = None) -> SourceChangedError:
    """Return the error for an object that was replaced by another."""
    return SourceChangedError(
        "the file was replaced by another while it was open",
        path=name,
        expected=f"{expected.nbytes:,} bytes, version {expected.etag or expected.modified}",
        found=f"{found.nbytes:,} bytes, version {found.etag or found.modified}" if found else None,
        hint="Open it again",
    )


@contextmanager
def gone_is_changed(name: str, version: Version) -> Iterator[None]:
    """Say of an object that was there and is gone that another was to take its place: so do saves, with shards."""
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
    """Return the error for an object that another has written since it was looked at."""
    return SourceChangedError(
        "another save was finished here in the meantime",
        path=name,
        expected="what was there when this save began",
        hint="Nothing was replaced; save again if this state is to be the one that counts",
    )


def read_only(name: str, what: str) -> UnsupportedError:
    """Return the error for a store to which nothing can be written."""
    return UnsupportedError(
        f"{what} are only read from",
        path=name,
        expected="a path, or a URL of s3, gs, az, or a file system of fsspec that can be written to",
        hint="Save to a directory, and copy that to where it is served from",
    )


def whole_file_too_large(name: str, nbytes: int | None, max_nbytes: int) -> RangeNotServedError:
    """Return the error for a large object on a server that serves no ranges."""
    return RangeNotServedError(
        "the server gives whole files only, so nothing can be read here and there",
        path=name,
        expected=f"ranges, or at most {max_nbytes:,} bytes",
        found=f"{nbytes:,} bytes" if nbytes is not None else "more",
        hint="tensorkeep.fetch brings it to the disk"
        if nbytes is not None
        else "tensorkeep.remote(url, whole_nbytes=...) allows more, of which all is held in memory",
    )
