"""What the parse function of a format gives: where each tensor of a file is, and what else the file says. Pure.

A format whose files are a header and ranges of bytes needs nothing more: `tensorkeep.kinds.file_kind` proves that the
ranges are in the file, and makes lazy tensors of them, which are mapped where the bytes can be used as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import prod
from typing import Any

import msgspec

from tensorkeep.dtypes import ALL_BY_NAME, DType
from tensorkeep.errors import DtypeError, FormatError, TensorNotFoundError
from tensorkeep.formats._chunks import Checksum, Chunks
from tensorkeep.formats._strings import StringArray
from tensorkeep.limits import MAX_I64, MAX_LISTED_NDIM
from tensorkeep.transport import ByteSource


class TensorPlace(msgspec.Struct, frozen=True):
    """One tensor of a file.

    Attributes:
        dtype: Name in the table of `tensorkeep.dtypes`, such as `"F32"`; or one that only the format knows, whose
            tensors are listed and cannot be read.
        shape: Elements along each dimension.
        start: Byte of the file at which the first element begins.
        nbytes: Bytes in the file; None for as many as dtype and shape say.
        strides: Elements from one entry of each dimension to the next, none negative; None for C order.
        is_big_endian: Whether elements have their highest byte first.
        source: Where the bytes are, if not in the file: another file, or what a member unpacks to.
        checksum: What the file says of its bytes; None where it says nothing.
        chunks: Where the elements are, if they are in chunks; `start`, `strides`, `is_big_endian`, `source` and
            `checksum` then mean nothing.
    """

    dtype: str
    shape: tuple[int, ...]
    start: int
    nbytes: int | None = None
    strides: tuple[int, ...] | None = None
    is_big_endian: bool = False
    source: ByteSource | None = None
    checksum: Checksum | None = None
    chunks: Chunks | None = None

    @property
    def is_simple(self) -> bool:
        """Whether its elements are the bytes of the file from its start, as many as dtype and shape say."""
        return (
            self.strides is None
            and self.source is None
            and self.nbytes is None
            and self.chunks is None
            and not self.is_big_endian
            and self.dtype in ALL_BY_NAME
            and len(self.shape) <= MAX_LISTED_NDIM
        )

    def checksums(self) -> list[Checksum]:
        """Return what the file says of its bytes, part by part; empty where it says nothing."""
        if self.chunks is not None:
            return self.chunks.checksums()
        return [] if self.checksum is None else [self.checksum]


class UntypedTensor(msgspec.Struct, frozen=True):
    """A tensor whose dtype the file does not name, so that the caller may.

    Attributes:
        what: What the file has instead, for people.
        itemsize: Bytes of one element.
        place: Where it is; its dtype is the format's own name for the bytes.
    """

    what: str
    itemsize: int
    place: TensorPlace

    def __str__(self) -> str:
        return self.what

    def typed(self, name: str, dtype: DType) -> TensorPlace:
        """Return it with a dtype, whose elements must have the same size."""
        if dtype.is_packed or dtype.itemsize != self.itemsize:
            raise DtypeError(
                "the elements do not have the size of this dtype",
                tensor=name,
                expected=f"{self.itemsize} bytes ({self.place.dtype})",
                found=f"{dtype.bits / 8:g} for {dtype.name}",
            )
        return msgspec.structs.replace(self.place, dtype=dtype.name)


class WithoutElements(msgspec.Struct, frozen=True):
    """Something in a file that has no elements, so that nothing is lost without it, such as a second name of a group.

    Attributes:
        what: What it is, for people.
    """

    what: str

    def __str__(self) -> str:
        return self.what


class FileContents(msgspec.Struct, frozen=True):
    """What a file says of itself; `check_ranges` proves that it is possible.

    Attributes:
        tensors: Name to tensor, in the order of the file.
        metadata: Free text by key; None where the format has none.
        attributes: What a header says in types of its own, by key: numbers, bools, texts, bytes, and tuples of them.
        unknowns: Dotted name to each object in the file that is not read; its text says what it is. The dtype of an
            `UntypedTensor` can be given by name.
        strings: Name to each array of strings.
        files: Path to each other file that holds tensors, below the directory of this one.
        pickles: Names of arrays or members that are pickles, which the format's own library would unpickle.
    """

    tensors: Mapping[str, TensorPlace]
    metadata: Mapping[str, str] | None = None
    attributes: Mapping[str, Any] = {}
    unknowns: Mapping[str, Any] = {}
    strings: Mapping[str, StringArray] = {}
    files: Mapping[str, ByteSource] = {}
    pickles: tuple[str, ...] = ()

    def unread(self) -> dict[str, Any]:
        """Return the unknown objects that have elements."""
        return {name: each for name, each in self.unknowns.items() if not isinstance(each, WithoutElements)}

    def check_ranges(self, source: ByteSource) -> None:
        """Refuse shapes that no tensor has, and bytes outside the file or what a member unpacks to."""
        n_own = source.nbytes
        for name, place in self.tensors.items():
            last = n_own - (dense_nbytes(place.dtype, place.shape) or MAX_I64)
            if not (place.is_simple and 0 <= place.start <= last):
                _check_range(name, place, (place.source or source).nbytes)
            sum_ = place.checksum
            if sum_ is not None and sum_.span.stop > (sum_.source or source).nbytes:
                raise FormatError(f"the checksum of tensor `{name}` is of bytes outside the file", tensor=name)

    def with_dtypes(self, dtypes: Mapping[str, DType]) -> FileContents:
        """Return the same contents with dtypes for tensors whose file names none."""
        tensors, unknowns = dict(self.tensors), dict(self.unknowns)
        for name, dtype in dtypes.items():
            untyped = unknowns.pop(name, None)
            if not isinstance(untyped, UntypedTensor):
                raise TensorNotFoundError(f"no tensor without a dtype is called `{name}`", tensor=name)
            tensors[name] = untyped.typed(name, dtype)
        return msgspec.structs.replace(self, tensors=tensors, unknowns=unknowns)


@lru_cache(4096)
def dense_nbytes(dtype: str, shape: tuple[int, ...]) -> int | None:
    """Return the bytes of a tensor that has elements, of whole bytes each; None for any other, and for none."""
    known = ALL_BY_NAME.get(dtype)
    if known is None or known.is_packed or min(shape, default=1) < 1:
        return None
    nbytes = known.nbytes(prod(shape))
    return nbytes if nbytes <= MAX_I64 else None


def _check_range(name: str, place: TensorPlace, nbytes: int) -> None:
    """Refuse a tensor that is not within a source of so many bytes."""
    stop = _stop_of(name, place)
    if stop > nbytes and place.chunks is None:
        raise FormatError(
            f"the file ends before tensor `{name}` does",
            tensor=name,
            expected=f"at least {stop:,} bytes",
            found=f"{nbytes:,}",
            hint="If it was cut off, get it again",
        )


def _stop_of(name: str, place: TensorPlace) -> int:
    """Return the byte after the last element."""
    shape, strides, dtype = place.shape, place.strides, ALL_BY_NAME.get(place.dtype)
    n_elements = prod(shape) if len(shape) <= MAX_LISTED_NDIM else -1
    if not 0 < n_elements <= MAX_I64 or min(shape, default=0) < 0:
        _check_empty(name, shape, n_elements)
    if dtype is None:
        nbytes = place.nbytes or 0
    elif dtype.bits < 8 and n_elements % dtype.n_per_group:
        raise FormatError(f"tensor `{name}` ends within a byte", tensor=name, found=f"{shape} {dtype.name}")
    elif strides is None or not n_elements:
        nbytes = dtype.nbytes(n_elements)
        if place.nbytes is not None and place.nbytes != nbytes:
            raise FormatError(
                f"tensor `{name}` has another size than its dtype and shape say",
                tensor=name,
                expected=f"{nbytes:,} bytes",
                found=f"{place.nbytes:,}",
            )
    elif len(strides) != len(shape) or min(strides, default=0) < 0 or max(strides, default=0) > MAX_I64:
        raise FormatError(f"no tensor has the strides of tensor `{name}`", tensor=name, found=f"{strides!r:.100}")
    else:
        nbytes = dtype.nbytes(1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)))
    if not (0 <= place.start <= MAX_I64 and 0 <= nbytes <= MAX_I64):
        raise FormatError(f"tensor `{name}` is where no file has bytes", tensor=name, found=f"byte {place.start}")
    return place.start + nbytes


def _check_empty(name: str, shape: tuple[int, ...], n_elements: int) -> None:
    """Refuse a shape without elements if a tensor cannot have it, and any other."""
    if n_elements or min(shape) < 0 or max(shape) > MAX_I64:
        raise FormatError(f"no tensor has the shape of tensor `{name}`", tensor=name, found=f"{shape!r:.100}")
