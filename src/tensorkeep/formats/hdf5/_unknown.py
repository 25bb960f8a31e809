"""`UnknownObject`: what a file holds that is not read as a tensor. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

OTHER_READERS: Final = '`engine="h5py"` reads it with the HDF5 library'
"""What to say of what HDF5 itself can read."""

READERS_WITH_PLUGIN: Final = '`engine="h5py"` reads it with the HDF5 library, if that finds the plugin'
"""What to say of filters that are not part of it."""


class UnknownObject(msgspec.Struct, frozen=True):
    """Something in the file that is not a tensor.

    Attributes:
        what: What it is.
        reason: Why it is not read, or what to do; empty if there is nothing to say.
        deed: What the HDF5 library would do for it beyond reading the file; empty if nothing.
    """

    what: str
    reason: str = ""
    deed: str = ""

    def __str__(self) -> str:
        return f"{self.what} ({self.reason})" if self.reason else self.what
