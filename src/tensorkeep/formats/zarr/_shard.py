"""The index of a shard: for each chunk in it, in C order, its first byte and how many. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tensorkeep.buffers import Buffer
from tensorkeep.digests import crc32c
from tensorkeep.errors import FormatError, IntegrityError
from tensorkeep.formats.zarr._coding import Shard
from tensorkeep.transport import ByteRange

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ENTRY_NBYTES: Final = 16
_CRC_NBYTES: Final = 4
_ABSENT: Final = 2**64 - 1


def index_span(shard: Shard, n_chunks: int, nbytes: int) -> ByteRange:
    """Return where the index is in a shard of so many bytes."""
    length = _ENTRY_NBYTES * n_chunks + _CRC_NBYTES * shard.has_checksum
    if length > nbytes:
        raise FormatError("a shard is shorter than its index", expected=f"{length:,} bytes", found=f"{nbytes:,}")
    return ByteRange(0, length) if shard.is_index_first else ByteRange(nbytes - length, nbytes)


def parse_index(data: Buffer, shard: Shard, nbytes: int) -> NDArray[Any]:
    """Return the first byte and the length of each chunk in a shard of so many bytes, after checking the checksum."""
    import numpy as np

    body = memoryview(data)
    if shard.has_checksum:
        expected, actual = int.from_bytes(body[-_CRC_NBYTES:], "little"), crc32c(body[:-_CRC_NBYTES])
        body = body[:-_CRC_NBYTES]
        if expected != actual:
            raise IntegrityError(
                "the index of a shard is damaged", expected=f"CRC-32C 0x{expected:08x}", found=f"0x{actual:08x}"
            )
    entries = np.frombuffer(body, "<u8").reshape(-1, 2)
    starts, lengths = entries[:, 0], entries[:, 1]
    is_present = starts != _ABSENT
    if ((lengths > nbytes) | (starts > nbytes - lengths))[is_present].any():
        raise FormatError("the index of a shard refers to bytes outside the shard", found=f"of {nbytes:,} bytes")
    return entries


def chunk_in(entries: NDArray[Any], number: int) -> ByteRange | None:
    """Return the bytes of a chunk within its shard; None if it is not stored."""
    start, nbytes = entries[number].tolist()
    return None if start == _ABSENT else ByteRange(start, start + nbytes)
