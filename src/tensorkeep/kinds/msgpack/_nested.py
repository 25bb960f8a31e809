"""The nested value that tensors are parts of: with lazy ones, with loaded ones, and as data for a conversion."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from tensorkeep.arrays import EncodedObject
from tensorkeep.formats.msgpack import LEFT_OUT, Array, Extension, part_of, rebuilt
from tensorkeep.kinds.base import LoadOptions, NestedData, Opened, TensorLeaf
from tensorkeep.tensors import LazyTensor, chooser, nothing_chosen, selectors_of


class NestedTensors(Opened):
    """Tensors whose names are places in a nested value: what `flax.serialization.msgpack_restore` returns."""

    loads_unknowns = True
    """What is not known to be data is in the loaded value."""

    @property
    @abstractmethod
    def value(self) -> Any:
        """The nested value, with an `Array` for each tensor."""

    @abstractmethod
    def pairs_of(self, name: str) -> LazyTensor:
        """Return a complex tensor as a real one: a last dimension of 2 holds the real and imaginary parts."""

    @property
    def has_tree(self) -> bool:
        """True: names are places in the value that was saved."""
        return True

    @property
    def is_replaceable(self) -> bool:
        """False: not every safetensors file has nested values."""
        return False

    @property
    def tree(self) -> Any:
        """The saved value, with a `LazyTensor` for each tensor; keys are as they were saved."""
        unknowns = self.unknowns
        return rebuilt(
            self.value,
            lambda leaf, _: unknowns.get(leaf.name) or self[leaf.name] if type(leaf) is Array else leaf,
        )

    def load_state(self, options: LoadOptions) -> Any:
        """Load the saved value or a part of it; what is not known to be data stays as it is in `unknowns`."""
        value = self.value
        if options.only is not None:
            selectors = selectors_of(options.only)
            value = part_of(value, chooser(selectors))
            if value is LEFT_OUT:
                raise nothing_chosen(selectors, self, self.path)
        arrays: dict[str, Array] = {}
        rebuilt(value, lambda leaf, _: arrays.setdefault(leaf.name, leaf) if type(leaf) is Array else None)
        unknowns, tensors = self.unknowns, self.load(name for name in arrays if name in self)

        def loaded(leaf: Any, _: str) -> Any:
            if type(leaf) is not Array:
                return leaf
            if leaf.name in unknowns:
                return unknowns[leaf.name]
            return tensors[leaf.name][()] if leaf.is_scalar else tensors[leaf.name]  # the scalar of NumPy that it was

        return rebuilt(value, loaded)

    def nested(self) -> NestedData:
        """Return the saved value as data."""
        replaced: dict[str, LazyTensor] = {}
        n_values = 0

        def data_of(leaf: Any, _: str) -> Any:
            nonlocal n_values
            if type(leaf) is Array and leaf.name in self:
                tensor = TensorLeaf([leaf.name], "numpy", {})
                if leaf.dtype != "complex128":
                    return tensor
                replaced[leaf.name] = self.pairs_of(leaf.name)
                return EncodedObject("numpy", "complex", {"data": tensor}, {"dtype": "<c16"})
            if type(leaf) in {Array, Extension}:
                return LEFT_OUT
            n_values += 1
            return leaf

        value = rebuilt(self.value, data_of)
        return NestedData(value, [[name] for name in self], n_values, (), replaced)
