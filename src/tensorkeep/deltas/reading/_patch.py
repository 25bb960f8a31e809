"""An open patch: what it changes, and the tensors of its file."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from tensorkeep.deltas.encoding import Delta, Way
from tensorkeep.deltas.reading._description import Change, Description, parse_description
from tensorkeep.errors import FormatError, RefusedError, TensorkeepError
from tensorkeep.tensors import LazyTensor, LazyTensors


class Patch:
    """A patch that is open, in one direction.

    Attributes:
        path: Its path, URL, or a name for messages.
        description: What it leads from and to.
        tensors: The tensors of its file.
        way: Whether it is applied forward, or back.
    """

    def __init__(self, tensors: LazyTensors, description: Description, path: str, way: Way = "forward") -> None:
        self.path = path
        self.description = description
        self.tensors = tensors
        self.way: Way = way

    @classmethod
    def of(cls, tensors: LazyTensors, path: str) -> Self:
        """Return the patch that an open file is; the path is for messages."""
        try:
            return cls(tensors, parse_description(tensors.metadata), path)
        except TensorkeepError as error:
            raise error.with_fields(path=path) from None

    @property
    def reversed(self) -> Patch:
        """The same patch the other way; RefusedError if it does not hold all of the old checkpoint."""
        if not self.description.is_reversible:
            lost = next(n for n, c in self.description.tensors.items() if c.old and not (c.delta or c.old_whole))
            raise RefusedError(
                "the patch cannot be undone",
                path=self.path,
                found=f"tensor `{lost}` was removed or replaced, and the patch does not hold it",
                hint="Make patches with reversible=True (--reversible) to keep such tensors",
            )
        way: Way = "back" if self.way == "forward" else "forward"
        return Patch(self.tensors, self.description.reversed, self.path, way)

    def delta_of(self, name: str, change: Change, n_words: int, word: np.dtype[Any]) -> Delta:
        """Return the differences of a tensor of so many words that stays."""
        old, new = change.old, change.new
        if old is None or new is None or (old.dtype, old.shape) != (new.dtype, new.shape) or change.delta is None:
            raise self.fault(name, "differences between tensors of different dtypes or shapes")
        stored = self._stored(name, change.delta)
        if stored.dtype != "U8" or stored.ndim != 1:
            raise self.fault(name, f"differences stored as {stored.dtype} {list(stored.shape)}")
        return Delta(stored, n_words, word, self.way)

    def whole_of(self, name: str, change: Change) -> LazyTensor:
        """Return a tensor that the patch holds as it is."""
        if change.new is None or change.new_whole is None:
            raise self.fault(name, "it does not hold the tensor")
        lazy = self._stored(name, change.new_whole)
        if (lazy.dtype, lazy.shape) != (change.new.dtype, change.new.shape):
            raise self.fault(name, f"{lazy.dtype} {list(lazy.shape)}")
        return lazy.renamed(name)

    def old_whole_of(self, name: str, change: Change) -> LazyTensor:
        """Return an old tensor that the patch holds as it was."""
        return self.whole_of(name, change.reversed)

    def _stored(self, name: str, stored: str) -> LazyTensor:
        if stored not in self.tensors:
            raise self.fault(name, f"no tensor `{stored}`")
        return self.tensors[stored]

    def fault(self, name: str, found: str) -> FormatError:
        """Return the error for a patch that contradicts itself."""
        return FormatError(
            f"the patch contradicts its own description of tensor `{name}`", path=self.path, tensor=name, found=found
        )
