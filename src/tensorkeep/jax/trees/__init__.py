"""Pytrees as plain nested data, and back by a template. Classes come from the template, never from a file.

- `_branches`: one level of a pytree: its keys, its children, and how to make it of others.
- `_nnx`: objects of flax.nnx, which are the state that they hold.
- `_leaves`: the leaves of a pytree, also of one that cannot be saved.
- `_capture`: a pytree as dicts, lists and tuples.
- `_saved`: what was saved, looked up by the keys of a template.
- `_fit`: whether a saved leaf is one that a leaf of the template can be.
- `_libraries`: lazy tensors within objects, each read in the library that it was saved from.
- `_placements`: where each leaf goes.
- `_match`: a template and what was saved, leaf by leaf; everything that does not fit is one error.
- `_read`: the matched leaves, read together.
"""

from tensorkeep.jax.trees._capture import capture
from tensorkeep.jax.trees._leaves import leaves_of
from tensorkeep.jax.trees._match import Leaf, Matched, match
from tensorkeep.jax.trees._read import read_leaves
from tensorkeep.jax.trees._saved import ByName, Nested, Saved, refuse_repeats

__all__ = [
    "ByName",
    "Leaf",
    "Matched",
    "Nested",
    "Saved",
    "capture",
    "leaves_of",
    "match",
    "read_leaves",
    "refuse_repeats",
]
