"""What readers have in common whose elements are in no file as they are returned: gathered, unpacked or computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tensorkeep.arrays import DenseArrays
from tensorkeep.arrays.elements import within_numpys_limits
from tensorkeep.entries import TensorEntry
from tensorkeep.tensors.indexing import Selection, cover_run, parse_index

Array = npt.NDArray[Any]


class UnstoredReader(msgspec.Struct, frozen=True, eq=False):
    """A `Reader` without a source; it needs `adapter`, `read` and the rest of that protocol."""

    @property
    def adapter(self) -> DenseArrays:
        """The array library."""
        raise NotImplementedError

    @property
    def path(self) -> str | None:
        """None: its tensors may come from several files."""

    @property
    def cast_to(self) -> None:
        """None: tensors have the dtype of their entry."""

    @property
    def source(self) -> None:
        """None: the elements are in no file as they are read."""

    def span_of(self, entry: TensorEntry) -> None:
        """Return None: see `source`."""

    def view(self, name: str, entry: TensorEntry) -> None:
        """Return None: see `source`."""

    def read(self, name: str, entry: TensorEntry, selection: Selection) -> Any:
        """Read a part of a tensor."""
        raise NotImplementedError

    def load(self, entries: Mapping[str, TensorEntry]) -> dict[str, Any]:
        """Read whole tensors."""
        return {name: self.read(name, entry, parse_index(..., entry.shape)) for name, entry in entries.items()}

    def place(self, tensor: Any) -> Any:
        """Move a tensor to the device."""
        return self.adapter.place({"": tensor})[""]


def run_of_blocks(
    name: str, entry: TensorEntry, start: int, stop: int, bits_name: str, block: Callable[[Selection], Array]
) -> Array:
    """Return a run of elements from the blocks that cover it, each of them read by `block`."""
    elements = np.empty(stop - start, bits_name)
    done = 0
    with within_numpys_limits(name, entry.shape):
        for index, first, last in cover_run(start, stop, entry.shape):
            selection = parse_index(index, entry.shape)
            elements[done : done + last - first] = selection.apply(block(selection)).reshape(-1)[first:last]
            done += last - first
    return elements
