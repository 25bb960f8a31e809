"""One open file of Flax."""

from __future__ import annotations

from typing import Any

import msgspec

from tensorkeep.kinds.base import FlatFile
from tensorkeep.kinds.msgpack._contents import NestedContents
from tensorkeep.kinds.msgpack._nested import NestedTensors
from tensorkeep.tensors import LazyTensor


class MsgpackFile(NestedTensors, FlatFile):
    """An open file: a mapping of dotted name to `LazyTensor`, with the nested value as `tree`.

    Names are keys and places joined by dots; if two tensors would have the same name, the second gets `#2`.
    """

    _contents: NestedContents

    @property
    def value(self) -> Any:
        """The nested value, with an `Array` for each tensor."""
        return self._contents.value

    def pairs_of(self, name: str) -> LazyTensor:
        """Return a complex tensor as a real one: a last dimension of 2 holds the real and imaginary parts."""
        place = self._contents.tensors[name]
        return self._lazy(name, msgspec.structs.replace(place, dtype="F64", shape=(*place.shape, 2)))
