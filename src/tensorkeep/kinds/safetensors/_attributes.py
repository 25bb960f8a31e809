"""Restore what an array library keeps of a tensor besides its elements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensorkeep.arrays import codec_for, library_for
from tensorkeep.errors import FormatError
from tensorkeep.formats.safetensors import Alias


class WithAttributes:
    """Gives loaded tensors their attributes: class, memory format, `requires_grad`."""

    def __init__(
        self, tensors: Mapping[str, Any], frameworks: Mapping[str, str], aliases: Mapping[str, Alias]
    ) -> None:
        self._tensors = tensors
        self._frameworks = frameworks
        self._aliases = aliases
        self._owners = {alias.of for alias in aliases.values()}
        self._reordered: dict[tuple[str, str], Any] = {}

    def tensor(self, name: str, members: Mapping[str, Any]) -> Any:
        """Return a tensor with the attributes that it had when it was saved."""
        tensor = self._tensors[name]
        if not members:
            return tensor
        kept = library_for(self._frameworks[name]).attributes
        attributes = {key: member for key, member in members.items() if key in kept}
        if not attributes:
            return tensor
        codec = codec_for(self._frameworks[name])
        if "order" in attributes and self._is_whole(name):
            # Reordering copies. All names of the tensor get views of the same copy, so that they still share memory.
            owner = (self._aliases[name].of if name in self._aliases else name), self._frameworks[name]
            order = {"order": attributes.pop("order")}
            if owner not in self._reordered:
                self._reordered[owner] = codec.with_attributes(tensor, order)
            tensor = self._reordered[owner][...]
        try:
            return codec.with_attributes(tensor, attributes) if attributes else tensor
        except FormatError as error:
            raise error.with_fields(tensor=name) from None

    def _is_whole(self, name: str) -> bool:
        """Whether the tensor has several names."""
        return self._aliases[name].is_whole if name in self._aliases else name in self._owners
