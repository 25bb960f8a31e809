"""Arrays of text or byte strings, which no tensor of a safetensors file can hold. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import msgspec

from tensorkeep.errors import FormatError
from tensorkeep.texts import counted


class StringArray(msgspec.Struct, frozen=True, eq=False):
    """An array of strings in a file, read when it is loaded.

    Attributes:
        shape: Strings along each dimension.
        read: Returns the strings in C order: `str` where the format says that they are text, else `bytes`.
    """

    shape: tuple[int, ...]
    read: Callable[[], Sequence[str] | Sequence[bytes]]

    def load(self) -> Any:
        """Read the strings into a NumPy array of `str` or `bytes` objects; texts are checked to be UTF-8."""
        import numpy as np

        found = self.read()
        if len(found) != prod(self.shape):
            raise FormatError(
                "an array of strings has another length than its shape says",
                expected=f"{prod(self.shape):,}",
                found=f"{len(found):,}",
            )
        array = np.empty(len(found), object)
        array[:] = found
        return array.reshape(self.shape)

    def __str__(self) -> str:
        return counted(prod(self.shape), "string")

    def __repr__(self) -> str:
        return f"StringArray({list(self.shape)})"
