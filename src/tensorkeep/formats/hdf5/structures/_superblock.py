"""The superblock: where a file begins, how long its addresses are, and where the root group is. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from tensorkeep.errors import FormatError, UnsupportedError
from tensorkeep.formats.hdf5.structures._checksums import check_metadata
from tensorkeep.formats.hdf5.structures._fields import Fields
from tensorkeep.formats.hdf5.structures._reading import Dialect, Parsing
from tensorkeep.transport import ByteRange

MAGIC: Final = b"\x89HDF\r\n\x1a\n"
"""First bytes of the superblock."""

_FIRST_START: Final = 512
_NBYTES: Final = 128
"""Bytes of the longest superblock, and some more."""

_SIZES: Final = frozenset((2, 4, 8))


class Superblock(msgspec.Struct, frozen=True):
    """What the superblock says.

    Attributes:
        version: Its version, 0 to 3.
        dialect: What every structure depends on.
        root: Address of the header of the root group.
    """

    version: int
    dialect: Dialect
    root: int


def find_superblock(nbytes: int) -> Parsing[int | None]:
    """Return where the superblock is: at 0, or after a block of the user's of 512, 1,024, 2,048 … bytes."""
    start = 0
    while start + len(MAGIC) <= nbytes:
        if (yield [ByteRange(start, start + len(MAGIC))])[0] == MAGIC:
            return start
        start = 2 * start or _FIRST_START
    return None


def parse_superblock(nbytes: int) -> Parsing[Superblock]:
    """Find and read the superblock of a file of `nbytes` bytes."""
    start = yield from find_superblock(nbytes)
    if start is None:
        raise FormatError("not an HDF5 file", expected="\\x89HDF at byte 0, 512, 1,024, 2,048 …")
    return _parse((yield [ByteRange(start, min(start + _NBYTES, nbytes))])[0], start, nbytes)


def _parse(head: bytes, start: int, nbytes: int) -> Superblock:
    fields = Fields(head, len(MAGIC))
    version = fields.uint(1)
    if version > 3:
        raise UnsupportedError(
            "the file has a superblock of a version that is not known", expected="0 to 3", found=str(version)
        )
    is_old = version < 2
    fields.skip(4 if is_old else 0)
    address_nbytes, length_nbytes = fields.uint(1), fields.uint(1)
    if not {address_nbytes, length_nbytes} <= _SIZES:
        raise UnsupportedError(
            "the file has addresses or lengths of a size that is not known",
            expected="2, 4 or 8 bytes",
            found=f"{address_nbytes} and {length_nbytes}",
        )
    dialect = Dialect(start, nbytes - start, address_nbytes, length_nbytes)
    # flags and, in old ones, the numbers of entries in nodes of trees, whose nodes say so themselves
    fields.skip(1 if not is_old else 9 if version == 0 else 13)
    base = fields.uint(address_nbytes)
    dialect.address(fields)  # of the free space, or of an extension with nothing that reading needs
    end = dialect.address(fields)
    driver = dialect.address(fields) if is_old else None
    if is_old:
        fields.skip(length_nbytes)
    root = dialect.address(fields)
    if not is_old:
        check_metadata([(head[: fields.position + 4], "the superblock")])
    if driver is not None:
        raise UnsupportedError("the file is one part of an HDF5 file in several files")
    if root is None or end is None:
        raise FormatError("the superblock names no root group, or no end of the file")
    size = end - (base if end >= base else 0)
    if size > dialect.nbytes:
        raise FormatError(
            "the file is cut off", expected=f"{start + size:,} bytes", found=f"{nbytes:,}", hint="Get it again"
        )
    return Superblock(version, dialect, root)
