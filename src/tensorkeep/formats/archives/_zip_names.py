"""Names of the members of an archive: plain paths that mean the same on every system. Pure."""

from __future__ import annotations

import re
from typing import Final

from tensorkeep.formats.archives._zip_directory import IS_UTF8, Entry
from tensorkeep.formats.archives._zip_faults import FaultLog, printable

_CONTROLS: Final = bytes([*range(32), 127])
_find_odd_part = re.compile(rb"/\.{0,2}(?:[/\n]|\Z)").search
"""Finds a part of a path that is empty, `.` or `..`, given a slash before each name."""

_is_drive = re.compile(r"[A-Za-z]:").fullmatch


def name_members(entries: list[Entry], log: FaultLog) -> tuple[str, list[str]]:
    """Return the top folder, which torch puts all members into, and the names without it."""
    names = decode_names(entries, log)
    if not names:
        log.add("the archive has no members", is_harmless=True)
        return "", names
    top, slash, _ = names[0].partition("/")
    if not slash:
        log.add("it is not in a folder", entries[0].name, expected="folder/name", is_harmless=True)
        return "", names
    folder = f"{top}/"
    if _is_drive(top):
        log.add("its top folder is a drive letter", found=folder, is_harmless=True)
    for index in [index for index, name in enumerate(names) if not name.startswith(folder)]:
        what = "it is not in the top folder of the first member"
        log.add(what, entries[index].name, expected=folder, is_harmless=True)
    names = [name.removeprefix(folder) for name in names]
    for index in [index for index, entry in enumerate(entries) if entry.method]:
        if _must_be_stored(names[index]):
            name, method = entries[index].name, entries[index].method
            log.add("it is compressed", name, expected="method 0", found=f"method {method}", is_harmless=True)
    return top, names


def _must_be_stored(name: str) -> bool:
    folded = name.casefold()
    return folded == "data.pkl" or folded.startswith("data/")


def decode_names(entries: list[Entry], log: FaultLog) -> list[str]:
    """Return all names as text: in one step if all are plain ASCII, else one by one with checks."""
    joined = b"/" + b"\n/".join([entry.name for entry in entries])
    is_plain = (
        joined.isascii()
        and len(joined.translate(None, _CONTROLS)) == len(joined) - len(entries) + 1
        and b"\\" not in joined
        and not _find_odd_part(joined)
    )
    if is_plain and entries:
        return joined[1:].decode().split("\n/")
    for entry in entries:
        _check(entry, log)
    return [printable(entry.name) for entry in entries]


def _check(entry: Entry, log: FaultLog) -> None:
    name = entry.name
    if b"\\" in name or name.translate(None, _CONTROLS) != name:
        log.add("its name has a backslash or a control character", name)
    if _find_odd_part(b"/" + name):
        log.add("its name is not a plain path in a folder", name, expected="folder/name", is_harmless=True)
    if not name.isascii() and not entry.flags & IS_UTF8:
        what = "its name is not ASCII and not marked as UTF-8"
        log.add(what, name, expected="the flag for UTF-8", is_harmless=True)
    try:
        name.decode()
    except UnicodeDecodeError:
        log.add("its name is not UTF-8", name, is_harmless=True)
