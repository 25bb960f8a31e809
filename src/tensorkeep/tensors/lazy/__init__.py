"""Lazy tensors and mappings of them.

- `_lazy`: `LazyTensor`, shape and dtype now, data on indexing.
- `_assembled`: a reader of a tensor that stands in pieces, in any number of files.
- `_name_patterns`: names chosen by patterns, changed, and looked for when misspelt. Pure.
- `_renamed_state`: what files say of a state, when tensors are renamed. Pure.
- `_mapping`: `LazyTensors`, lazy tensors by name, and `TensorView`: fewer, renamed, cast.
"""

from tensorkeep.tensors.lazy._assembled import AssembledReader, PlacedPiece, assemble
from tensorkeep.tensors.lazy._lazy import LazyTensor, load_together
from tensorkeep.tensors.lazy._mapping import LazyTensors, TensorView
from tensorkeep.tensors.lazy._name_patterns import (
    Renaming,
    Selector,
    chooser,
    chosen_names,
    nothing_chosen,
    selectors_of,
)
from tensorkeep.tensors.lazy._renamed_state import renamed_state

__all__ = [
    "AssembledReader",
    "LazyTensor",
    "LazyTensors",
    "PlacedPiece",
    "Renaming",
    "Selector",
    "TensorView",
    "assemble",
    "chooser",
    "chosen_names",
    "load_together",
    "nothing_chosen",
    "renamed_state",
    "selectors_of",
]
