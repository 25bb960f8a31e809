"""How something is encrypted when it is saved."""

from __future__ import annotations

import os
from typing import Any

from tensorkeep.encryption._key import Key


class Encryption:
    """How a checkpoint is encrypted: with which key, and what stays visible.

    Args:
        key: The key, or the path of a file with it.
        shows_names: Whether names, dtypes and shapes of tensors can be read without the key. Values, metadata,
            digests and all other parts of a state are always encrypted.

    Raises:
        UnsupportedError: If the file holds no key.
        TransportError: If the file cannot be read.

    Attributes:
        key: The key.
        shows_names: Whether names, dtypes and shapes stay visible.
    """

    __slots__ = ("key", "shows_names")

    def __init__(self, key: Key | str | os.PathLike[str], *, shows_names: bool = False) -> None:
        self.key = Key.of(key)
        self.shows_names = shows_names

    @classmethod
    def of(cls, value: Any) -> Encryption | None:
        """Return the encryption for a key or the path of one, or the one that is given; None for no encryption."""
        return value if value is None or isinstance(value, Encryption) else cls(value)

    def __repr__(self) -> str:
        return f"Encryption({self.key!r}, shows_names={self.shows_names})"
