"""The matched leaves, read together, and each made what its template is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np

from tensorkeep.arrays import convert_to, plain_library
from tensorkeep.arrays.jax.devices import jax_device
from tensorkeep.arrays.jax.dtypes import is_lacking
from tensorkeep.arrays.jax.memory import ARRAY_CLASS
from tensorkeep.arrays.jax.weak import made_weak
from tensorkeep.checkpoint import materialize
from tensorkeep.jax.meshes import load_shards, put
from tensorkeep.jax.trees._fit import is_array
from tensorkeep.jax.trees._libraries import in_own_libraries
from tensorkeep.jax.trees._match import Leaf
from tensorkeep.parallel import Progress, ProgressMeter
from tensorkeep.tensors import LazyTensor


def read_leaves(leaves: Sequence[Leaf], progress: Progress | None = None) -> list[Any]:
    """Return a value for each leaf: an array in the library and place of its template, or what was saved."""
    sharded = {str(place): leaf for place, leaf in enumerate(leaves) if _is_over_devices(leaf)}
    whole = [leaf for place, leaf in enumerate(leaves) if str(place) not in sharded]
    n_whole, n_sharded = _nbytes(whole), _nbytes(sharded.values())
    arrays = load_shards(
        {place: leaf.saved for place, leaf in sharded.items()},
        {place: leaf.placement for place, leaf in sharded.items()},
        ProgressMeter.of(_from(progress, 0, n_whole), n_sharded),
    )
    classes = [type(leaf.template) for leaf in whole if not is_array(leaf.template)]
    lazy = [_lazy(leaf) for leaf in whole]
    values = materialize(lazy, classes=_by_name(classes), progress=_from(progress, n_sharded, n_sharded))
    placed = iter([_placed(leaf, value) for leaf, value in zip(whole, values, strict=True)])
    return [
        _marked(leaf, arrays[str(place)]) if str(place) in arrays else next(placed)
        for place, leaf in enumerate(leaves)
    ]


def _is_over_devices(leaf: Leaf) -> bool:
    """Say whether a leaf is read shard by shard: it goes to several devices, perhaps of other processes."""
    placement = leaf.placement
    if not isinstance(leaf.saved, LazyTensor) or not isinstance(placement, jax.sharding.Sharding):
        return False
    return is_array(leaf.template) and not isinstance(leaf.template, np.ndarray) and len(placement.device_set) > 1


def _marked(leaf: Leaf, array: Any) -> Any:
    return made_weak(array) if leaf.saved.marks.get("weak") is True else array


def _nbytes(leaves: Iterable[Leaf]) -> int:
    return sum(leaf.saved.nbytes for leaf in leaves if isinstance(leaf.saved, LazyTensor))


def _from(progress: Progress | None, done: int, more: int) -> Progress | None:
    """Return what reports a part of the work: after `done` bytes, where the total has `more` than its own."""
    return None if progress is None else lambda now, total: progress(done + now, total + more)


def _lazy(leaf: Leaf) -> Any:
    """Return what was saved, to be read in the library that the template's leaf is of."""
    if not isinstance(leaf.saved, LazyTensor):
        return in_own_libraries(leaf.saved)
    is_number = not is_array(leaf.template)
    of_numpy = isinstance(leaf.template, np.ndarray) or (
        is_number and (leaf.saved.library == "numpy" or is_lacking(leaf.saved.dtype))
    )
    return leaf.saved.with_framework("numpy") if of_numpy else leaf.saved


def _by_name(classes: Sequence[type]) -> dict[str, type]:
    return {f"{cls.__module__}:{cls.__qualname__}": cls for cls in classes if cls.__module__ != "builtins"}


def _placed(leaf: Leaf, value: Any) -> Any:
    template = leaf.template
    if isinstance(template, np.ndarray):
        return convert_to("numpy", value) if plain_library(value) is not None else np.array(value, template.dtype)
    if not is_array(template):
        return value
    if type(value) is not ARRAY_CLASS and not isinstance(value, jax.Array):
        value = jax.numpy.asarray(value) if plain_library(value) is None else convert_to("jax", value)
    return on_default_device(value) if leaf.placement is None else put(value, leaf.placement)


def on_default_device(array: Any) -> Any:
    """Return an array on jax's default device, without committing it: computations may move it on."""
    if array.committed or array.devices() == {jax_device(None)}:
        return array
    if jax.numpy.issubdtype(array.dtype, jax.dtypes.prng_key):
        data = on_default_device(jax.random.key_data(array))
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(array))
    moved = jax.numpy.asarray(np.asarray(array))
    return made_weak(moved) if array.weak_type else moved
