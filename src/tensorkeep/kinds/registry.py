"""All kinds, in the order in which they are looked for: a new one is one more word in `KINDS`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tensorkeep.errors import UnsupportedError
from tensorkeep.kinds._base import Found, Kind
from tensorkeep.kinds._place import Place
from tensorkeep.kinds.dcp import DISTRIBUTED
from tensorkeep.kinds.folder import FOLDER
from tensorkeep.kinds.pickles import PICKLES
from tensorkeep.kinds.safetensors import SAFETENSORS

KINDS: Final[tuple[Kind[Any], ...]] = (DISTRIBUTED, PICKLES, SAFETENSORS)
"""The last one claims whatever the others have left."""

CHECKED_KINDS: Final[tuple[Kind[Any], ...]] = (FOLDER, *KINDS)
"""Kinds of what `verify` checks and `fetch` brings: a directory that has a manifest with all that is in it."""


def find_kind(place: Place, kinds: Sequence[Kind[Any]] = KINDS) -> Found:
    """Find out what is at a place: the first kind that recognises it decides."""
    for kind in kinds:
        where = kind.find(place)
        if where is not None:
            return Found(kind, where)
    raise UnsupportedError("nothing that can be opened", path=place.path)
