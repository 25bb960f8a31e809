"""The two checksums of HDF5: Jenkins' lookup3 over metadata, and Fletcher's over the chunks of a dataset. Pure."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

from tensorkeep.buffers import Buffer
from tensorkeep.digests import Algorithm
from tensorkeep.errors import IntegrityError

CHECKSUM_NBYTES: Final = 4

_MASK: Final = 0xFFFFFFFF
_START: Final = 0xDEADBEEF
_WORTH_NUMPY: Final = 8
"""Texts of one length from which NumPy mixes them faster together."""

_MODULUS: Final = 65535
_N_WORDS: Final = 2**16
"""Words that Fletcher's sums add up at once: 2^16 products of two 16-bit numbers fit in 64 bits."""


def check_metadata(structures: Iterable[tuple[bytes, str]]) -> None:
    """Refuse structures whose last four bytes are not the checksum of the others; a text says what each is."""
    by_length: dict[int, list[tuple[bytes, str]]] = defaultdict(list)
    for data, what in structures:
        by_length[len(data)].append((data, what))
    for nbytes, alike in by_length.items():
        texts = [data for data, _ in alike]
        sums = lookup3_of_all(texts, nbytes - CHECKSUM_NBYTES)
        for (data, what), found in zip(alike, sums, strict=True):
            refuse_unequal(what, int.from_bytes(data[-CHECKSUM_NBYTES:], "little"), found)


def refuse_unequal(what: str, expected: int, found: int) -> None:
    """Refuse a structure with another checksum than it should have."""
    if found != expected:
        raise IntegrityError(
            f"{what} of the file is damaged", expected=f"checksum {expected:#010x}", found=f"{found:#010x}"
        )


def lookup3_of_all(texts: list[bytes], nbytes: int) -> list[int]:
    """Return the lookup3 of the first `nbytes` bytes of each text; all of a length."""
    if len(texts) < _WORTH_NUMPY or not nbytes:
        return [lookup3(text[:nbytes]) for text in texts]
    import numpy as np

    n_words = 3 * -(-nbytes // 12)
    padding = bytes(4 * n_words - nbytes)
    joined = b"".join([text[:nbytes] + padding for text in texts])
    words = np.ascontiguousarray(np.frombuffer(joined, "<u4").reshape(len(texts), n_words).T)
    with np.errstate(over="ignore"):
        mixed: list[int] = _lookup3(words, np.full(len(texts), (_START + nbytes) & _MASK, np.uint32)).tolist()
    return mixed


def lookup3(data: bytes) -> int:
    """Return Jenkins' lookup3 of some bytes, as `hashlittle` computes it from 0."""
    nbytes = len(data)
    if not nbytes:
        return _START
    n_words = 3 * -(-nbytes // 12)
    words = struct.unpack(f"<{n_words}I", data.ljust(4 * n_words, b"\0"))
    return int(_lookup3(words, (_START + nbytes) & _MASK))


def _lookup3(words: Any, start: Any) -> Any:
    """Mix words, three at a time: numbers, or arrays with one number for each of several texts."""
    a = b = c = start
    for at in range(0, len(words) - 3, 3):
        a, b, c = a + words[at] & _MASK, b + words[at + 1] & _MASK, c + words[at + 2] & _MASK
        a = (a - c & _MASK) ^ (c << 4 & _MASK | c >> 28)
        c = c + b & _MASK
        b = (b - a & _MASK) ^ (a << 6 & _MASK | a >> 26)
        a = a + c & _MASK
        c = (c - b & _MASK) ^ (b << 8 & _MASK | b >> 24)
        b = b + a & _MASK
        a = (a - c & _MASK) ^ (c << 16 & _MASK | c >> 16)
        c = c + b & _MASK
        b = (b - a & _MASK) ^ (a << 19 & _MASK | a >> 13)
        a = a + c & _MASK
        c = (c - b & _MASK) ^ (b << 4 & _MASK | b >> 28)
        b = b + a & _MASK
    a, b, c = a + words[-3] & _MASK, b + words[-2] & _MASK, c + words[-1] & _MASK
    c = (c ^ b) - _turned(b, 14) & _MASK
    a = (a ^ c) - _turned(c, 11) & _MASK
    b = (b ^ a) - _turned(a, 25) & _MASK
    c = (c ^ b) - _turned(b, 16) & _MASK
    a = (a ^ c) - _turned(c, 4) & _MASK
    b = (b ^ a) - _turned(a, 14) & _MASK
    return (c ^ b) - _turned(b, 24) & _MASK


def _turned(word: Any, by: int) -> Any:
    return (word << by | word >> 32 - by) & _MASK


class _Fletcher32:
    """Fletcher's sums of big-endian 16-bit words, modulo 65535."""

    def __init__(self) -> None:
        self._first = self._second = 0
        self._odd = b""
        self._is_zero = True

    def update(self, data: Buffer, /) -> None:
        view = memoryview(data).cast("B")
        if self._odd:
            self._add(self._odd + bytes(view[:1]))
            view = view[1:]
        whole = len(view) & ~1
        self._odd = bytes(view[whole:])
        for start in range(0, whole, 2 * _N_WORDS):
            self._add(view[start : min(start + 2 * _N_WORDS, whole)])

    def _add(self, data: Buffer) -> None:
        import numpy as np

        words: Any = np.frombuffer(data, ">u2").astype(np.uint64)
        total = int(words.sum())
        weights: Any = np.arange(len(words), 0, -1, dtype=np.uint64)
        self._second = (self._second + len(words) * self._first + int(words @ weights)) % _MODULUS
        self._first = (self._first + total) % _MODULUS
        self._is_zero = self._is_zero and not total

    def digest(self) -> bytes:
        if self._odd:
            self._add(self._odd + b"\0")
            self._odd = b""
        # the library folds carries back in, so that a sum of anything but zeros never becomes 0
        first, second = (0 if self._is_zero else part or _MODULUS for part in (self._first, self._second))
        return (second << 16 | first).to_bytes(CHECKSUM_NBYTES, "little")


FLETCHER32: Final = Algorithm("Fletcher-32", lambda _: _Fletcher32())
"""What HDF5 may have of each chunk; its 4 bytes are little-endian, as in the file."""
