"""A nested state, put together from names and the paths that lead to them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tensorkeep.errors import FormatError, LimitError

_MAX_HOLES: Final = 1_000_000
"""Places in lists that nothing was saved for, such as empty dicts."""


class _Branch(dict[Any, Any]):
    """What others stand in: a dict, or a list by place."""


def nested(values: Mapping[str, Any], paths: Mapping[str, tuple[str | int, ...]]) -> dict[str, Any]:
    """Put a state together."""
    root = _Branch()
    for name, value in values.items():
        path = paths.get(name, (name,))
        branch: Any = root
        for part in path[:-1]:
            branch = branch.setdefault(part, _Branch())
            if type(branch) is not _Branch:
                raise FormatError(f"`{name}` stands inside of another value", tensor=name)
        if path[-1] in branch:
            raise FormatError(f"`{name}` stands where another value does", tensor=name)
        branch[path[-1]] = value
    return dict(_Builder().items(root))


class _Builder:
    def __init__(self) -> None:
        self._n_holes = 0

    def items(self, branch: _Branch) -> Any:
        return [(key, self._value(value)) for key, value in branch.items()]

    def _value(self, value: Any) -> Any:
        if type(value) is not _Branch:
            return value
        places = [key for key in value if type(key) is int]
        if not places:
            return dict(self.items(value))
        if len(places) < len(value):
            raise FormatError("a part of the state is a dict and a list", found=f"keys {list(value)[:5]}")
        length = max(places) + 1
        self._n_holes += length - len(places)
        if self._n_holes > _MAX_HOLES:
            raise LimitError("most places of a list are empty", expected=f"at most {_MAX_HOLES:,}", found="more")
        made = [None] * length
        for place, item in self.items(value):
            made[place] = item
        return made
