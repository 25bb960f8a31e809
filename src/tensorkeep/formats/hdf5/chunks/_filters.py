"""The filters of chunks: which there are, and how the bytes of a chunk come back out of them."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tensorkeep.buffers import Buffer
from tensorkeep.digests import Hasher
from tensorkeep.errors import FormatError, IntegrityError, UnsupportedError
from tensorkeep.formats.hdf5.chunks._lzf import MAX_LZF_RATIO, decompress_lzf
from tensorkeep.formats.hdf5.chunks._scaleoffset import HEADER_NBYTES, MAX_ADDED_NBYTES, restore_scaled
from tensorkeep.formats.hdf5.structures import CHECKSUM_NBYTES, FLETCHER32, Fields
from tensorkeep.limits import MAX_DEFLATE_RATIO

DEFLATE: Final = 1
SHUFFLE: Final = 2
FLETCHER: Final = 3
SCALEOFFSET: Final = 6
LZF: Final = 32000
_KNOWN: Final = frozenset((DEFLATE, SHUFFLE, FLETCHER, SCALEOFFSET, LZF))
_MOST_ADDED: Final = {FLETCHER: CHECKSUM_NBYTES, SCALEOFFSET: MAX_ADDED_NBYTES}
"""By how many bytes a filter may make a chunk longer, for those that may."""

_BUILT_IN: Final = 6
"""Up to this number, filters are part of HDF5; it loads others from plugins."""

_NAMES: Final = {
    4: "szip",
    5: "nbit",
    SCALEOFFSET: "scaleoffset",
    305: "lzo",
    307: "bzip2",
    LZF: "lzf",
    32001: "blosc",
    32004: "lz4",
    32008: "bitshuffle",
    32013: "zfp",
    32015: "zstd",
    32017: "sz",
    32019: "fcidecomp",
    32026: "blosc2",
}
_MAX_FILTERS: Final = 32


class Filter(msgspec.Struct, frozen=True):
    """One filter of a pipeline.

    Attributes:
        number: Its registered number.
        name: Its name, for people.
        values: What it was set up with.
    """

    number: int
    name: str
    values: tuple[int, ...]

    @property
    def is_plugin(self) -> bool:
        """Whether HDF5 itself lacks it, and would load a shared library of that number."""
        return self.number > _BUILT_IN


def parse_filters(data: bytes) -> tuple[Filter, ...]:
    """Parse a filter pipeline message: filters in the order in which they were applied."""
    fields = Fields(data)
    version, n_filters = fields.uint(1), fields.uint(1)
    if version not in {1, 2} or n_filters > _MAX_FILTERS:
        raise UnsupportedError("a dataset has filters of a version that is not known", found=str(version))
    fields.skip(6 if version == 1 else 0)
    return tuple(_parse_filter(fields, version) for _ in range(n_filters))


def _parse_filter(fields: Fields, version: int) -> Filter:
    number = fields.uint(2)
    name_nbytes = fields.uint(2) if version == 1 or number > 255 else 0
    fields.skip(2)
    n_values = fields.uint(2)
    name = fields.take(name_nbytes).partition(b"\0")[0].decode(errors="backslashreplace")
    fields.skip(-name_nbytes % 8 if version == 1 else 0)
    values = tuple(fields.uint(4) for _ in range(n_values))
    fields.skip(4 if version == 1 and n_values % 2 else 0)
    return Filter(number, _NAMES.get(number) or name or f"filter {number}", values)


def unknown_filters(filters: tuple[Filter, ...]) -> list[Filter]:
    """Return the filters that cannot be undone here: those that are not known, and any that was applied twice."""
    numbers = [each.number for each in filters]
    return [each for each in filters if each.number not in _KNOWN or numbers.count(each.number) > 1]


def unfilter(data: Buffer, filters: tuple[Filter, ...], left_out: int, nbytes: int) -> Buffer:
    """Return the bytes of a chunk, which must be `nbytes`; bit n of `left_out` says that filter n was not applied."""
    applied = [each for place, each in enumerate(filters) if not left_out >> place & 1]
    n_after = sum(_MOST_ADDED.get(each.number, 0) for each in applied)
    for each in reversed(applied):
        n_after -= _MOST_ADDED.get(each.number, 0)
        if each.number == FLETCHER:
            data = _checked(data)
        elif each.number == DEFLATE:
            data = _inflated(data, nbytes + n_after)
        elif each.number == SCALEOFFSET:
            data = restore_scaled(data, each.values, nbytes)
        elif each.number == LZF:
            data = decompress_lzf(data, nbytes + n_after)
        else:
            data = _unshuffled(data, each.values)
    if len(data) != nbytes:
        raise FormatError(
            "a chunk has another size than its shape", expected=f"{nbytes:,} bytes", found=f"{len(data):,}"
        )
    return data


def _inflated(data: Buffer, max_nbytes: int) -> bytes:
    """Inflate a chunk, which must not become larger than it can be before the filters that were applied earlier."""
    from zlib_ng import zlib_ng

    inflater = zlib_ng.decompressobj()
    failure: Any = zlib_ng.error
    try:
        inflated = inflater.decompress(data, max_nbytes + 1)
    except failure as error:
        raise FormatError("a chunk cannot be inflated", found=str(error)) from None
    if len(inflated) > max_nbytes:
        raise FormatError("a chunk inflates to more than its shape has", expected=f"at most {max_nbytes:,} bytes")
    if not inflater.eof:
        raise FormatError("a chunk ends before its deflated data does")
    return inflated


def _unshuffled(data: Buffer, values: tuple[int, ...]) -> Buffer:
    """Undo what puts the first bytes of all elements first, then their second bytes, and so on."""
    size = values[0] if values else 1
    n_elements = len(data) // size if size else 0
    if size <= 1 or n_elements <= 1:
        return data
    import numpy as np

    whole = n_elements * size
    view = np.frombuffer(data, np.uint8)
    elements: Any = np.empty(len(view), np.uint8)
    rows, columns = elements[:whole].reshape(n_elements, size), view[:whole].reshape(size, n_elements)
    if size > n_elements:
        rows[...] = columns.T
    else:
        for place in range(size):  # NumPy copies a transposed array element by element, three times as slowly
            rows[:, place] = columns[place]
    elements[whole:] = view[whole:]
    return memoryview(elements)


def _checked(data: Buffer) -> Buffer:
    """Check a chunk against the checksum at its end, and return the rest."""
    view = memoryview(data).cast("B")
    if len(view) < CHECKSUM_NBYTES:
        raise FormatError("a chunk is too short for its checksum", found=f"{len(view)} bytes")
    hasher: Hasher = FLETCHER32.new(False)
    hasher.update(view[:-CHECKSUM_NBYTES])
    found, expected = hasher.digest(), bytes(view[-CHECKSUM_NBYTES:])
    if found != expected:
        raise IntegrityError(
            "a chunk does not match its checksum",
            expected=f"Fletcher-32 0x{expected[::-1].hex()}",
            found=f"0x{found[::-1].hex()}",
        )
    return view[:-CHECKSUM_NBYTES]


def min_stored_nbytes(filters: tuple[Filter, ...], nbytes: int) -> int:
    """Return how many bytes of the file a chunk of `nbytes` takes at least."""
    numbers = [each.number for each in filters]
    nbytes = min(nbytes, HEADER_NBYTES) if SCALEOFFSET in numbers else nbytes  # equal elements take no bits
    least = nbytes // MAX_DEFLATE_RATIO if DEFLATE in numbers else nbytes
    least = least // MAX_LZF_RATIO if LZF in numbers else least
    return least + CHECKSUM_NBYTES if numbers and numbers[-1] == FLETCHER else least
