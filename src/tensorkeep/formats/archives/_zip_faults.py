"""What is wrong with an archive: raised at the first fault, or gathered for a report."""

from __future__ import annotations

from typing import Final

import msgspec

from tensorkeep.errors import ArchiveError

_MAX_FAULTS: Final = 1000
"""Faults of one archive that are kept; more say nothing more."""


class ArchiveFault(msgspec.Struct, frozen=True):
    """One thing about an archive that breaks the rules, or that two readers could read differently.

    Attributes:
        message: What it is, in one clause.
        member: The member concerned, as the archive names it; None where it is the archive.
        expected: What should have stood there, or None.
        found: What stood there instead, or None.
    """

    message: str
    member: str | None = None
    expected: str | None = None
    found: str | None = None


class FaultLog:
    """Takes faults as they are found."""

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
        """Take a fault."""
        name = shown(member) if isinstance(member, bytes) else member
        if self.strict:
            text = message if name is None else f"member `{name}`: {message}"
            raise ArchiveError(text, path=self.path, expected=_text(expected), found=_text(found))
        if len(self.faults) < _MAX_FAULTS:
            self.faults.append(ArchiveFault(message, name, _text(expected), _text(found)))


def shown(name: bytes | bytearray) -> str:
    """Return the name of a member for people, whatever its bytes are."""
    text = name.decode("utf-8", "backslashreplace")
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def _text(fact: object) -> str | None:
    return fact if fact is None or isinstance(fact, str) else f"{fact:,}" if isinstance(fact, int) else repr(fact)
