"""The result of a push: plain values."""

from __future__ import annotations

import msgspec


class Push(msgspec.Struct, frozen=True, kw_only=True):
    """What a push changed, or would change.

    Attributes:
        url: The destination, without secrets.
        sent: Files that were sent, by name, with their sizes in bytes.
        unchanged: Files that were there already, byte for byte.
        removed: Files of the old checkpoint that the new one does not have.
        kept: Files of the source that were not sent, since the repository has its own, such as its card.
        commit: The commit that holds all of it, on the Hub; None elsewhere, and for a dry run.
        is_dry_run: Whether nothing was changed.
    """

    url: str
    sent: dict[str, int]
    unchanged: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    commit: str | None = None
    is_dry_run: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes that were sent."""
        return sum(self.sent.values())
