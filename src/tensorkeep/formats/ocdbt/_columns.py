"""The fields of a structure: each is a column of numbers, or of bytes whose lengths came before. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from tensorkeep.errors import FormatError, LimitError
from tensorkeep.formats.protobuf import decode_varints, parse_varint
from tensorkeep.limits import MAX_DATABASE_KEYS, MAX_NAMES_LENGTH

_MAX_NUMBER_NBYTES = 10


class Columns:
    """Reads columns one after another."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def byte(self) -> int:
        """Return a number of one byte."""
        return self.take(1)[0]

    def number(self) -> int:
        """Return a number of variable length."""
        try:
            value, self._at = parse_varint(self._data, self._at)
        except IndexError:
            raise _ends() from None
        return value

    def count(self) -> int:
        """Return how many rows follow: each takes a byte at least."""
        n_rows = self.number()
        if n_rows > len(self._data) - self._at:
            raise _ends()
        return n_rows

    def numbers(self, n_rows: int) -> list[int]:
        """Return numbers of variable length."""
        import numpy as np

        if n_rows <= 0:
            return []
        window = self._data[self._at : self._at + _MAX_NUMBER_NBYTES * n_rows]
        stops = np.flatnonzero(np.frombuffer(window, np.uint8) < 0x80)
        if len(stops) < n_rows:
            raise _ends()
        nbytes = int(stops[n_rows - 1]) + 1
        self._at += nbytes
        found: list[int] = decode_varints(window[:nbytes]).tolist()
        return found

    def take(self, nbytes: int) -> bytes:
        """Return some bytes."""
        stop = self._at + nbytes
        if stop > len(self._data):
            raise _ends()
        found = self._data[self._at : stop]
        self._at = stop
        return found

    def slices(self, lengths: Iterable[int]) -> list[bytes]:
        """Return one piece of bytes for each length."""
        return [self.take(nbytes) for nbytes in lengths]

    def end(self) -> None:
        """Refuse bytes after the last column."""
        if self._at != len(self._data):
            raise FormatError(
                "a structure of the database is longer than its fields",
                expected=f"{self._at:,} bytes",
                found=f"{len(self._data):,}",
            )


def refuse_too_many(n_rows: int, n_common: int) -> None:
    """Refuse more rows than a database has keys, or that are too long with what all of them begin with."""
    if n_rows > MAX_DATABASE_KEYS or n_rows * n_common > MAX_NAMES_LENGTH:
        raise LimitError(
            "a structure of the database has too many rows",
            expected=f"at most {MAX_DATABASE_KEYS:,}, and {MAX_NAMES_LENGTH:,} bytes of names",
            found=f"{n_rows:,}",
        )


def joined_texts(n_shared: list[int], suffixes: list[bytes]) -> list[bytes]:
    """Return texts; each but the first begins with so many bytes of the one before."""
    if sum(n_shared) + sum(map(len, suffixes)) > MAX_NAMES_LENGTH:
        raise LimitError("the names in the database are too long", expected=f"at most {MAX_NAMES_LENGTH:,} bytes")
    found: list[bytes] = []
    last = b""
    for shared, suffix in zip([0, *n_shared], suffixes, strict=False):
        if shared > len(last):
            raise FormatError(
                "a name in the database shares more bytes than the name before it has", found=f"{shared} bytes"
            )
        last = last[:shared] + suffix
        found.append(last)
    return found


def refuse_unordered(keys: Iterable[bytes]) -> None:
    """Refuse keys out of order: a search for one might miss it, and one that is there twice has two values."""
    for before, after in pairwise(keys):
        if not before < after:
            raise FormatError("the keys of the database are not in order", found=f"{after[:100]!r}")


def _ends() -> FormatError:
    return FormatError("a structure of the database ends before its fields do")
