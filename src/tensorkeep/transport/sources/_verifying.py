"""A source that checks bytes against their digests while they are read."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from tensorkeep.buffers import Buffer
from tensorkeep.digests import Hasher, new_hasher
from tensorkeep.errors import IntegrityError
from tensorkeep.parallel import parallel_for_each
from tensorkeep.transport.sources._base import ByteRange, ByteSource

_LARGE_NBYTES: Final = 2**27
"""Bytes from which all cores compute one digest together."""

_MAX_BATCH: Final = 16
"""Ranges per task of a thread."""

_MAX_THREADS: Final = 8


class _Checked(msgspec.Struct, frozen=True):
    """A range with a digest."""

    name: str
    span: ByteRange
    digest: bytes


class VerifyingSource:
    """Another source; its ranges with digests are checked when they are read whole, and a mismatch is an error.

    Parts of such ranges are not checked. A mapping is checked once, when it is made; as with any mapping, a
    program that writes to the file can change it later.
    """

    def __init__(self, source: ByteSource, spans: Mapping[str, ByteRange], digests: Mapping[str, bytes]) -> None:
        self.name = source.name
        self.nbytes = source.nbytes
        self.gap_nbytes = source.gap_nbytes
        self._source = source
        self._checked = [_Checked(name, span, digests[name]) for name, span in spans.items() if name in digests]
        self._starts = [checked.span.start for checked in self._checked]

    @property
    def inner(self) -> ByteSource:
        """The wrapped source."""
        return self._source

    def map(self, span: ByteRange) -> tuple[Buffer, int] | None:
        """Map a range, and check it through the mapping."""
        mapping = self._source.map(span)
        if mapping is None:
            return None
        buffer, begin = mapping
        with memoryview(buffer) as whole:
            self._check(whole.cast("B"), begin, self._within(span.start, span.stop))
        return mapping

    def _within(self, start: int, stop: int) -> list[_Checked]:
        """Return the ranges with digests that lie completely inside a range."""
        first = bisect_left(self._starts, start)
        return [
            checked for checked in self._checked[first : bisect_left(self._starts, stop)] if checked.span.stop <= stop
        ]

    def _check(self, data: memoryview, begin: int, checked: list[_Checked]) -> None:
        """Check ranges in memory whose first byte is byte `begin` of the source."""
        batches = [checked[at : at + _MAX_BATCH] for at in range(0, len(checked), _MAX_BATCH)]

        def check(batch: list[_Checked]) -> None:
            for one in batch:
                self._compare(one, data[one.span.start - begin : one.span.stop - begin])

        parallel_for_each(batches, check, n_threads=_n_threads())

    def read(self, span: ByteRange) -> Buffer:
        """Return the bytes of a range, checked."""
        data = bytearray(len(span))
        self.read_into([(span.start, memoryview(data))])
        return data

    def pieces(self, span: ByteRange) -> Iterator[Buffer]:
        """Yield the bytes of a range, unchecked: callers compute digests of them."""
        return self._source.pieces(span)

    def read_into(self, parts: Iterable[tuple[int, memoryview]]) -> None:
        """Fill buffers, and check them."""
        kept = [(start, into.cast("B")) for start, into in parts]
        self._source.read_into(kept)
        for start, into in kept:
            self._check(into, start, self._within(start, start + len(into)))

    def _compare(self, checked: _Checked, data: memoryview) -> None:
        hasher = new_hasher(parallel=len(data) >= _LARGE_NBYTES)
        hasher.update(data)
        _require_digest(hasher, checked, self.name)

    def in_order(self, span: ByteRange) -> CheckedRange | None:
        """Return a range to be read piece by piece, and checked at its end; None if it has no digest."""
        within = self._within(span.start, span.stop)
        return CheckedRange(self._source, within[0]) if [checked.span for checked in within] == [span] else None

    def close(self) -> None:
        """Close the wrapped source."""
        self._source.close()


class CheckedRange:
    """A range that is read in order, in pieces, and whose digest is checked with the last one."""

    def __init__(self, source: ByteSource, checked: _Checked) -> None:
        self._source = source
        self._checked = checked
        self._position = checked.span.start
        self._hasher = new_hasher()

    def read_into(self, into: memoryview) -> None:
        """Fill a buffer with the next bytes of the range; IntegrityError if these are the last and it is damaged."""
        self._source.read_into([(self._position, into)])
        self._hasher.update(into)
        self._position += len(into)
        if self._position == self._checked.span.stop:
            _require_digest(self._hasher, self._checked, self._source.name)


def _require_digest(hasher: Hasher, checked: _Checked, path: str) -> None:
    """Refuse bytes that do not have their digest."""
    if hasher.digest() != checked.digest:
        raise IntegrityError(
            f"the bytes of tensor `{checked.name}` are not those that were saved",
            path=path,
            tensor=checked.name,
            expected=f"digest {checked.digest.hex()[:16]}…",
            found=f"{hasher.digest().hex()[:16]}…",
            hint=f"tensorkeep verify {path} lists everything",
        )


def _n_threads() -> int:
    return min(_MAX_THREADS, os.cpu_count() or 1)
