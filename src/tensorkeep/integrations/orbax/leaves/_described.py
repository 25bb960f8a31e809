"""What a checkpoint holds, as a tree of descriptions: they have the attributes of orbax's, and serve as templates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, ClassVar, Final, Self

import jax
import msgspec
import numpy as np

from tensorkeep.arrays import EncodedObject
from tensorkeep.dtypes import BY_NAME
from tensorkeep.integrations.orbax.leaves._shardings import SavedShardings
from tensorkeep.tensors import LazyTensor

_ZEROS: Final = {"b": False, "i": 0, "f": 0.0, "c": 0j}
"""Kind of dtype to the number of Python that describes it in a template."""


class ScalarMetadata(msgspec.Struct, frozen=True):
    """A number of Python in a checkpoint.

    Attributes:
        dtype: NumPy's dtype for it.
        shape: Of no dimensions.
        sharding: None.
    """

    dtype: np.dtype[Any]
    shape: ClassVar[tuple[int, ...]] = ()
    sharding: ClassVar[None] = None


@jax.tree_util.register_pytree_with_keys_class
class TreeMetadata:
    """What a checkpoint or one of its items holds: a pytree, to be indexed like the dict, list or tuple that it is.

    Attributes:
        tree: That dict, list or tuple. A leaf is a `jax.ShapeDtypeStruct`, or a `ScalarMetadata` for a number of
            Python; both have `shape`, `dtype` and `sharding`. Other leaves are themselves.
        custom_metadata: None: what callers say belongs to a step, not to an item.
    """

    custom_metadata: Final = None

    def __init__(self, tree: Any) -> None:
        self.tree = tree

    def __repr__(self) -> str:
        return f"TreeMetadata(tree={self.tree!r})"

    def __getitem__(self, key: Any) -> Any:
        return self.tree[key]

    def __contains__(self, key: Any) -> bool:
        return key in self.tree

    def __len__(self) -> int:
        return len(self.tree)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tree)

    def get(self, key: Any, default: Any = None) -> Any:
        """Return what a dict holds under a key."""
        return self.tree.get(key, default)

    def keys(self) -> Iterable[Any]:
        """Return the keys of a dict."""
        keys: Iterable[Any] = self.tree.keys()
        return keys

    def values(self) -> Iterable[Any]:
        """Return what a dict holds."""
        values: Iterable[Any] = self.tree.values()
        return values

    def items(self) -> Iterable[tuple[Any, Any]]:
        """Return what a dict holds, with its keys."""
        items: Iterable[tuple[Any, Any]] = self.tree.items()
        return items

    def tree_flatten_with_keys(self) -> tuple[list[tuple[Any, Any]], Any]:
        """Take the tree apart, one level of it."""
        parts, structure = jax.tree_util.tree_flatten_with_path(self.tree, is_leaf=lambda node: node is not self.tree)
        return [(path[0], part) for path, part in parts], structure

    @classmethod
    def tree_unflatten(cls, structure: Any, parts: Iterable[Any]) -> Self:
        """Put the tree together."""
        return cls(jax.tree.unflatten(structure, parts))


def tree_metadata(tree: Any, shardings: SavedShardings) -> Any:
    """Describe a tree of lazy tensors and data; what is no dict, list or tuple is a leaf."""

    def describe(path: Any, leaf: Any) -> Any:
        return described_leaf(leaf, path, shardings)

    described = jax.tree_util.tree_map_with_path(describe, tree, is_leaf=lambda leaf: isinstance(leaf, LazyTensor))
    return TreeMetadata(described) if isinstance(described, dict | list | tuple) else described


def as_template(like: Any) -> Any:
    """Return the template that a caller means, who may have passed descriptions."""
    tree = like.tree if isinstance(like, TreeMetadata) else like
    if not any(isinstance(leaf, ScalarMetadata) for leaf in jax.tree.leaves(tree)):
        return tree
    return jax.tree.map(lambda leaf: _ZEROS[leaf.dtype.kind] if isinstance(leaf, ScalarMetadata) else leaf, tree)


def described_leaf(leaf: Any, path: Any, shardings: SavedShardings) -> Any:
    """Describe one leaf, with the sharding that it was saved with if its devices are here."""
    described = _described(leaf)
    if not isinstance(described, jax.ShapeDtypeStruct):
        return described
    sharding = shardings.of(path, described.shape)
    return described if sharding is None else _struct(described.shape, described.dtype, sharding)


def _described(leaf: Any) -> Any:
    if isinstance(leaf, LazyTensor):
        return _struct(leaf.shape, BY_NAME[leaf.dtype].numpy)
    if isinstance(leaf, EncodedObject):
        return _described_object(leaf)
    return ScalarMetadata(np.asarray(leaf).dtype) if type(leaf) in {bool, int, float, complex} else leaf


def _described_object(value: EncodedObject) -> Any:
    """Describe a random key, a scalar of NumPy, or an array of a dtype that files lack; others are themselves."""
    data, dtype = value.parts.get("data"), value.settings.get("dtype")
    if value.kind == "key" and isinstance(data, LazyTensor):
        wrap = partial(jax.random.wrap_key_data, impl=value.settings["impl"])
        return jax.eval_shape(wrap, _struct(data.shape, "uint32"))
    if value.kind == "scalar" and np.dtype(dtype).kind in "biufcV":
        return _struct((), dtype)
    if value.library == "jax" and isinstance(data, EncodedObject):
        elements = data.parts["data"]  # their bytes, or real and imaginary parts, are its last dimension
        return _struct(elements.shape[:-1], data.settings["dtype"])
    return value


def _struct(shape: tuple[int, ...], dtype: Any, sharding: Any = None) -> Any:
    describe: Any = jax.ShapeDtypeStruct
    return describe(shape, dtype if sharding else jax.numpy.dtype(dtype), sharding=sharding)
