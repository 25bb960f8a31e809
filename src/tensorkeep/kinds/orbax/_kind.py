"""Orbax checkpoints as a kind."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Final

from tensorkeep.errors import FormatError, IntegrityError, UnsafeError, UnsupportedError
from tensorkeep.kinds.base import Checks, Files, Finding, Kind, Opened, OpenOptions
from tensorkeep.kinds.orbax._checkpoint import OrbaxCheckpoint
from tensorkeep.kinds.orbax._directory import JSON, MANIFEST, STEP, TEXTS, TREE, names_in
from tensorkeep.kinds.orbax._items import open_item
from tensorkeep.kinds.orbax._location import COMMITTED, OrbaxLocation, find_orbax, items_of, read_step
from tensorkeep.texts import listed
from tensorkeep.transport import is_remote, join, split

_ENGINE: Final = "tensorstore"


def _open(where: OrbaxLocation, options: OpenOptions) -> Opened:
    if is_remote(where.path) and options.engine is not None:
        raise UnsupportedError(
            "tensorstore reads orbax checkpoints from local directories only",
            path=where.path,
            hint="Copy the whole directory to this machine first, or name no engine",
        )
    directory = where.directory()
    step = read_step(directory)
    items = items_of(directory, step)
    places = [join(item.directory, name) for item in items for name in (TREE, MANIFEST, JSON)]
    state_files = [place for place in (join(directory, STEP), *places) if os.path.isfile(place)]
    opened = OrbaxCheckpoint(directory, [open_item(item, options) for item in items], step, state_files)
    if options.strict and opened.unknowns:
        opened.close()
        raise UnsafeError(
            "objects that are not known to be data", path=directory, found=listed(opened.unknowns.values())
        )
    return opened


def _check(where: OrbaxLocation, options: OpenOptions, names: Iterable[str] | None, opened: ExitStack) -> Checks:
    """Return what can be checked; damage that keeps a checkpoint from being opened is a finding."""
    try:
        return opened.enter_context(_open(where, options)).checks(names)
    except (FormatError, IntegrityError) as error:
        file = os.path.relpath(error.path or where.path, where.path).replace(os.sep, "/")
        finding = Finding("header", error.message, file, error.tensor, expected=error.expected, found=error.found)
        return Checks(findings=[finding])


def _files(where: OrbaxLocation) -> Files | None:
    """Return the files of a checkpoint with a single item in a database, whose manifest comes first; else None."""
    directory = where.directory()
    (item, *others) = items_of(directory, read_step(directory))
    if others or MANIFEST not in item.names:
        return None
    opened = open_item(item, OpenOptions())
    names = [*(opened.arrays.file_names if opened.arrays else ()), *({TREE} & item.names)]
    names += [TEXTS] if opened.texts else []
    opened.close()
    below = item.directory[len(directory) :].strip("/")
    inner = [f"{below}/{name}" if below else name for name in names]
    outer = [name for name in names_in(directory) if name in {STEP, COMMITTED}]
    return Files(directory, split(directory.rstrip("/"))[1], (*inner, *outer), opens_alone=False)


ORBAX: Final[Kind[OrbaxLocation]] = Kind(
    "an orbax checkpoint",
    find_orbax,
    _open,
    check=_check,
    files=_files,
    is_converted=True,
    is_gathered=True,
    engines=(_ENGINE,),
)
