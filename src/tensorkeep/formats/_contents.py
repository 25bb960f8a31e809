"""What the parse function of a format gives: where each tensor of a file is, and what else the file says. Pure.

A format whose files are a header and ranges of bytes needs nothing more: `tensorkeep.kinds.file_kind` makes lazy
tensors of it, which are mapped where the bytes can be used as they are, and checks of its checksums.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tensorkeep.digests import Algorithm
from tensorkeep.dtypes import DType
from tensorkeep.errors import DtypeError, TensorNotFoundError
from tensorkeep.transport import ByteRange, ByteSource


class Checksum(msgspec.Struct, frozen=True):
    """The checksum of a range of bytes.

    Attributes:
        algorithm: What they are summed with.
        expected: The checksum that they should have.
        span: Which bytes of the file, half-open.
        source: Where the bytes are, if not in the file as it lies there, such as what a member unpacks to.
    """

    algorithm: Algorithm
    expected: bytes
    span: ByteRange
    source: ByteSource | None = None


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
    """

    dtype: str
    shape: tuple[int, ...]
    start: int
    nbytes: int | None = None
    strides: tuple[int, ...] | None = None
    is_big_endian: bool = False
    source: ByteSource | None = None
    checksum: Checksum | None = None


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


class FileContents(msgspec.Struct, frozen=True):
    """What a file says of itself. Its parse function has checked that all ranges lie inside their sources.

    Attributes:
        tensors: Name to tensor, in the order of the file.
        metadata: Free text by key; None where the format has none.
        unknowns: Dotted name to each object in the file that is not read; its text says what it is. The dtype of an
            `UntypedTensor` can be given by name.
        data_start: Byte at which the data begins; 0 where it is not in one piece.
    """

    tensors: Mapping[str, TensorPlace]
    metadata: Mapping[str, str] | None = None
    unknowns: Mapping[str, Any] = {}
    data_start: int = 0

    def with_dtypes(self, dtypes: Mapping[str, DType]) -> FileContents:
        """Return the same contents with dtypes for tensors whose file names none."""
        tensors, unknowns = dict(self.tensors), dict(self.unknowns)
        for name, dtype in dtypes.items():
            untyped = unknowns.pop(name, None)
            if not isinstance(untyped, UntypedTensor):
                raise TensorNotFoundError(f"no tensor without a dtype is called `{name}`", tensor=name)
            tensors[name] = untyped.typed(name, dtype)
        return msgspec.structs.replace(self, tensors=tensors, unknowns=unknowns)
