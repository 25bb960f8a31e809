"""Orbax checkpoints as a kind."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Final

from tensorkeep.errors import UnsafeError, UnsupportedError
from tensorkeep.kinds.base import Kind, Opened, OpenOptions
from tensorkeep.kinds.orbax._checkpoint import OrbaxCheckpoint
from tensorkeep.kinds.orbax._items import open_item
from tensorkeep.kinds.orbax._location import (
    DATABASE,
    JSON,
    STEP,
    TREE,
    OrbaxLocation,
    find_orbax,
    items_of,
    read_step,
)
from tensorkeep.texts import listed
from tensorkeep.transport import is_remote

_ENGINE: Final = "tensorstore"


def _open(where: OrbaxLocation, options: OpenOptions) -> Opened:
    if is_remote(where.path):
        raise UnsupportedError(
            "orbax checkpoints are read from local directories only",
            path=where.path,
            hint="Copy the whole directory to this machine first",
        )
    directory = where.directory()
    step = read_step(directory)
    if options.engine is None:
        raise UnsupportedError(
            "the arrays of this orbax checkpoint can only be read by tensorstore, which parses them in C++",
            path=directory,
            hint=f'If you trust the files, pass engine="{_ENGINE}" (--engine {_ENGINE})'
            + ("" if find_spec(_ENGINE) else f". Install it: pip install {_ENGINE}"),
        )
    items = items_of(directory)
    places = [os.path.join(item.directory, name) for item in items for name in (TREE, DATABASE, JSON)]
    state_files = [place for place in (os.path.join(directory, STEP), *places) if os.path.isfile(place)]
    opened = OrbaxCheckpoint(directory, [open_item(item, options) for item in items], step, state_files)
    if options.strict and opened.unknowns:
        opened.close()
        raise UnsafeError(
            "objects that are not known to be data", path=directory, found=listed(opened.unknowns.values())
        )
    return opened


ORBAX: Final[Kind[OrbaxLocation]] = Kind(
    "an orbax checkpoint",
    find_orbax,
    _open,
    is_converted=True,
    is_gathered=True,
    engines=(_ENGINE,),
)
