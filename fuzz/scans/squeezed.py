"""Files compressed as a whole, by every method that joblib and `tarfile` recognize."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable

from fuzz.scans.chance import Chance

__all__ = ["squeezed"]


def _zfile(chance: Chance, data: bytes) -> bytes:
    """Return the form of joblib before 0.10."""
    length = hex(len(data)).encode()
    return b"ZF" + length.ljust(19) + chance.choice((b"", b" ")) + zlib.compress(data)


def _zlib(chance: Chance, data: bytes) -> bytes:
    pressed = zlib.compressobj(chance.randrange(10), zlib.DEFLATED, chance.choice((15, 15, 14, 9)))
    return pressed.compress(data) + pressed.flush()


def _gzip(chance: Chance, data: bytes) -> bytes:
    return chance.choice((b"", b"", gzip.compress(b"", mtime=0))) + gzip.compress(data, chance.randrange(10), mtime=0)


def _bz2(chance: Chance, data: bytes) -> bytes:
    return chance.choice((b"", b"", bz2.compress(b""))) + bz2.compress(data, chance.choice((1, 9)))


def _lzma(chance: Chance, data: bytes) -> bytes:
    """Return the old form, whose first bytes are its settings."""
    size = chance.choice((2**12, 2**16, 2**20, 2**23, 3 * 2**15, 4097))
    settings = {"id": lzma.FILTER_LZMA1, "dict_size": size}
    if chance.often(0.3):
        settings |= {"lc": chance.randrange(4), "lp": chance.randrange(2), "pb": chance.randrange(5)}
    return lzma.compress(data, lzma.FORMAT_ALONE, filters=[settings])


def _xz(chance: Chance, data: bytes) -> bytes:
    check = chance.choice((lzma.CHECK_CRC64, lzma.CHECK_NONE, lzma.CHECK_CRC32))
    return lzma.compress(data, lzma.FORMAT_XZ, check, preset=0)


def _skippable(chance: Chance, data: bytes) -> bytes:
    """Return a skippable frame of Zstandard and LZ4, before the data or around it."""
    filler = chance.choice((b"", bytes(5), data))
    frame = (0x184D2A50 + chance.randrange(16)).to_bytes(4, "little") + len(filler).to_bytes(4, "little") + filler
    return frame + chance.choice((b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"")) + data


METHODS: tuple[Callable[[Chance, bytes], bytes], ...] = (_zfile, _zlib, _gzip, _bz2, _lzma, _xz, _skippable)


def squeezed(chance: Chance, data: bytes) -> bytes:
    """Return data compressed by any method."""
    method = chance.choice(METHODS)
    chance.note(f"compressed: {method.__name__[1:]}")
    return method(chance, data)
