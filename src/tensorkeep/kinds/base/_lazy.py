"""`LazyKind`: a kind that is imported only when a place may be one, so that a format costs only those who use it."""

from __future__ import annotations

import importlib
import sys
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from tensorkeep.kinds.base._kind import Kind
from tensorkeep.kinds.base._place import Place
from tensorkeep.transport import exists, is_remote, join, split

_SAFETENSORS = ".safetensors"
_CERTAIN = 4
"""First bytes that are more than chance; the length of a safetensors header may begin with fewer."""


class LazyKind(msgspec.Struct, frozen=True):
    """Where a kind is defined, and what a file or directory must have before it is asked.

    Attributes:
        defined: Module and name of the `Kind`, such as `"tensorkeep.kinds.npy:NPY"`.
        suffixes: Suffixes of its files, in lower case.
        magics: The first bytes that its files may have.
        names: Shell patterns of names of files; a directory of this kind has such a file.
        completions: Suffixes that make the name of a file of what is no file itself, but what its files' names begin
            with.
        beginnings: Shell patterns of such beginnings that look like files; each completion asks a server once more.
        looks_closer: Whether it recognizes files by more than suffix and first bytes, so it is asked about each that
            is not named like a safetensors file, and about each directory without such files.
    """

    defined: str
    suffixes: tuple[str, ...] = ()
    magics: tuple[bytes, ...] = ()
    names: tuple[str, ...] = ()
    completions: tuple[str, ...] = ()
    beginnings: tuple[str, ...] = ()
    looks_closer: bool = False

    @property
    def format(self) -> str:
        """The name by which policies know it, such as `"npy"`."""
        return self.defined.partition(":")[2].lower()

    def candidate(self, place: Place) -> Kind[Any] | None:
        """Return the kind if the place may be one."""
        return self.imported() if self._may_be(place) else None

    def imported(self) -> Kind[Any]:
        """Import and return the kind."""
        module, _, name = self.defined.partition(":")
        kind: Kind[Any] = getattr(importlib.import_module(module), name)
        return kind

    def is_imported_as(self, kind: Kind[Any]) -> bool:
        """Whether a kind is this one; nothing is imported to find out."""
        module, _, name = self.defined.partition(":")
        return getattr(sys.modules.get(module), name, None) is kind

    def _may_be(self, place: Place) -> bool:
        if place.is_directory:
            return self._may_be_directory(place)
        if self.looks_closer:
            return not (place.trusts_names and place.is_named(_SAFETENSORS))
        if place.is_named(*self.suffixes) or (place.path and self._is_listed(split(place.path)[1])):
            return True
        if self.completions and not place.is_known_by_name and self._may_begin(place) and place.is_absent:
            return self._is_completed(place)
        found = next((magic for magic in self.magics if place.head.startswith(magic)), b"")
        return len(found) >= _CERTAIN or (found != b"" and not place.begins_like_safetensors)

    def _may_begin(self, place: Place) -> bool:
        """Whether the names of files may begin with the name of what is not there."""
        path = place.path or ""
        return not is_remote(path) or any(fnmatchcase(split(path)[1], pattern) for pattern in self.beginnings)

    def _is_completed(self, place: Place) -> bool:
        directory, name = split(place.path or "")
        return bool(name) and any(exists(join(directory, name + completion)) for completion in self.completions)

    def _may_be_directory(self, place: Place) -> bool:
        if (not self.names and not self.looks_closer) or place.holds_safetensors:
            return False
        names = place.listing
        if names is None:  # a server that lists nothing: only asking for files tells
            return True
        if self.looks_closer:
            return not any(name.endswith(_SAFETENSORS) for name in names)
        if not names:  # the listing of what is no directory, although its URL looks like one
            return not (place.path or "").endswith("/") and self._is_completed(place)
        return any(map(self._is_listed, names))

    def _is_listed(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.names)
