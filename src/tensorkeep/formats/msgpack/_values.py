"""What a file consists of besides plain data. Pure."""

from __future__ import annotations

import msgspec

from tensorkeep.transport import ByteRange


class Array(msgspec.Struct, frozen=True, eq=False):
    """An array, or a scalar of NumPy.

    Attributes:
        dtype: NumPy's name of it, such as `"bfloat16"`.
        shape: Elements along each dimension.
        spans: Where its bytes are, in C order; several ranges if it was cut into chunks.
        is_scalar: Whether it was a scalar of NumPy, and not an array without dimensions.
        name: Its dotted name in the file; empty until it has one.
    """

    dtype: str
    shape: tuple[int, ...]
    spans: tuple[ByteRange, ...]
    is_scalar: bool = False
    name: str = ""

    @property
    def nbytes(self) -> int:
        """Size of its elements in the file, in bytes."""
        return sum(map(len, self.spans))


class Extension(msgspec.Struct, frozen=True):
    """An extension that Flax does not write, so that nothing is known of its bytes.

    Attributes:
        code: Its type; -1 is MessagePack's own timestamp.
        span: Where its bytes are.
    """

    code: int
    span: ByteRange

    def __str__(self) -> str:
        what = "a timestamp of MessagePack" if self.code == -1 else f"a MessagePack extension of type {self.code}"
        return f"{what}, {len(self.span):,} bytes"
