"""The header of a `ByteSource`; errors name the file, and its format if it is another one."""

from __future__ import annotations

import os
from typing import Final

from tensorkeep.errors import HeaderError, IntegrityError, UnsupportedError
from tensorkeep.formats._sniff import SNIFF_NBYTES, Sniffed, sniff
from tensorkeep.formats.safetensors._parse import LENGTH_NBYTES, Header, parse_header, parse_header_nbytes
from tensorkeep.formats.safetensors._seal import Seal, may_have_seal, parse_seal
from tensorkeep.limits import MAX_HEADER_NBYTES
from tensorkeep.transport import ByteRange, ByteSource

_READ: Final = "safetensors, PyTorch, GGUF, NumPy, HDF5 or another known format"


def read_seal(source: ByteSource, header: Header, head: bytes | None = None) -> Seal | None:
    """Read the digests of a file, and check that its header is the one that was written."""
    if not may_have_seal(header):
        return None
    try:
        return parse_seal(head or source.read(ByteRange(0, header.data_start)), header)
    except (IntegrityError, UnsupportedError) as error:
        raise error.with_fields(path=source.name) from None


def read_header(
    source: ByteSource,
    *,
    max_header_nbytes: int = MAX_HEADER_NBYTES,
    prefix: str = "Error while deserializing header: ",
) -> Header:
    """Read and check the header of a file."""
    return read_head(source, max_header_nbytes=max_header_nbytes, prefix=prefix)[1]


def read_head(
    source: ByteSource,
    *,
    max_header_nbytes: int = MAX_HEADER_NBYTES,
    prefix: str = "Error while deserializing header: ",
) -> tuple[bytes, Header]:
    """Read everything before the data of a file, and check the header in it."""
    try:
        length = bytes(source.read(ByteRange(0, min(LENGTH_NBYTES, source.nbytes))))
        header_nbytes = parse_header_nbytes(length, source.nbytes, max_header_nbytes=max_header_nbytes)
        data_start = LENGTH_NBYTES + header_nbytes
        head = b"".join((length, source.read(ByteRange(LENGTH_NBYTES, data_start))))
        return head, parse_header(memoryview(head)[LENGTH_NBYTES:], source.nbytes - data_start)
    except HeaderError as error:
        raise HeaderError(**_explained(error, source, prefix)) from None


def _explained(error: HeaderError, source: ByteSource, prefix: str) -> dict[str, str | None]:
    """Return the error's fields, with what is known about the file."""
    fields = error.fields() | {"message": prefix + error.message, "path": source.name}
    head = bytes(source.read(ByteRange(0, min(SNIFF_NBYTES, source.nbytes))))
    sniffed = sniff(head)
    if sniffed is None and _is_foreign(head, source.nbytes):
        found = f"a file of no format that tensorkeep reads, which begins with {head[:8]!r}"
        sniffed = Sniffed(found, "Convert it with the program that wrote it, or get the file again")
    if sniffed is None:
        return fields
    if not sniffed.is_read and _is_named_otherwise(source.name):
        fields |= {"message": "not a file of tensors", "expected": _READ}
    else:
        fields |= {"expected": "a safetensors file"}
    return fields | {"found": sniffed.what, "hint": sniffed.hint}


def _is_named_otherwise(name: str) -> bool:
    """Say whether a name has the suffix of another format: then the words of safetensors would mislead."""
    return os.path.splitext(name)[1].lower() not in {"", ".safetensors"}


def _is_foreign(head: bytes, nbytes: int) -> bool:
    """Say whether a file begins neither with a length that a header in it could have, nor with a header after it."""
    stop = LENGTH_NBYTES + int.from_bytes(head[:LENGTH_NBYTES], "little")
    return stop > nbytes and len(head) > LENGTH_NBYTES and head[LENGTH_NBYTES:].lstrip()[:1] != b"{"
