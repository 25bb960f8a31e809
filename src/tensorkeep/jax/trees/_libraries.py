"""Lazy tensors within objects, to be read in the library that each was saved from."""

from __future__ import annotations

from typing import Any

from tensorkeep.arrays import EncodedObject, find_library
from tensorkeep.state import NamedData
from tensorkeep.tensors import LazyTensor


def in_own_libraries(value: Any) -> Any:
    """Return nested data whose lazy tensors are read in the libraries that they were saved from."""
    return _Copies().of(value)


class _Copies:
    """Copies each container once, however often it occurs."""

    def __init__(self) -> None:
        self._made: dict[int, Any] = {}

    def of(self, value: Any) -> Any:
        """Return the copy of a value."""
        if isinstance(value, LazyTensor):
            library = find_library(value.library or "")
            return value if library is None else value.with_framework(library.name)
        if id(value) not in self._made:
            self._made[id(value)] = self._copy(value)
        return self._made[id(value)]

    def _copy(self, value: Any) -> Any:
        kind = type(value)
        if kind is dict:
            return {key: self.of(child) for key, child in value.items()}
        if kind is list or kind is tuple:
            return kind(map(self.of, value))
        if kind is EncodedObject:
            return EncodedObject(value.library, value.kind, self.of(value.parts), self.of(value.settings))
        if kind is NamedData:
            return NamedData(value.kind, value.class_name, self.of(value.fields))
        return value
