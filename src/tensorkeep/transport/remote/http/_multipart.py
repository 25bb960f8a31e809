"""Several ranges in one response: `multipart/byteranges` (RFC 9110, 14.6), parsed as it comes."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from typing import Final

from tensorkeep.transport.remote.objects import ManyRefusedError, Stream
from tensorkeep.transport.sources import ByteRange

_match_type = re.compile(
    r'multipart/byteranges\s*;(?:.*;)?\s*boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))\s*(?:;.*)?'
).fullmatch
_find_range = re.compile(
    rb"\r\ncontent-range:[ \t]*bytes[ \t]+([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19})[ \t]*\r\n", re.I
).search

_READ_NBYTES: Final = 2**17
_MAX_HEAD_NBYTES: Final = 2**13
"""Bytes before the data of a part; servers need about a hundred."""


def boundary_of(content_type: str) -> bytes | None:
    """Return the boundary between the parts; None for another content type."""
    found = _match_type(content_type.strip())
    return (found[1] or found[2]).encode("latin-1", "replace") if found else None


class Parts:
    """The bytes of several ranges, one after another."""

    def __init__(self, answer: Stream, boundary: bytes, spans: Sequence[ByteRange], nbytes: int, name: str) -> None:
        self._answer = answer
        self._delimiter = b"--" + boundary
        self._waiting = deque(spans)
        self._nbytes = nbytes
        self._name = name
        self._buffer, self._at = memoryview(b""), 0
        self._usual = b"", b""
        self._scratch = memoryview(bytearray(_READ_NBYTES))
        self._left = 0
        self._begin_part()

    def read_into(self, into: memoryview) -> int:
        """Read some of the next bytes; 0 at the end."""
        filled = 0
        while filled < len(into) and (self._left or self._waiting):
            if not self._left:
                self._begin_part()
            n_wanted = min(self._left, len(into) - filled)
            n_read = self._read_some(into[filled : filled + n_wanted])
            if not n_read:
                break
            self._left -= n_read
            filled += n_read
            if not self._left and not self._waiting:
                self._check_end()
        return filled

    def _check_end(self) -> None:
        """Check the length of the last part: the boundary follows it."""
        end = b"\r\n" + self._delimiter
        rest = bytearray(self._buffer[self._at :])
        while len(rest) < len(end) and (n_come := self._answer.read_into(self._scratch)):
            rest += self._scratch[:n_come]
        self._buffer, self._at = memoryview(bytes(rest)), 0
        if not rest.startswith(end):
            raise ManyRefusedError("the server sent parts of another length than declared", path=self._name)

    def _read_some(self, into: memoryview) -> int:
        n_here = len(self._buffer) - self._at
        if not n_here:
            if len(into) >= _READ_NBYTES:
                return self._answer.read_into(into)
            n_here = self._refill()
        n_read = min(len(into), n_here)
        into[:n_read] = self._buffer[self._at : self._at + n_read]
        self._at += n_read
        return n_read

    def _refill(self) -> int:
        """Read more into the empty buffer, and return how many bytes."""
        n_come = self._answer.read_into(self._scratch)
        self._buffer, self._at = self._scratch[:n_come], 0
        return n_come

    def _begin_part(self) -> None:
        span = self._waiting.popleft()
        if self._skip_usual_head(span):
            return
        head = self._read_head()
        is_part = head.lstrip(b"\r\n").startswith(self._delimiter + b"\r\n")
        found = _find_range(head) if is_part else None
        if found is None or tuple(map(int, found.groups())) != (span.start, span.stop - 1, self._nbytes):
            raise ManyRefusedError("the server sent other ranges than requested", path=self._name)
        self._usual = head[: found.start(1)], head[found.end(3) :]
        self._left = len(span)

    def _skip_usual_head(self, span: ByteRange) -> bool:
        """Skip the head of a part, fast, if it is complete and equals the previous one except for the range."""
        usual = b"%b%d-%d/%d%b" % (self._usual[0], span.start, span.stop - 1, self._nbytes, self._usual[1])
        stop = self._at + len(usual)
        if self._buffer[self._at : stop] != usual:
            return False
        self._at, self._left = stop, len(span)
        return True

    def _read_head(self) -> bytes:
        """Return everything before the data of a part, and keep what came after."""
        head = bytearray(self._buffer[self._at :])
        while (end := head.find(b"\r\n\r\n", 2)) < 0:
            n_come = self._answer.read_into(self._scratch) if len(head) < _MAX_HEAD_NBYTES else 0
            if not n_come:
                raise ManyRefusedError("the server sent ranges without headers", path=self._name)
            head += self._scratch[:n_come]
        self._buffer, self._at = memoryview(bytes(head[end + 4 :])), 0
        return bytes(head[: end + 4])

    def close(self) -> None:
        """Release the connection."""
        self._answer.close()
