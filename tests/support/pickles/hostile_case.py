"""One pickle that somebody made to do harm, and what must come of it."""

from __future__ import annotations

from typing import NamedTuple

from tests.support.pickles.assembler import global_name, text

__all__ = ["COMMAND", "MARKER", "PAYLOAD", "SYSTEM", "Hostile", "inert", "read", "refused"]

MARKER = "payload-ran"
"""The file that a payload leaves where it runs."""

COMMAND = f"touch {MARKER}"
PAYLOAD = text(COMMAND)
SYSTEM = global_name("os", "system")


class Hostile(NamedTuple):
    """One hostile pickle.

    Attributes:
        name: What it tries.
        data: Its bytes.
        errors: Classes of errors of which one must come, or empty where a value must.
        unknowns: Names of the inert records that must be in the value, or, where an alarm refuses it, in the value
            that is read when alarms are only recorded; None where that does not matter.
        shown: What the value looks like; None where that does not matter.
        is_live: Whether Python's own reader leaves the marker, so that the attack is a real one.
    """

    name: str
    data: bytes
    errors: tuple[str, ...] = ()
    unknowns: tuple[str, ...] | None = None
    shown: str | None = None
    is_live: bool = False


def refused(
    name: str,
    data: bytes,
    *errors: str,
    unknowns: tuple[str, ...] | None = None,
    is_live: bool = False,
) -> Hostile:
    """A pickle that is refused; where `unknowns` is given, it is inert when alarms are only recorded."""
    errors = errors or ("PickleError",)
    more = ("BrokenPickleError",) if "PickleError" in errors else ()
    return Hostile(name, data, (*errors, *more), unknowns, is_live=is_live)


def inert(name: str, data: bytes, *unknowns: str, is_live: bool = False) -> Hostile:
    """A pickle that is read, with inert records for what it would have run."""
    return Hostile(name, data, (), unknowns, is_live=is_live)


def read(name: str, data: bytes, shown: str | None) -> Hostile:
    """A pickle that looks odd and is plain data."""
    return Hostile(name, data, (), (), shown)
