"""Header bytes to entries. Any input gives a `Header` that is correct for its file, or a `HeaderError`.

Why it is fast: msgspec decodes the whole header into typed structs in one call, which checks the JSON
and the types but silently keeps the last of several equal keys. So the colons are counted: the object of one tensor
needs exactly four (name, dtype, shape, data_offsets), hence a text with four per decoded entry has no key twice and
no extra key. Any other text (metadata that does not come first, a colon in a name, an extra field, a mistake) is
read member by member in `_members`, which is slower but exact.

The messages begin with the words of the reference implementation (safetensors 0.8.0), since people search for them.
"""

from __future__ import annotations

from math import prod
from typing import Final, NoReturn

import msgspec

from tensorkeep.buffers import Buffer
from tensorkeep.dtypes import BY_NAME, DType
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import HeaderError
from tensorkeep.formats.safetensors._members import METADATA_KEY, read_members, take_leading_metadata
from tensorkeep.limits import MAX_HEADER_NBYTES, MAX_U64

LENGTH_NBYTES: Final = 8
"""Bytes of the length field at the start of the file: unsigned, little endian."""

_BITS: Final = {name: dtype.bits for name, dtype in BY_NAME.items()}
_COLONS_PER_ENTRY: Final = 4
_INTERRUPTED: Final = "Was a download or copy interrupted? Get the file again"
_decode_entries = msgspec.json.Decoder(dict[str, TensorEntry]).decode


class Header(msgspec.Struct, frozen=True):
    """The header of a file.

    Attributes:
        entries: Name to entry, in the order of the bytes in the file.
        metadata: The file's free text by key, or None if it has none.
        data_start: First byte of the data, counted from the start of the file.
    """

    entries: dict[str, TensorEntry]
    metadata: dict[str, str] | None
    data_start: int

    @property
    def data_nbytes(self) -> int:
        """Bytes of all tensors."""
        return max((entry.data_offsets[1] for entry in self.entries.values()), default=0)


def parse_header_nbytes(prefix: bytes, file_nbytes: int, *, max_header_nbytes: int = MAX_HEADER_NBYTES) -> int:
    """Read the length of the header."""
    if len(prefix) < LENGTH_NBYTES:
        raise HeaderError(
            "header too small", expected="at least 8 bytes", found=f"{file_nbytes} bytes", hint=_INTERRUPTED
        )
    header_nbytes = int.from_bytes(prefix[:LENGTH_NBYTES], "little")
    if header_nbytes > max_header_nbytes:
        raise HeaderError(
            "header too large",
            expected=f"a header of at most {max_header_nbytes:,} bytes",
            found=f"a length field of {header_nbytes:,}",
        )
    missing = LENGTH_NBYTES + header_nbytes - file_nbytes
    if missing > 0:
        raise HeaderError(
            "invalid header length",
            expected=f"a header of {header_nbytes:,} bytes",
            found=f"a file that ends {missing:,} bytes before the header does",
            hint=_INTERRUPTED,
        )
    return header_nbytes


def parse_header(text: Buffer, data_nbytes: int) -> Header:
    """Decode a header and check every rule of the format.

    Unknown dtypes pass: their tensors can be listed and copied, not loaded.
    """
    entries, metadata = _decode_at_once(text) or read_members(_decode_utf8(text))
    return Header(_check_entries(entries, data_nbytes), metadata, LENGTH_NBYTES + len(text))


def _decode_utf8(text: Buffer) -> str:
    try:
        return str(text, "utf-8")
    except UnicodeDecodeError as error:
        raise HeaderError(f"invalid UTF-8 in header: {error.reason} at byte {error.start}") from None


def _decode_at_once(text: Buffer) -> tuple[dict[str, TensorEntry], dict[str, str] | None] | None:
    """Decode a header as every known writer makes it; None if anything in it is unusual."""
    rest, metadata = take_leading_metadata(_decode_utf8(text))  # the whole is freed before `rest` is decoded
    try:
        entries = _decode_entries(rest)
    except (msgspec.MsgspecError, RecursionError):
        return None
    if rest.count(":") != _COLONS_PER_ENTRY * len(entries) or METADATA_KEY in entries:
        return None
    return entries, metadata


def _check_entries(entries: dict[str, TensorEntry], data_nbytes: int) -> dict[str, TensorEntry]:
    """Check that the entries cover the data exactly, and return them in the order of the bytes."""
    end = 0
    bits_of = _BITS
    for entry in entries.values():
        start, stop = entry.data_offsets
        n_bits = prod(entry.shape) * bits_of.get(entry.dtype, 0)
        if start != end or n_bits != (stop - start) << 3 or not n_bits:
            return _check_one_by_one(entries, data_nbytes)
        end = stop
    if end != data_nbytes:
        _refuse_uncovered(end, data_nbytes)
    return entries


def _check_one_by_one(entries: dict[str, TensorEntry], data_nbytes: int) -> dict[str, TensorEntry]:
    """Do the same for entries in any order, empty or of unknown dtypes, and name what is wrong."""
    ordered = dict(sorted(entries.items(), key=lambda item: item[1].data_offsets))
    end = 0
    for name, entry in ordered.items():
        start, stop = entry.data_offsets
        if start != end or stop < start:
            raise HeaderError(
                f"invalid offset for tensor `{name}`",
                tensor=name,
                expected=f"data_offsets that start at {end}",
                found=f"[{start}, {stop}]",
            )
        _check_shape(name, entry)
        if entry.known_dtype is not None:
            _check_nbytes(name, entry, entry.known_dtype)
        end = stop
    if end != data_nbytes:
        _refuse_uncovered(end, data_nbytes)
    return ordered


def _check_shape(name: str, entry: TensorEntry) -> None:
    n_elements = 1
    for extent in entry.shape:
        n_elements *= extent
        if n_elements > MAX_U64:
            _refuse_overflow(name, entry)


def _check_nbytes(name: str, entry: TensorEntry, dtype: DType) -> None:
    n_bits = entry.n_elements * dtype.bits
    if n_bits > MAX_U64:
        _refuse_overflow(name, entry)
    if n_bits % 8:
        raise HeaderError(
            "The slice is slicing for subbytes dtypes, and the slice does not end up at a byte boundary, "
            "this is invalid.",
            tensor=name,
            expected="elements that fill whole bytes",
            found=f"{entry.n_elements} elements of {dtype.bits} bits in tensor `{name}`",
        )
    if n_bits // 8 != entry.nbytes:
        raise HeaderError(
            "invalid shape, data type, or offset for tensor",
            tensor=name,
            expected=f"{n_bits // 8:,} bytes for {entry.dtype} {list(entry.shape)} of tensor `{name}`",
            found=f"data_offsets {list(entry.data_offsets)}, {entry.nbytes:,} bytes",
        )


def _refuse_overflow(name: str, entry: TensorEntry) -> NoReturn:
    raise HeaderError(
        "overflow computing buffer size from shape and/or element type",
        tensor=name,
        found=f"{entry.dtype} {list(entry.shape)} of tensor `{name}`",
    )


def _refuse_uncovered(end: int, data_nbytes: int) -> NoReturn:
    missing = end - data_nbytes
    raise HeaderError(
        "incomplete metadata, file not fully covered",
        expected=f"{end:,} bytes of data, as the header says",
        found=f"{data_nbytes:,}: the file is {_bytes(missing)} short"
        if missing > 0
        else f"{data_nbytes:,}: {_bytes(-missing)} too many at the end",
        hint=_INTERRUPTED if missing > 0 else None,
    )


def _bytes(n: int) -> str:
    return "1 byte" if n == 1 else f"{n:,} bytes"
