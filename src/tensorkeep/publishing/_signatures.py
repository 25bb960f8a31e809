"""Signatures and provenance of what is published: what signatures cover travels with them; stale ones go. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

from tensorkeep.errors import TensorkeepError
from tensorkeep.signing import covered_names, is_about_others, is_signature


def covered_by(names: Iterable[str], read: Callable[[str], bytes]) -> frozenset[str]:
    """Return the files that the signatures among some names cover."""
    return frozenset().union(*(_covered(name, read) for name in names if is_signature(name)))


def stale_among(names: Iterable[str], read: Callable[[str], bytes], changed: Collection[str]) -> frozenset[str]:
    """Return the signatures and statements of provenance that name a file which changes."""
    return frozenset(name for name in names if is_about_others(name) and not _covered(name, read).isdisjoint(changed))


def _covered(name: str, read: Callable[[str], bytes]) -> frozenset[str]:
    with suppress(TensorkeepError, OSError):  # not a signature, whatever its name
        return covered_names(read(name), name)
    return frozenset()
