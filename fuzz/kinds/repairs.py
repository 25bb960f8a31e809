"""Repairs of checksums, so that a broken file gets past them: what is behind them is read by nobody else.

A structure is summed where the whole file has it, so a repair helps if nothing before it moved.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache
from unittest import mock

from tensorkeep.digests import crc32c, masked
from tensorkeep.errors import TensorkeepError
from tensorkeep.formats.hdf5 import MAGIC, Hdf5File
from tensorkeep.formats.hdf5.structures import Dialect
from tensorkeep.formats.hdf5.structures._checksums import CHECKSUM_NBYTES, lookup3
from tensorkeep.formats.hdf5.structures._reading import Sealed
from tensorkeep.formats.tensorflow import is_table, read_bundle
from tensorkeep.formats.tensorflow._table import TRAILER_NBYTES, _Blocks
from tensorkeep.transport import MemorySource

_structures = re.compile(rb"\x0c\xdb(?:\x3a\x2a|\x20\xde)(.{8})", re.DOTALL).finditer

Summed = list[tuple[int, int]]
"""First byte and size of each structure that a checksum covers."""


def repaired(whole: bytes, broken: bytes) -> bytes:
    """Return a broken file with the checksums of its structures computed again.

    Args:
        whole: The file before it was broken.
        broken: A copy of it that was changed.

    Returns:
        The broken file, with the checksums of all structures that are still in it; itself if it has none.
    """
    data = bytearray(broken)
    sums = (
        (_summed_in_hdf5(whole), _write_lookup3),
        (_summed_in_table(whole), _write_crc32c),
        (_summed_in_database(whole), _write_plain_crc32c),
    )
    for spans, write in sums:
        for start, nbytes in spans:
            if start + nbytes + TRAILER_NBYTES <= len(data):
                write(data, start, nbytes)
    return bytes(data)


def _write_lookup3(data: bytearray, start: int, nbytes: int) -> None:
    stop = start + nbytes - CHECKSUM_NBYTES
    data[stop : stop + CHECKSUM_NBYTES] = lookup3(bytes(data[start:stop])).to_bytes(CHECKSUM_NBYTES, "little")


def _write_crc32c(data: bytearray, start: int, nbytes: int) -> None:
    stop = start + nbytes + 1
    data[stop : stop + 4] = masked(crc32c(bytes(data[start:stop]))).to_bytes(4, "little")


def _write_plain_crc32c(data: bytearray, start: int, nbytes: int) -> None:
    stop = start + nbytes
    data[stop : stop + 4] = crc32c(bytes(data[start:stop])).to_bytes(4, "little")


@cache
def _summed_in_database(whole: bytes) -> Summed:
    """Return the manifest of a database (OCDBT), or the nodes in a data file, without their checksums."""
    found = ((match.start(), int.from_bytes(match[1], "little") - 4) for match in _structures(whole))
    return [(start, nbytes) for start, nbytes in found if 0 < nbytes <= len(whole) - start - 4]


@cache
def _summed_in_hdf5(whole: bytes) -> Summed:
    found: Summed = []
    sealed = Dialect.sealed

    def record(self: Dialect, address: int, nbytes: int, what: str) -> Sealed:
        span = sealed(self, address, nbytes, what)
        found.append((span.start, nbytes))
        return span

    if whole.startswith(MAGIC):
        with mock.patch.object(Dialect, "sealed", record), suppress(TensorkeepError):
            file = Hdf5File(MemorySource(whole))
            file.contents()
            file.raw_attributes()
    return found


@cache
def _summed_in_table(whole: bytes) -> Summed:
    found: Summed = []
    content = _Blocks._content

    def record(self: _Blocks, start: int, nbytes: int) -> bytes:
        found.append((start, nbytes))
        return content(self, start, nbytes)

    source = MemorySource(whole)
    if is_table(source):
        with mock.patch.object(_Blocks, "_content", record), suppress(TensorkeepError):
            read_bundle(source)
    return found
