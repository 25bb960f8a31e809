"""The store of small values that the ranks of a save share: torch's store, or jax's coordination service."""

from __future__ import annotations

from typing import Protocol


class KeyValues(Protocol):
    """Values by key, seen by all ranks of one save and by nobody else. Nothing here waits."""

    def put(self, key: str, value: bytes) -> None:
        """Set a value of at most 1 MiB."""

    def find(self, key: str) -> bytes | None:
        """Return a value, or None if none was set."""

    def put_first(self, key: str, value: bytes) -> bytes:
        """Set a value unless there is one; return the one that is there."""

    def count(self, key: str, more: int) -> int:
        """Increase a counter, which begins at 0, and return it."""

    def remove(self, key: str) -> None:
        """Remove a value."""
