"""Where tensors go in a file: the order of their data, and the multiples of bytes at which they begin. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import translate
from typing import Final

import msgspec

from tensorkeep.dtypes import DType
from tensorkeep.errors import UnsupportedError

ALIGNMENT_NBYTES: Final = 8
"""The data starts at a multiple of this, unless a larger one is asked for; the header is padded with spaces."""

MAX_ALIGNMENT_NBYTES: Final = 4096
"""The largest that can be asked for: a page."""


class Arrangement(msgspec.Struct, frozen=True):
    """Where tensors go: by default as the reference puts them, wide dtypes first, by name within a dtype.

    Otherwise tensors whose size is not a multiple of the alignment come last, so that all others are aligned.

    Attributes:
        align: Bytes.
        order: Shell patterns for whole names: what matches the first comes first, and so on; the others follow.
    """

    align: int = ALIGNMENT_NBYTES
    order: tuple[str, ...] = ()

    @classmethod
    def of(cls, align: int = ALIGNMENT_NBYTES, order: Sequence[str] | None = None) -> Arrangement:
        """Return what the arguments of a save ask for, or refuse them."""
        if type(align) is not int or not ALIGNMENT_NBYTES <= align <= MAX_ALIGNMENT_NBYTES or align & (align - 1):
            raise UnsupportedError(
                "an alignment is impossible",
                expected=f"a power of two from {ALIGNMENT_NBYTES} to {MAX_ALIGNMENT_NBYTES:,} bytes, such as 64",
                found=f"{align!r:.100}",
            )
        if isinstance(order, str) or not all(isinstance(pattern, str) for pattern in order or ()):
            raise TypeError(f"order must be a list of names or patterns, not {order!r:.100}")
        return cls(align, tuple(order or ()))

    @property
    def is_plain(self) -> bool:
        """Whether files are arranged as the reference arranges them."""
        return self.align == ALIGNMENT_NBYTES and not self.order

    def in_order(self, tensors: Mapping[str, tuple[DType, tuple[int, ...], int]]) -> list[str]:
        """Return the names of tensors, given with dtype, shape and size in bytes, in the order of their data."""
        names = sorted(sorted(tensors), key=lambda name: tensors[name][0].rank, reverse=True)
        if self.order:
            matches = [re.compile(translate(pattern)).match for pattern in self.order]
            others = len(matches)
            names.sort(key=lambda name: next((place for place, match in enumerate(matches) if match(name)), others))
        if not self.is_plain:
            names.sort(key=lambda name: tensors[name][2] % self.align != 0)
        return names


PLAIN: Final = Arrangement()
"""As the reference arranges files."""
