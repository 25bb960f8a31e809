"""`LazyKind`: a kind that is imported only when a place may be one, so that a format costs only those who use it."""

from __future__ import annotations

import importlib
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from tensorkeep.kinds._base import Kind
from tensorkeep.kinds._place import Place

_SAFETENSORS = ".safetensors"


class LazyKind(msgspec.Struct, frozen=True):
    """Where a kind is defined, and what a file or directory must have before it is asked.

    Attributes:
        defined: Module and name of the `Kind`, such as `"tensorkeep.kinds.npy:NPY"`.
        suffixes: Suffixes of its files, in lower case.
        magics: The first bytes that its files may have.
        names: Shell patterns; a directory of this kind has a file with such a name.
        looks_closer: Whether it recognizes files by more than suffix and first bytes, so it is asked about each that
            is not named like a safetensors file, and about each directory without such files.
    """

    defined: str
    suffixes: tuple[str, ...] = ()
    magics: tuple[bytes, ...] = ()
    names: tuple[str, ...] = ()
    looks_closer: bool = False

    def candidate(self, place: Place) -> Kind[Any] | None:
        """Return the kind if the place may be one."""
        return self.imported() if self._may_be(place) else None

    def imported(self) -> Kind[Any]:
        """Import and return the kind."""
        module, _, name = self.defined.partition(":")
        kind: Kind[Any] = getattr(importlib.import_module(module), name)
        return kind

    def _may_be(self, place: Place) -> bool:
        if place.is_directory:
            return self._may_be_directory(place)
        if self.looks_closer:
            return not (place.trusts_names and place.is_named(_SAFETENSORS))
        return place.is_named(*self.suffixes) or place.head.startswith(self.magics)

    def _may_be_directory(self, place: Place) -> bool:
        if (not self.names and not self.looks_closer) or place.holds_safetensors:
            return False
        names = place.listing
        if names is None:  # a server that lists nothing: only asking for files tells
            return True
        if self.looks_closer:
            return not any(name.endswith(_SAFETENSORS) for name in names)
        return any(fnmatchcase(name, pattern) for name in names for pattern in self.names)
