"""The index: which tensors a file holds, and where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from tensorkeep.collector import PausedCollector
from tensorkeep.dtypes import ALL_BY_NAME, BY_TORCH
from tensorkeep.errors import FormatError, LimitError, UnsupportedError
from tensorkeep.formats._contents import FileContents, TensorPlace
from tensorkeep.formats.tensorizer._bytes import Cursor, name_of
from tensorkeep.limits import MAX_HEADER_NBYTES
from tensorkeep.transport import ByteRange, ByteSource

MAGIC: Final = b"|TZR|"
_HEAD_NBYTES: Final = 73
"""Magic, version (4 bytes), flags (32), total size (8), 8 unused bytes, number of tensors (8), size of index (8)."""

_FIRST_NBYTES: Final = _HEAD_NBYTES + 2**18
"""What is read first: tensorizer reserves 256 KiB for the index of any file with fewer tensors than fill it."""

_MIN_ENTRY_NBYTES: Final = 31
_NEWEST: Final = 5
_ALWAYS_ENCRYPTED: Final = 3
_FIRST_WITH_FLAGS: Final = 4
_IS_ENCRYPTED, _IS_VERSIONED = 1, 2
_DTYPES: Final = {
    "b1": "BOOL",
    "f2": "F16",
    "f4": "F32",
    "f8": "F64",
    "c8": "C64",
    "c16": "C128",
    **{f"{sign.lower()}{nbytes}": f"{sign}{8 * nbytes}" for sign in "IU" for nbytes in (1, 2, 4, 8)},
}
"""NumPy's codes without byte order."""

_TORCH_NAMES: Final = {**BY_TORCH, "complex32": ALL_BY_NAME["C32"]}


class StoredTensor(msgspec.Struct, frozen=True):
    """One tensor in the index.

    Attributes:
        path: Its name as the file writes it.
        dtype: Its dtype as the file writes it.
        shape: Elements along each dimension.
        extent_code: The type of an extent in its header: `I` for 4 bytes, `Q` for 8.
        header: The bytes of its header in the file, which end where its elements begin.
        nbytes: Bytes of its elements.
    """

    path: bytes
    dtype: str
    shape: tuple[int, ...]
    extent_code: str
    header: ByteRange
    nbytes: int


class TensorizerContents(FileContents, frozen=True):
    """What a file holds.

    Attributes:
        stored: Name to tensor as the index has it.
        empty: Names of tensors without elements (device meta), which tensorizer fills with zeros.
    """

    stored: Mapping[str, StoredTensor] = {}
    empty: tuple[str, ...] = ()


def parse_tensorizer(source: ByteSource) -> TensorizerContents:
    """Read the index of a file."""
    first = bytes(source.read(ByteRange(0, min(_FIRST_NBYTES, source.nbytes))))
    if len(first) < _HEAD_NBYTES or not first.startswith(MAGIC):
        raise FormatError("not a file of tensorizer", expected=f"{MAGIC!r} and an index", found=f"{first[:5]!r}")
    head = Cursor(first, "the file")
    head.take(len(MAGIC))
    version, flags = head.number("I"), int.from_bytes(head.take(32), "little")
    _refuse_version(version, flags)
    head.take(16)
    n_tensors, index_nbytes = head.number("Q"), head.number("Q")
    if index_nbytes > MAX_HEADER_NBYTES:
        raise LimitError(
            "the index is too large", expected=f"at most {MAX_HEADER_NBYTES:,}", found=f"{index_nbytes:,}"
        )
    stop = _HEAD_NBYTES + index_nbytes
    if stop > source.nbytes or n_tensors * _MIN_ENTRY_NBYTES > index_nbytes:
        found = f"{index_nbytes:,} bytes of index for {n_tensors:,} tensors in {source.nbytes:,} bytes"
        raise FormatError(
            "the index cannot be as large as it says", found=found, hint="If it was cut off, get it again"
        )
    rest = bytes(source.read(ByteRange(len(first), stop))) if stop > len(first) else b""
    with PausedCollector():
        return _contents((first + rest)[_HEAD_NBYTES:stop], n_tensors, stop, is_versioned=bool(flags & _IS_VERSIONED))


def _refuse_version(version: int, flags: int) -> None:
    if not 1 <= version <= _NEWEST:
        raise UnsupportedError(
            "a version of tensorizer's format that is not known", expected=f"1 to {_NEWEST}", found=f"{version:,}"
        )
    if version == _ALWAYS_ENCRYPTED or (version >= _FIRST_WITH_FLAGS and flags & _IS_ENCRYPTED):
        raise UnsupportedError(
            "the tensors are encrypted",
            hint="Decrypt the file with tensorizer and its key, and save it without encryption",
        )
    known = _IS_VERSIONED if version == _NEWEST else 0
    if flags & ~known and version >= _FIRST_WITH_FLAGS:
        raise UnsupportedError("the file uses features that are not known", found=f"flags {flags:#x}")


def _contents(index: bytes, n_tensors: int, start: int, *, is_versioned: bool) -> TensorizerContents:
    tensors: dict[str, TensorPlace] = {}
    unknowns: dict[str, str] = {}
    stored: dict[str, StoredTensor] = {}
    empty: list[str] = []
    for name, tensor in _entries(Cursor(index, "the index"), n_tensors, is_versioned=is_versioned):
        if name in stored:
            raise FormatError(f"two tensors are called `{name}`", tensor=name)
        stored[name] = tensor
        dtype, is_big_endian = _dtype_of(tensor.dtype)
        if dtype is None:
            unknowns[name] = f"a tensor of dtype {tensor.dtype!r:.100}"
        elif not tensor.nbytes and 0 not in tensor.shape:
            empty.append(name)
        else:
            place = TensorPlace(dtype, tensor.shape, tensor.header.stop, tensor.nbytes, is_big_endian=is_big_endian)
            tensors[name] = place
    _refuse_overlaps(stored, start)
    return TensorizerContents(tensors, unknowns=unknowns, stored=stored, empty=tuple(empty))


def _entries(index: Cursor, n_tensors: int, *, is_versioned: bool) -> Iterator[tuple[str, StoredTensor]]:
    for _ in range(n_tensors):
        version = index.number("I") if is_versioned else 1
        if version not in {1, _NEWEST}:
            raise UnsupportedError("a version of the index that is not known", found=f"{version:,}")
        code = "Q" if version == _NEWEST else "I"
        path, _ = index.counted("H"), index.number("B")
        dtype, shape = index.counted("B"), index.shape(code)
        header_start, start, nbytes = index.number("Q"), index.number("Q"), index.number("Q")
        name = name_of(path)
        if header_start > start:
            raise FormatError(f"tensor `{name}` begins before its header", tensor=name)
        header = ByteRange(header_start, start)
        yield name, StoredTensor(path, dtype.decode("latin-1"), shape, code, header, nbytes)


def _dtype_of(text: str) -> tuple[str | None, bool]:
    """Return the dtype, None if it is not known, and whether the highest byte comes first."""
    code, separator, torch_name = text.partition("\0")
    if separator:
        dtype = _TORCH_NAMES.get(torch_name.removeprefix("torch."))
        is_whole = dtype is not None and not dtype.is_packed
        return (dtype.name if dtype is not None and is_whole else None), code.startswith(">")
    return _DTYPES.get(code[1:]) if code[:1] in {"<", ">", "|", "="} else None, code.startswith(">")


def _refuse_overlaps(stored: Mapping[str, StoredTensor], start: int) -> None:
    """Refuse tensors that share bytes with others, or with the index."""
    stop = start
    for name, tensor in sorted(stored.items(), key=lambda item: (item[1].header.start, item[1].header.stop)):
        if tensor.header.start < stop:
            raise FormatError(
                f"tensor `{name}` overlaps another one, or the index",
                tensor=name,
                expected=f"byte {stop:,} or later",
                found=f"{tensor.header.start:,}",
            )
        stop = tensor.header.stop + tensor.nbytes
