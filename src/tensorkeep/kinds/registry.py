"""All kinds, in the order in which they are looked for: a new one is one more word in `KINDS`."""

from __future__ import annotations

from typing import Any, Final

from tensorkeep.errors import UnsupportedError
from tensorkeep.kinds._base import Found, Kind, recognised
from tensorkeep.kinds._place import Place
from tensorkeep.kinds.dcp import DISTRIBUTED
from tensorkeep.kinds.pickles import PICKLES
from tensorkeep.kinds.safetensors import SAFETENSORS

KINDS: Final[tuple[Kind[Any], ...]] = (DISTRIBUTED, PICKLES, SAFETENSORS)
"""The last one claims whatever the others have left."""


def find_kind(place: Place) -> Found:
    """Find out what is at a place."""
    found = recognised(place, KINDS)
    if found is None:
        raise UnsupportedError("nothing that can be opened", path=place.path)
    return found
