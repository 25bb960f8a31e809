"""What a pickle would import, call and build, and with which arguments, grouped by name.

The machine runs the pickle with all names inert. If the machine refuses it, a scan for names adds those in the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal

import msgspec

from tensorkeep.collector import PausedCollector
from tensorkeep.errors import FormatError, RefusedError, TensorkeepError
from tensorkeep.formats.pickles.audit._name_scan import FoundName, NameScan, is_importable, scan_names
from tensorkeep.formats.pickles.containers import LEGACY_MAGIC, read_legacy, read_tar, run_outline
from tensorkeep.formats.pickles.machine import (
    BrokenPickleError,
    Context,
    Event,
    PickleCutError,
    run_pickle,
)
from tensorkeep.formats.pickles.names import Danger, danger_of, danger_of_call, known_name, python3_name
from tensorkeep.formats.pickles.values import StorageRecord, Unknown
from tensorkeep.transport import ByteSource

Deed = Literal["import", "call", "build", "extension"]
"""What would be done with a name."""

_MAX_ARGUMENTS: Final = 10
"""Calls of one name whose arguments are short_repr, if they differ."""

_MAX_TEXT: Final = 200
"""Characters of a text among the arguments that are short_repr."""

_MAX_BITS: Final = 128
_MAX_ITEMS: Final = 8
_MAX_DEPTH: Final = 3
_EXTENSION: Final = Danger("is looked up by number in the registry of the process", is_certain=False)
_LEAVES: Final = frozenset((bool, float, complex, type(None)))
_TEXTS: Final = frozenset((str, bytes, bytearray))
_BRACKETS: Final[dict[type, tuple[str, str]]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    set: ("{", "}"),
    frozenset: ("{", "}"),
}


class Mention(msgspec.Struct, frozen=True):
    """One name, and everything a pickle would do with it.

    Attributes:
        module: Its module in Python 3.
        name: Its name in Python 3.
        deeds: What would be done with it, in the order of first occurrence.
        position: Byte of the data where it first occurs.
        count: How often it is named or called, whichever is more.
        arguments: Abbreviated arguments of calls that differ.
        danger: Why it is known to be dangerous; or None.
        is_known: Whether it is in the closed table, and so plain data.
        is_swept: Whether only the name scan found it.
    """

    module: str
    name: str
    deeds: tuple[Deed, ...]
    position: int
    count: int
    arguments: tuple[str, ...] = ()
    danger: Danger | None = None
    is_known: bool = False
    is_swept: bool = False


class Audit(msgspec.Struct, frozen=True, eq=False):
    """What one pickle would do.

    Attributes:
        mentions: The names, in order.
        storages: Every storage it refers to, by key.
        value: Its value; None if it was refused.
        stop: The byte after STOP; None if that was not reached.
        error: Why it was refused; or None.
        is_cut: Whether it was refused because the data ends early.
        is_broken: Whether every reader fails where it was refused, after doing exactly what the mentions say.
        is_harmless: Whether no reader imports anything but known names because of it.
    """

    mentions: tuple[Mention, ...]
    storages: dict[str, StorageRecord]
    value: Any
    stop: int | None
    error: str | None = None
    is_cut: bool = False
    is_broken: bool = False
    is_harmless: bool = False

    @property
    def begins_legacy(self) -> bool:
        """Whether it is the magic number of a legacy file of torch."""
        return type(self.value) is int and self.value == LEGACY_MAGIC


def audit_pickle(data: bytes, start: int = 0) -> Audit:
    """Return what a pickle would do, without doing any of it."""
    context = Context(dangerous="record", keeps_events=True)
    value, stop, error = None, None, None
    try:
        with PausedCollector():
            value, stop = run_pickle(data, start, context)
    except (FormatError, RefusedError) as refusal:
        error = refusal
    mentions = mentions_of(context.events or ())
    is_broken = _is_broken(error)
    is_harmless = not any(_is_imported(mention) for mention in mentions)
    if error is not None:
        found = scan_names(data, start)
        stop = found.stop
        is_old = data[start : start + 1] != b"\x80" or data[start + 1 : start + 2] < b"\x03"
        is_harmless = is_harmless and _ends_harmless(found, is_broken=is_broken)
        mentions += _mentions_in(found, {(mention.module, mention.name) for mention in mentions}, is_old=is_old)
    return Audit(
        tuple(mentions),
        context.storages,
        value,
        stop,
        None if error is None else str(error),
        isinstance(error, PickleCutError),
        is_broken,
        is_harmless,
    )


def audit_outline(source: ByteSource) -> Audit | None:
    """Return what a single sound pickle that fills a source would do, without reading its large arrays; else None."""
    context = Context(dangerous="record", keeps_events=True)
    try:
        with PausedCollector():
            value = run_outline(source, context)
    except (FormatError, RefusedError):
        return None
    return Audit(tuple(mentions_of(context.events or ())), context.storages, value, source.nbytes)


def _is_broken(error: TensorkeepError | None) -> bool:
    """Say whether every reader fails where the machine does."""
    if isinstance(error, PickleCutError):
        return not error.is_of_frame
    return isinstance(error, BrokenPickleError)


def _is_imported(mention: Mention) -> bool:
    return not mention.is_known and is_importable(mention.module)


def _ends_harmless(found: NameScan, *, is_broken: bool) -> bool:
    """Say whether no reader can import anything after an error.

    If every reader fails there, that is certain; what looks like a pickle is reported all the same. If another reader
    may continue, the opcodes that follow must name nothing before the first one that no reader knows.
    """
    if found.has_calls and found.stop is not None and any(name.is_extension for name in found.names):
        return False
    names = [name for name in found.names if not name.is_extension]
    if is_broken:
        return not (found.has_calls or found.stop is not None) or not any(map(_is_spelled_out, names))
    return not (found.is_unclear or any(name.is_computed or is_importable(name.module) for name in names))


def _is_spelled_out(name: FoundName) -> bool:
    return not name.is_computed and all(part.isidentifier() for part in f"{name.module}.{name.name}".split("."))


def audit_tar(source: ByteSource) -> Audit:
    """Return what the pickles of a tar archive of torch 0.1 would do, without doing any of it."""
    context = Context(dangerous="record", keeps_events=True)
    value, error = None, None
    try:
        value = read_tar(source, context).value
    except TensorkeepError as refusal:
        error = str(refusal)
    return Audit(tuple(mentions_of(context.events or ())), context.storages, value, None, error)


def check_legacy(source: ByteSource) -> None:
    """Check that a legacy file of torch is complete: all storages that its pickles refer to follow."""
    read_legacy(source, Context(dangerous="record"))


class _Tally:
    """Everything seen so far about one name."""

    def __init__(self, event: Event) -> None:
        self.first = event
        self.deeds: dict[Deed, int] = {}
        self.arguments: dict[str, None] = {}
        self.danger = danger_of(event.module, event.name)

    def add(self, event: Event) -> None:
        self.deeds[event.action] = self.deeds.get(event.action, 0) + 1
        if event.action != "call" or event.value is None or event.value.args is None:
            return
        danger = danger_of_call(event.module, event.name, event.value.args)
        if danger is not None and (self.danger is None or danger.is_certain):
            self.danger = danger
        if len(self.arguments) < _MAX_ARGUMENTS:
            self.arguments[_arguments_text(event.value.args)] = None

    def mention(self) -> Mention:
        first = self.first
        return Mention(
            first.module,
            first.name,
            tuple(self.deeds),
            first.position,
            max(self.deeds.values()),
            tuple(self.arguments),
            self.danger,
            first.is_known and set(self.deeds) == {"import"},
        )


def mentions_of(events: Iterable[Event]) -> list[Mention]:
    """Group events by name."""
    tallies: dict[tuple[str, str], _Tally] = {}
    for event in events:
        key = (event.module, event.name)
        tally = tallies.get(key)
        if tally is None:
            tally = tallies[key] = _Tally(event)
        tally.add(event)
    return [tally.mention() for tally in tallies.values()]


def _mentions_in(scan: NameScan, seen: set[tuple[str, str]], *, is_old: bool) -> list[Mention]:
    """Return the names that only the name scan found; old protocols may use names of Python 2."""
    mentions = []
    for found in scan.names:
        key = python3_name(found.module, found.name) if is_old else (found.module, found.name)
        if key not in seen:
            seen.add(key)
            mentions.append(
                Mention(
                    *key,
                    ("extension",) if found.is_extension else ("import",),
                    found.position,
                    1,
                    danger=_EXTENSION if found.is_extension else danger_of(*key),
                    is_known=known_name(*key) is not None,
                    is_swept=True,
                )
            )
    return mentions


def _arguments_text(args: tuple[Any, ...]) -> str:
    return f"({', '.join(brief_text(arg) for arg in args[:_MAX_ITEMS])}{', …' if len(args) > _MAX_ITEMS else ''})"


def brief_text(value: Any, depth: int = _MAX_DEPTH) -> str:
    """Return a bounded text for any value of a pickle."""
    kind = type(value)
    if kind in _LEAVES or (kind is int and value.bit_length() <= _MAX_BITS):
        return repr(value)
    if kind in _TEXTS:
        text = repr(value[:_MAX_TEXT])
        return text if len(value) <= _MAX_TEXT else f"{text}… ({len(value):,} in all)"
    if kind in _BRACKETS or isinstance(value, dict):
        return _container_text(value, depth)
    if isinstance(value, Unknown):
        name = f"{value.qualified_name:.{_MAX_TEXT}}"
        return name if value.args is None else f"{name}({'…' if value.args else ''})"
    return f"<{kind.__name__}>"


def _container_text(value: Any, depth: int) -> str:
    opening, closing = _BRACKETS.get(type(value), ("{", "}"))
    if not len(value) or not depth:
        return f"{opening}{'…' if len(value) else ''}{closing}"
    if isinstance(value, dict):
        items = [
            f"{brief_text(key, depth - 1)}: {brief_text(item, depth - 1)}" for key, item in _first(value.items())
        ]
    else:
        items = [brief_text(item, depth - 1) for item in _first(value)]
    more = ", …" if len(value) > len(items) else "," if type(value) is tuple and len(items) == 1 else ""
    return f"{opening}{', '.join(items)}{more}{closing}"


def _first(values: Iterable[Any]) -> list[Any]:
    return [value for value, _ in zip(values, range(_MAX_ITEMS), strict=False)]
