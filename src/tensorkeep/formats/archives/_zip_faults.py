"""Problems of an archive: the first is raised, or all are collected for a report."""

from __future__ import annotations

from typing import Final

import msgspec

from tensorkeep.errors import ArchiveError

_MAX_FAULTS: Final = 1000
"""Faults that are kept per archive; more would not add anything."""


class ArchiveFault(msgspec.Struct, frozen=True):
    """One thing in an archive that breaks the rules, or that two readers could read differently.

    Attributes:
        message: What it is, in one clause.
        member: The member, by its name in the archive; None if it concerns the archive itself.
        expected: What should be there, or None.
        found: What is there, or None.
    """

    message: str
    member: str | None = None
    expected: str | None = None
    found: str | None = None


class FaultLog:
    """Raises or collects faults."""

    def __init__(self, path: str, *, strict: bool) -> None:
        self.path = path
        self.strict = strict
        self.faults: list[ArchiveFault] = []

    def add(
        self,
        message: str,
        member: bytes | str | None = None,
        *,
        expected: object = None,
        found: object = None,
    ) -> None:
        """Raise a fault if the log is strict; else keep it."""
        name = printable(member) if isinstance(member, bytes) else member
        if self.strict:
            text = message if name is None else f"member `{name}`: {message}"
            raise ArchiveError(text, path=self.path, expected=_text(expected), found=_text(found))
        if len(self.faults) < _MAX_FAULTS:
            self.faults.append(ArchiveFault(message, name, _text(expected), _text(found)))


def printable(name: bytes | bytearray) -> str:
    """Return a name as printable text, whatever its bytes are."""
    text = name.decode("utf-8", "backslashreplace")
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def _text(fact: object) -> str | None:
    return fact if fact is None or isinstance(fact, str) else f"{fact:,}" if isinstance(fact, int) else repr(fact)
