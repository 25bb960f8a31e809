"""Finding what a checkpoint callback saved: all files of one save, or nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, TypeAlias

import msgspec

from tensorkeep.errors import IntegrityError, SourceMissingError, TensorkeepError, UnsupportedError
from tensorkeep.integrations.skorch._files import SavedFile, Target, has_net, place_of, read_file
from tensorkeep.integrations.skorch._names import CHECKPOINT, HISTORY, TRAINING, FileName, argument_of

Names: TypeAlias = "Mapping[str, FileName | Target]"
"""Part to the name of its file, or to an open file object."""

_ATTEMPTS: Final = 50
"""How often files are read again because they were replaced meanwhile."""


class SavedNet(msgspec.Struct, frozen=True):
    """What was saved of a net.

    Attributes:
        parts: Part name to state.
        paths: Part name to the file it was read from.
        is_whole: Whether one file had all parts of the saved net.
    """

    parts: dict[str, Any]
    paths: dict[str, str]
    is_whole: bool = False

    @classmethod
    def of(cls, files: Mapping[str, SavedFile]) -> SavedNet:
        """Combine the parts in files; if two files have the same part, the later one counts."""
        parts = {part: state for file in files.values() for part, state in file.parts.items()}
        return cls(parts, {part: file.path for file in files.values() for part in file.parts}, CHECKPOINT in files)

    def __or__(self, other: SavedNet) -> SavedNet:
        return SavedNet(self.parts | other.parts, self.paths | other.paths, self.is_whole or other.is_whole)


def last_event(history: Any, event_name: str | None) -> int:
    """Return the row of a history at the last save; the last row if none records one."""
    rows = range(len(history) - 1, -1, -1)
    return next((row for row in rows if event_name is not None and history[row].get(event_name)), -1)


def read_set(
    names: Names, older: Names, net: Any, event_name: str | None, classes: Mapping[str, type]
) -> SavedNet | None:
    """Read what a callback saved, again if another process replaced it meanwhile; None if nothing was saved."""
    for _ in range(_ATTEMPTS):
        before = _fingerprint(names)
        try:
            return _read_once(names, older, net, event_name, classes)
        except TensorkeepError:
            if _fingerprint(names) == before:
                raise
    raise IntegrityError("the files keep being replaced")


def other_saves(directory: str, prefix: str) -> list[str]:
    """Return the safetensors files in a directory that hold parts of a net."""
    with suppress(OSError):
        paths = [path for name in sorted(os.listdir(directory)) if (path := _named(directory, name, prefix))]
        return [path for path in paths if has_net(path)]
    return []


def _named(directory: str, name: str, prefix: str) -> str | None:
    return os.path.join(directory, name) if name.startswith(prefix) and name.endswith(".safetensors") else None


def _fingerprint(names: Names) -> list[tuple[str, int, int]]:
    """Return a value that changes when another process replaces a file, or commits to doing so."""
    found = []
    for path in (path for name in names.values() if isinstance(name, FileName) for path in name.found()):
        with suppress(OSError):  # just moved, or a broken link
            status = os.stat(place_of(path))
            found.append((path, status.st_ino, status.st_mtime_ns))
    return found


def _exists(name: FileName | Target) -> bool:
    if not isinstance(name, FileName):
        return True
    return bool(name.found()) if name.has_fields else os.path.lexists(place_of(name.path(None, [], -1)))


def _read_once(
    names: Names, older: Names, net: Any, event_name: str | None, classes: Mapping[str, type]
) -> SavedNet | None:
    new = {part: name for part, name in names.items() if older.get(part) != name}
    is_older = bool(new) and not any(map(_exists, new.values()))
    if is_older and any(_exists(name) for part, name in older.items() if part != HISTORY):
        names = older
    elif not any(map(_exists, names.values())):
        return None
    missing = [part for part, name in names.items() if not _exists(name)]
    _refuse_missing(names, [part for part in missing if part != TRAINING])
    files = {part: _read(names[part], part, classes) for part in _with_history(names)}
    history = next((file.parts[HISTORY] for file in files.values() if HISTORY in file.parts), net.history or [])
    row = last_event(history, event_name)
    for part, name in names.items():
        if part not in files and part not in missing:
            files[part] = _read(name, part, classes, net, history, row)
    if any(file.is_ours for file in files.values()):  # then the training file must exist: only skorch has none
        _refuse_missing({**new, **names}, [*missing, *(new.keys() - names.keys())])
    _refuse_mixture(files)
    return SavedNet.of(files)


def _with_history(names: Names) -> list[str]:
    """Return the parts that hold the history and have names without fields."""
    whole = names.get(CHECKPOINT)
    is_known = whole is not None and not (isinstance(whole, FileName) and whole.has_fields)
    return [HISTORY] if HISTORY in names else [CHECKPOINT] if is_known else []


def _read(
    name: FileName | Target,
    part: str,
    classes: Mapping[str, type],
    net: Any = None,
    history: Any = (),
    row: int = -1,
) -> SavedFile:
    if not isinstance(name, FileName):
        return read_file(name, part, classes)
    if name.has_fields and not history:
        raise UnsupportedError(
            "the file name depends on the epoch, and there is no history to tell which",
            path=name.shown,
            hint="Also save the history to its own file with f_history, or use a file name without fields",
        )
    return read_file(place_of(name.path(net, history, row)), part, classes)


def _refuse_missing(names: Names, missing: list[str]) -> None:
    if not missing:
        return
    paths = {part: name.shown for part, name in names.items() if isinstance(name, FileName)}
    existing = [path for part, path in paths.items() if part not in missing]
    raise SourceMissingError(
        f"a part of what was saved is missing: {', '.join(missing)}",
        path=paths[missing[0]],
        expected="all parts or none",
        found=", ".join(existing) or "none",
        hint=_advice(paths, missing),
    )


def _advice(paths: Mapping[str, str], missing: list[str]) -> str:
    """Say what to do if some parts are missing."""
    existing = [f"{argument_of(part)}={path!r}" for part, path in paths.items() if part not in missing]
    left_out = ", ".join(f"{argument_of(part)}=None" for part in missing)
    return (
        "Restore the missing files; or continue once with the others, without LoadInitState:"
        f" load_params(net.initialize(), {', '.join(existing)}), then net.partial_fit; or stop saving the missing"
        f" parts, with {left_out}; or remove all files to start from the beginning"
    )


def _refuse_mixture(files: Mapping[str, SavedFile]) -> None:
    """Refuse files that were not saved together."""
    tensors = {part: file for part, file in files.items() if part != HISTORY}
    if not any(file.is_ours for file in tensors.values()):
        return
    events: dict[str | None, list[str]] = {}
    for file in files.values():
        events.setdefault(file.event, []).append(file.path)
    if len(events) > 1:
        first, *others = events.values()
        raise IntegrityError(
            "the files were not saved together",
            path=others[0][0],
            expected=f"the save of {', '.join(first)}",
            found="another save, or a modified file",
            hint="Restore the files of one save, or name each part in load_params",
        )
