"""Entries to header bytes: byte for byte what the reference (safetensors 0.8.0) writes for the same tensors.

One thing differs where the reference leaves it to chance: metadata keys are sorted, so that equal input gives equal
bytes.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

import msgspec

from tensorkeep.dtypes import DType
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import HeaderError, LimitError
from tensorkeep.formats.safetensors._arrangement import ALIGNMENT_NBYTES, PLAIN, Arrangement
from tensorkeep.formats.safetensors._members import METADATA_KEY
from tensorkeep.formats.safetensors._parse import LENGTH_NBYTES
from tensorkeep.limits import MAX_HEADER_NBYTES, MAX_I64


def lay_out(
    tensors: Mapping[str, tuple[DType, tuple[int, ...], int]], arrangement: Arrangement = PLAIN
) -> dict[str, TensorEntry]:
    """Assign each tensor its place, one right after the other."""
    _refuse_reserved(tensors)
    entries = {}
    start = 0
    for name in arrangement.in_order(tensors):
        dtype, shape, nbytes = tensors[name]
        entries[name] = TensorEntry(dtype.name, shape, (start, start + nbytes))
        start += nbytes
    if start > MAX_I64:
        raise LimitError("a file would be too large", expected=f"at most {MAX_I64:,} bytes", found=f"{start:,}")
    return entries


def emit_header(
    entries: Mapping[str, TensorEntry],
    metadata: Mapping[str, str] | None = None,
    *,
    room: int = 0,
    align: int = ALIGNMENT_NBYTES,
) -> bytes:
    """Encode everything before the data: length field, header and padding."""
    _refuse_reserved(entries)
    fields: dict[str, object] = {}
    if metadata is not None:
        check_is_text(metadata)
        fields[METADATA_KEY] = dict(sorted(metadata.items()))
    fields.update(entries)
    try:
        header = msgspec.json.encode(fields)
    except UnicodeEncodeError as error:
        raise HeaderError(
            "a name or metadata text has no UTF-8 form", found=ascii(error.object), hint="Remove lone surrogates"
        ) from None
    if len(header) > MAX_HEADER_NBYTES:
        n_metadata = sum(len(key) + len(text) for key, text in (metadata or {}).items())
        raise LimitError(
            "header too large",
            expected=f"at most {MAX_HEADER_NBYTES:,} bytes",
            found=f"{len(header):,} bytes: {len(entries):,} tensors and {n_metadata:,} characters of metadata",
            hint="Save less metadata" if 2 * n_metadata > len(header) else "Save fewer tensors in one file",
        )
    spare = room - LENGTH_NBYTES - len(header)
    padding = spare if spare >= 0 else -(LENGTH_NBYTES + len(header)) % align
    return (len(header) + padding).to_bytes(LENGTH_NBYTES, "little") + header + b" " * padding


def check_is_text(metadata: Mapping[str, str]) -> None:
    """Check that metadata maps str to str."""
    if not isinstance(metadata, Mapping):
        raise TypeError(f"metadata must be a mapping of str to str, not {type(metadata).__name__}")
    for key, text in metadata.items():
        if not (isinstance(key, str) and isinstance(text, str)):
            raise TypeError(
                f"metadata must map str to str, not {type(key).__name__} to {type(text).__name__}: {key!r:.100};"
                " convert it with str(...)"
            )


def _refuse_reserved(names: Container[str]) -> None:
    if METADATA_KEY in names:
        raise HeaderError(f"`{METADATA_KEY}` cannot be the name of a tensor", tensor=METADATA_KEY)
