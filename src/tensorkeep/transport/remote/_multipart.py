"""Several ranges in one answer: `multipart/byteranges` (RFC 9110, 14.6), taken apart as it comes."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from typing import Final

from tensorkeep.transport._base import ByteRange
from tensorkeep.transport.remote._base import ManyRefusedError, Stream

__all__ = ["Parts", "boundary_of"]

_match_type = re.compile(
    r'multipart/byteranges\s*;(?:.*;)?\s*boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))\s*(?:;.*)?'
).fullmatch
_find_range = re.compile(
    rb"\r\ncontent-range:[ \t]*bytes[ \t]+([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19})[ \t]*\r\n", re.I
).search

_READ_NBYTES: Final = 2**16
_MAX_HEAD_NBYTES: Final = 2**13
"""Bytes before the data of a part; honest servers need about a hundred."""


def boundary_of(content_type: str) -> bytes | None:
    """Return what stands between the parts; None if an answer has no such parts.

    Args:
        content_type: The header of the answer.
    """
    found = _match_type(content_type.strip())
    return (found[1] or found[2]).encode("latin-1", "replace") if found else None


class Parts:
    """The bytes of several ranges, one after another, as they come; see `Stream`.

    Args:
        answer: The body.
        boundary: What stands between the parts.
        spans: The ranges that were asked for.
        nbytes: Size of the object in bytes.
        name: URL of the object, without secrets.

    Raises:
        ManyRefusedError: If the first part is not the first range, here or, of another part, from `read_into`.
        TransientError: If it cannot be read.
    """

    def __init__(self, answer: Stream, boundary: bytes, spans: Sequence[ByteRange], nbytes: int, name: str) -> None:
        """Read up to the data of the first part; see the class."""
        self._answer = answer
        self._delimiter = b"--" + boundary
        self._waiting = deque(spans)
        self._nbytes = nbytes
        self._name = name
        self._buffer = memoryview(b"")
        self._scratch = memoryview(bytearray(_READ_NBYTES))
        self._left = 0
        self._begin_part()

    def read_into(self, into: memoryview) -> int:
        """Take the next bytes; see `Stream.read_into`."""
        if not self._left:
            if not self._waiting:
                return 0
            self._begin_part()
        into = into[: self._left]
        if self._buffer:
            n_read = min(len(into), len(self._buffer))
            into[:n_read] = self._buffer[:n_read]
            self._buffer = self._buffer[n_read:]
        else:
            n_read = self._answer.read_into(into) if len(into) >= _READ_NBYTES else self._refilled(into)
        self._left -= n_read
        return n_read

    def _refilled(self, into: memoryview) -> int:
        n_come = self._answer.read_into(self._scratch)
        n_read = min(len(into), n_come)
        into[:n_read] = self._scratch[:n_read]
        self._buffer = self._scratch[n_read:n_come]
        return n_read

    def _begin_part(self) -> None:
        span = self._waiting.popleft()
        head = self._read_head()
        found = _find_range(head) if head.lstrip(b"\r\n").startswith(self._delimiter + b"\r\n") else None
        given = tuple(map(int, found.groups())) if found else ()
        if given != (span.start, span.stop - 1, self._nbytes):
            raise ManyRefusedError("the server gave other ranges than were asked for", path=self._name)
        self._left = len(span)

    def _read_head(self) -> bytes:
        """Return what stands before the data of a part; keep what came after it."""
        head = bytearray(self._buffer)
        while (end := head.find(b"\r\n\r\n", 2)) < 0:
            n_come = self._answer.read_into(self._scratch) if len(head) < _MAX_HEAD_NBYTES else 0
            if not n_come:
                raise ManyRefusedError("the server gave no ranges that can be told apart", path=self._name)
            head += self._scratch[:n_come]
        self._buffer = memoryview(bytes(head[end + 4 :]))
        return bytes(head[: end + 4])

    def close(self) -> None:
        """Let go of the answer; see `Stream.close`."""
        self._answer.close()
