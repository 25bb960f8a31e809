"""The vocabulary of remote transport: an object in a store, and what tells it from a later one of the same name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import msgspec

from tensorkeep.buffers import Buffer
from tensorkeep.errors import SourceChangedError, TransportError
from tensorkeep.transport._base import ByteRange

__all__ = ["Opening", "RemoteObject", "RemoteStore", "TransientError", "Version", "changed"]


class TransientError(TransportError):
    """A request failed in a way that may not happen again: a cut connection, a busy server, a time that ran out."""


class Version(msgspec.Struct, frozen=True):
    """What tells an object from another one that replaced it.

    Attributes:
        nbytes: Its size in bytes.
        etag: What the server calls this version; None where it does not say.
        modified: When it was last changed, as the server says; None where it does not.
        number: The version that a store with versions keeps; None elsewhere.
    """

    nbytes: int
    etag: str | None = None
    modified: Any = None
    number: str | None = None

    @property
    def is_pinned(self) -> bool:
        """Whether the server can be asked for this version alone: weak tags do not count (RFC 9110, 13.1.1)."""
        return self.number is not None or (self.etag is not None and not self.etag.startswith("W/"))


class Opening(msgspec.Struct, frozen=True):
    """What the first request brings.

    Attributes:
        version: What was opened.
        head: Its first bytes; all of them, where the server serves no ranges.
    """

    version: Version
    head: Buffer


class RemoteObject(Protocol):
    """An object, which is asked for with single requests; whoever calls tries again.

    Attributes:
        name: Its URL, without secrets.
    """

    name: str

    def open(self, nbytes: int, *, max_whole_nbytes: int) -> Opening:
        """Ask for the first bytes, and with them for all that is known of the object.

        Args:
            nbytes: How many bytes; fewer come if there are no more.
            max_whole_nbytes: Size up to which all of it is taken from a server that serves no ranges.

        Raises:
            RangeNotServedError: If it serves none, and the object is larger.
            SourceMissingError: If there is no such object.
            AccessDeniedError: If the server does not let this user.
            TransientError: If trying again may help.
            TransportError: If it may not.
        """

    def chunks(self, span: ByteRange, version: Version) -> Iterator[Buffer]:
        """Ask for a range, and give its bytes as they come.

        Args:
            span: Half-open, not empty.
            version: The one that is meant.

        Raises:
            SourceChangedError: If the object is another by now.
            TransientError: If trying again, from the last byte that came, may help.
            TransportError: If it may not.
        """


class RemoteStore(Protocol):
    """Objects by name."""

    def at(self, path: str) -> RemoteObject:
        """Return an object, of which nothing is asked yet.

        Args:
            path: Its name in the store.
        """

    def names(self, path: str) -> list[str] | None:
        """Return the names of what stands right below a path.

        Args:
            path: That of a directory.

        Returns:
            Plain names; None where the store cannot say, as most web servers cannot.

        Raises:
            TransportError: If it fails.
        """


def changed(name: str, expected: Version, found: Version | None = None) -> SourceChangedError:
    """Return the error for an object that was replaced by another.

    Args:
        name: Its URL, without secrets.
        expected: The version that was opened.
        found: The one that is there now, where that is known.
    """
    return SourceChangedError(
        "the file was replaced by another while it was open",
        path=name,
        expected=f"{expected.nbytes:,} bytes, version {expected.etag or expected.modified}",
        found=f"{found.nbytes:,} bytes, version {found.etag or found.modified}" if found else None,
        hint="Open it again",
    )
