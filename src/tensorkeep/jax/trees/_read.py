"""The matched leaves, read together, and each made what its template is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from tensorkeep.arrays import convert_to, plain_library
from tensorkeep.arrays.jax.devices import jax_device
from tensorkeep.arrays.jax.weak import made_weak
from tensorkeep.checkpoint import materialize
from tensorkeep.jax.trees._fit import is_array
from tensorkeep.jax.trees._match import Leaf
from tensorkeep.parallel import Progress
from tensorkeep.tensors import LazyTensor


def read_leaves(leaves: Sequence[Leaf], progress: Progress | None = None) -> list[Any]:
    """Return a value for each leaf: an array in the library and place of its template, or what was saved."""
    classes = [type(leaf.template) for leaf in leaves if not is_array(leaf.template)]
    values = materialize([_lazy(leaf) for leaf in leaves], classes=_by_name(classes), progress=progress)
    return [_placed(leaf, value) for leaf, value in zip(leaves, values, strict=True)]


def _lazy(leaf: Leaf) -> Any:
    """Return what was saved, to be read in the library that the template's leaf is of."""
    is_numpy = isinstance(leaf.template, np.ndarray) or _is_numpys_number(leaf)
    return leaf.saved.with_framework("numpy") if is_numpy and isinstance(leaf.saved, LazyTensor) else leaf.saved


def _is_numpys_number(leaf: Leaf) -> bool:
    return not is_array(leaf.template) and isinstance(leaf.saved, LazyTensor) and leaf.saved.library == "numpy"


def _by_name(classes: Sequence[type]) -> dict[str, type]:
    return {f"{cls.__module__}:{cls.__qualname__}": cls for cls in classes if cls.__module__ != "builtins"}


def _placed(leaf: Leaf, value: Any) -> Any:
    template = leaf.template
    if isinstance(template, np.ndarray):
        return np.asarray(value) if plain_library(value) in {None, "numpy", "jax"} else convert_to("numpy", value)
    if not is_array(template):
        return value
    if not isinstance(value, jax.Array):
        value = jax.numpy.asarray(value) if plain_library(value) is None else convert_to("jax", value)
    return on_default_device(value) if leaf.placement is None else jax.device_put(value, leaf.placement)


def on_default_device(array: Any) -> Any:
    """Return an array on jax's default device, without committing it: computations may move it on."""
    if array.committed or array.devices() == {jax_device(None)}:
        return array
    if jax.numpy.issubdtype(array.dtype, jax.dtypes.prng_key):
        data = on_default_device(jax.random.key_data(array))
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(array))
    moved = jax.numpy.asarray(np.asarray(array))
    return made_weak(moved) if array.weak_type else moved
