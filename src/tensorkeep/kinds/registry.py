"""All kinds, in the order in which they are looked for: a new one is one more word in `KINDS`."""

from __future__ import annotations

from typing import Any, Final

from tensorkeep.errors import UnsupportedError
from tensorkeep.kinds._base import Found, Kind
from tensorkeep.kinds._place import Place
from tensorkeep.kinds.dcp import DISTRIBUTED
from tensorkeep.kinds.folder import FOLDER
from tensorkeep.kinds.npy import NPY, NPZ
from tensorkeep.kinds.pickles import PICKLES
from tensorkeep.kinds.safetensors import SAFETENSORS

KINDS: Final[tuple[Kind[Any], ...]] = (DISTRIBUTED, NPY, NPZ, PICKLES, SAFETENSORS)
"""The order of preference. Pickles claim every zip archive, and safetensors whatever nobody else has claimed: a new
kind goes before them."""


def find_kind(place: Place, *, with_manifests: bool = False) -> Found:
    """Find out what is at a place; `with_manifests` takes a directory that has a manifest as such, with all in it."""
    for kind in (FOLDER, *KINDS) if with_manifests else KINDS:
        where = kind.find(place)
        if where is not None:
            return Found(kind, where)
    raise UnsupportedError("the file or directory cannot be opened", path=place.path)


def known_suffixes() -> tuple[str, ...]:
    """Return how the names of files of all kinds end."""
    return tuple(suffix for kind in KINDS for suffix in kind.suffixes)
