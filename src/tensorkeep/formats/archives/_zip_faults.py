"""Problems of an archive: the first is raised, or all are collected for a report."""

from __future__ import annotations

from typing import Final

import msgspec

from tensorkeep.errors import ArchiveError

_MAX_FAULTS: Final = 1000
"""Faults of either sort that are kept per archive; more would not add anything."""


class ArchiveFault(msgspec.Struct, frozen=True):
    """One thing in an archive that torch does not write, or that two readers could read differently.

    Attributes:
        message: What it is, in one clause.
        member: The member, by its name in the archive; None if it concerns the archive itself.
        expected: What should be there, or None.
        found: What is there, or None.
        is_harmless: Whether all readers find the same members with the same contents nevertheless.
    """

    message: str
    member: str | None = None
    expected: str | None = None
    found: str | None = None
    is_harmless: bool = False


class FaultLog:
    """Raises or collects faults."""

    def __init__(self, path: str, *, strict: bool) -> None:
        self.path = path
        self.strict = strict
        self.faults: list[ArchiveFault] = []
        self._n_kept = {False: 0, True: 0}

    def add(
        self,
        message: str,
        member: bytes | str | None = None,
        *,
        expected: object = None,
        found: object = None,
        hint: str | None = None,
        is_harmless: bool = False,
    ) -> None:
        """Raise a fault if the log is strict; else keep it."""
        name = printable(member) if isinstance(member, bytes) else member
        if self.strict:
            text = message if name is None else f"member `{name}`: {message}"
            raise ArchiveError(text, path=self.path, expected=_text(expected), found=_text(found), hint=hint)
        if self._n_kept[is_harmless] < _MAX_FAULTS:
            self._n_kept[is_harmless] += 1
            self.faults.append(ArchiveFault(message, name, _text(expected), _text(found), is_harmless))

    def forget(self, n_faults: int) -> None:
        """Drop all faults but the first ones."""
        for fault in self.faults[n_faults:]:
            self._n_kept[fault.is_harmless] -= 1
        del self.faults[n_faults:]


def printable(name: bytes | bytearray) -> str:
    """Return a name as printable text, whatever its bytes are."""
    text = name.decode("utf-8", "backslashreplace")
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def _text(fact: object) -> str | None:
    return fact if fact is None or isinstance(fact, str) else f"{fact:,}" if isinstance(fact, int) else repr(fact)
