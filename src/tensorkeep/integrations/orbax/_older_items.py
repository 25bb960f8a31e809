"""The items of a checkpoint that orbax saved, as the values that programs saved."""

from __future__ import annotations

from typing import Any, Final

import jax
import numpy as np

from tensorkeep.errors import FormatError
from tensorkeep.integrations.orbax._older_steps import about
from tensorkeep.kinds import Opened
from tensorkeep.tensors import LazyTensor

_OF_JAX: Final = {"jax_random_key", "jax_random_key_metadata"}
_OF_NUMPY: Final = {"np_random_key", "np_random_key_metadata"}
"""What orbax's files have in the place of a random key of JAX, and of the state of NumPy's random numbers."""

_IMPLEMENTATIONS: Final = {2: "threefry2x32", 4: "rbg"}
"""Numbers in one random key, and its algorithm, which orbax does not record."""


def older_tree(opened: Opened, name: str) -> Any:
    """Return what was saved of an item; an array alone is not in a dict, as it is in orbax's files."""
    tree = opened.tree[name]
    if isinstance(tree, dict) and tree.keys() == _OF_NUMPY:  # it has dtypes that JAX may lack
        return jax.tree.map(lambda leaf: np.asarray(leaf) if isinstance(leaf, LazyTensor) else leaf, tree)
    handlers = about(opened).get("item_handlers")
    handler = handlers.get(name) if isinstance(handlers, dict) else None
    is_array = isinstance(handler, str) and handler.endswith(".ArrayCheckpointHandler")
    return tree["checkpoint"] if is_array and isinstance(tree, dict) and tree.keys() == {"checkpoint"} else tree


def as_programs_saved(value: Any) -> Any:
    """Return an item as the value that was saved: a random key is two items in orbax's files."""
    if not isinstance(value, dict):
        return value
    if value.keys() == _OF_JAX:
        data = value["jax_random_key"]
        data = data["checkpoint"] if isinstance(data, dict) and data.keys() == {"checkpoint"} else data
        return _key(data) if _says(value["jax_random_key_metadata"], "typed") else data
    if value.keys() == _OF_NUMPY:
        return _numpy_state(value["np_random_key"], is_tuple=_says(value["np_random_key_metadata"], "legacy"))
    return value


def _says(metadata: Any, key: str) -> bool:
    return isinstance(metadata, dict) and metadata.get(key) is True


def _key(data: Any) -> Any:
    implementation = _IMPLEMENTATIONS.get(np.shape(data)[-1] if np.shape(data) else 0)
    if implementation is None or data.dtype != np.uint32:
        raise FormatError("a random key is malformed", expected="uint32 (..., 2) or (..., 4)", found=f"{data!r:.100}")
    return jax.random.wrap_key_data(data, impl=implementation)


def _numpy_state(state: Any, *, is_tuple: bool) -> Any:
    """Return the state of NumPy's random numbers, as `numpy.random.set_state` takes it."""
    plain = jax.tree.map(lambda leaf: leaf.item() if np.ndim(leaf) == 0 and hasattr(leaf, "item") else leaf, state)
    return tuple(plain) if is_tuple and isinstance(plain, list) else plain
