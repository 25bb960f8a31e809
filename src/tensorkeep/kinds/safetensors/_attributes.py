"""What an array library keeps beside elements, given back to tensors that were loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tensorkeep.arrays import adapter_for
from tensorkeep.errors import FormatError
from tensorkeep.formats.safetensors import Alias

_MARKS: Final = frozenset({"class", "grad", "order"})
_MARKS_OF: Final = {"numpy": frozenset({"order"})}
"""What libraries can say of a tensor, where that is less than all."""


class Marked:
    """Gives each tensor its class, its memory format and whether it wants gradients."""

    def __init__(
        self, tensors: Mapping[str, Any], frameworks: Mapping[str, str], aliases: Mapping[str, Alias]
    ) -> None:
        self._tensors = tensors
        self._frameworks = frameworks
        self._aliases = aliases
        self._owners = {alias.of for alias in aliases.values()}
        self._reordered: dict[tuple[str, str], Any] = {}

    def tensor(self, name: str, members: Mapping[str, Any]) -> Any:
        """Return a tensor as it was saved."""
        tensor = self._tensors[name]
        kept = _MARKS_OF.get(self._frameworks[name], _MARKS)
        marks = {key: member for key, member in members.items() if key in kept}
        if not marks:
            return tensor
        adapter = adapter_for(self._frameworks[name])
        if "order" in marks and self._is_whole(name):
            owner = (self._aliases[name].of if name in self._aliases else name), self._frameworks[name]
            if owner not in self._reordered:
                self._reordered[owner] = adapter.with_attributes(tensor, {"order": marks["order"]})
            tensor = self._reordered[owner][...]
            del marks["order"]
        try:
            return adapter.with_attributes(tensor, marks) if marks else tensor
        except FormatError as error:
            raise error.with_fields(tensor=name) from None

    def _is_whole(self, name: str) -> bool:
        """Return whether it is one of several tensors that are the same."""
        return self._aliases[name].is_whole if name in self._aliases else name in self._owners
