"""The keys that may open what is encrypted."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import msgspec

from tensorkeep.encryption._key import Key
from tensorkeep.errors import EncryptedError, IntegrityError
from tensorkeep.variables import KEY, KEY_FILE

KeyLike: TypeAlias = Key | str | os.PathLike[str]
"""A key, or the path of a file with one."""


class Keys(msgspec.Struct, frozen=True):
    """Keys to choose from by their ids.

    Attributes:
        keys: The keys.
        is_demanded: Whether they were given explicitly, so that what is not encrypted must be refused.
    """

    keys: tuple[Key, ...]
    is_demanded: bool = False

    @classmethod
    def given(cls, value: KeyLike | Sequence[KeyLike] | None) -> Keys | None:
        """Return the keys that a caller gave, or None."""
        if value is None:
            return None
        values: Iterable[KeyLike] = [value] if isinstance(value, Key | str | os.PathLike) else value
        return cls(tuple(map(Key.of, values)), is_demanded=True)

    @classmethod
    def of_environment(cls) -> Keys:
        """Return the keys that the environment has or names."""
        keys: list[Key] = []
        if path := os.environ.get(KEY_FILE):
            keys.append(Key.from_file(path))
        if os.environ.get(KEY):
            keys.append(Key.from_env(KEY))
        return cls(tuple(keys))

    def optional(self) -> Keys:
        """Return the same keys, for what need not be encrypted."""
        return Keys(self.keys)

    def find(self, identity: str, path: str) -> Key | None:
        """Return the key with an id; None if there are no keys at all."""
        if not self.keys:
            return None
        key = next((key for key in self.keys if key.id == identity), None)
        if key is None:
            raise EncryptedError(
                "this is encrypted with another key",
                path=path,
                expected=f"the key with the id {identity}",
                found=", ".join(key.id for key in self.keys),
            )
        return key


def refuse_plain(keys: Keys | None, path: str | None) -> None:
    """Refuse a file or index that is not encrypted where somebody gave a key for it: it may be a forgery."""
    if keys is not None and keys.is_demanded:
        raise IntegrityError(
            "this is not encrypted, although a key was given for it",
            path=path,
            hint="If it should not be encrypted, pass no key",
        )
