"""Contents of a file whose tensors can be found one by one: who wants one of many does not wait for all. Pure."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, Mapping
from functools import cached_property
from typing import Any, Final

from tensorkeep.dtypes import DType
from tensorkeep.errors import TensorkeepError
from tensorkeep.formats._contents import FileContents, TensorPlace
from tensorkeep.formats._strings import StringArray
from tensorkeep.transport import ByteSource

Find = Callable[[str], TensorPlace | None]
"""Finds one tensor as the contents of the file have it; None if it is not there, or that is not certain."""

_MAX_SEARCHES: Final = 16
"""Tensors that are searched for: who wants more of them gets the index of all, once."""


class SearchedContents:
    """`FileContents` of a file, read when something asks for more than single tensors.

    Until then, only what leads to these tensors has been checked, and that their bytes are in the file: damage
    elsewhere is found by whatever lists, loads, verifies, scans or converts the file. A search that fails or finds
    nothing decides nothing: then the contents are read, and say what is wrong.
    """

    files: Mapping[str, ByteSource] = {}
    """Other files: a format with any cannot be searched."""

    pickles: tuple[str, ...] = ()
    """Parts that are pickles: a format with any cannot be searched."""

    def __init__(self, source: ByteSource, find: Find, read: Callable[[], FileContents]) -> None:
        self._source = source
        self._find = find
        self._read = read
        self._found: dict[str, TensorPlace] = {}
        self.tensors: Mapping[str, TensorPlace] = _Tensors(self)

    @cached_property
    def whole(self) -> FileContents:
        """All contents."""
        return self._read()

    @property
    def metadata(self) -> Mapping[str, str] | None:
        """Free text by key; None where the format has none."""
        return self.whole.metadata

    @property
    def attributes(self) -> Mapping[str, Any]:
        """What a header says in types of its own, by key."""
        return self.whole.attributes

    @property
    def unknowns(self) -> Mapping[str, Any]:
        """Dotted name to each object in the file that is not read."""
        return self.whole.unknowns

    @property
    def strings(self) -> Mapping[str, StringArray]:
        """Name to each array of strings."""
        return self.whole.strings

    def with_dtypes(self, dtypes: Mapping[str, DType]) -> FileContents:
        """Return all contents with dtypes for tensors whose file names none."""
        return self.whole.with_dtypes(dtypes)

    def place_of(self, name: str) -> TensorPlace:
        """Return where a tensor is; KeyError if no tensor has the name."""
        if name not in self._found:
            place = self._search(name) if "whole" not in vars(self) and len(self._found) < _MAX_SEARCHES else None
            if place is None:
                return self.whole.tensors[name]
            self._found[name] = place
        return self._found[name]

    def _search(self, name: str) -> TensorPlace | None:
        try:
            place = self._find(name)
            if place is not None:
                FileContents({name: place}).check_ranges(self._source)
        except TensorkeepError:
            return None
        return place


class _Tensors(Mapping[str, TensorPlace]):
    """Name to tensor: one of them is searched for, and all of them are read."""

    def __init__(self, contents: SearchedContents) -> None:
        self._contents = contents

    def __getitem__(self, name: str) -> TensorPlace:
        return self._contents.place_of(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._contents.whole.tensors)

    def __len__(self) -> int:
        return len(self._contents.whole.tensors)

    def items(self) -> ItemsView[str, TensorPlace]:
        return self._contents.whole.tensors.items()
