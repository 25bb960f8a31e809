"""Signatures and statements of provenance, which say something of other files: they go when those change.

What is in them is known to `tensorkeep.signing`, which is imported only if a directory has any.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from tensorkeep.on_demand import imported

_SUFFIXES: Final = (".sig", ".provenance.json")
_STALE: Final = "tensorkeep.signing:stale_signatures"


def dependents_of(directory: str, changed: Iterable[str]) -> list[str]:
    """Return the names of those in a directory that name a file which changes."""
    try:
        with os.scandir(directory or os.curdir) as entries:
            has_any = any(entry.name.endswith(_SUFFIXES) for entry in entries)
    except OSError:
        return []
    if not has_any:
        return []
    stale: Callable[[str, Iterable[str]], list[str]] = imported(_STALE)
    return stale(directory, changed)


def remove_dependents(path: str) -> None:
    """Remove those that name a file which was replaced; one that stays proves nothing."""
    directory, name = os.path.split(path)
    about = (path, path.removesuffix(".safetensors"), os.path.join(directory, "model"))
    usual = (stem + suffix for stem in about for suffix in _SUFFIXES)
    for stale in dependents_of(directory, [name]) if any(map(os.path.lexists, usual)) else ():
        with suppress(OSError):
            os.unlink(os.path.join(directory, stale))
