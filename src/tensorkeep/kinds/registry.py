"""All kinds in order of preference. To add a kind, add it to `KINDS`."""

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
"""Order matters: pickles claim every zip archive, and safetensors everything else, so a new kind goes before them."""


def find_kind(place: Place, *, with_manifests: bool = False) -> Found:
    """Recognize what is at a place; `with_manifests` prefers a directory's manifest to the checkpoint in it."""
    for kind in (FOLDER, *KINDS) if with_manifests else KINDS:
        where = kind.find(place)
        if where is not None:
            return Found(kind, where)
    raise UnsupportedError("the file or directory cannot be opened", path=place.path)


def find_tensors(place: Place) -> Kind[Any] | None:
    """Return the kind of a file that holds nothing that any program would run; None if no kind claims it."""
    return next((kind for kind in KINDS if kind.only_tensors and kind.find(place) is not None), None)


def known_suffixes() -> tuple[str, ...]:
    """Return the file suffixes of all kinds."""
    return tuple(suffix for kind in KINDS for suffix in kind.suffixes)
