"""Lazy tensors and mappings of them.

- `_dir`: members for people. Pure.
- `_facts`: what is known of a tensor before it is read.
- `_lazy`: `LazyTensor`, whose shape and dtype are known, and whose elements are read on indexing.
- `_elements`: their elements as NumPy has them.
- `_html`: lazy tensors in notebooks. Pure.
- `_by_device`: tensors that a device computes from stored ones.
- `_together`: several of them read at once.
- `_sharing`: lazy tensors read together; those stored in the same bytes share memory.
- `_assembled`: a reader of a tensor in several pieces, in any number of files.
- `_computed`: a reader of a tensor whose values are a function of others.
- `_name_patterns`: names selected by patterns, changed, and suggested for a misspelt one. Pure.
- `_renamed_state`: what files say of a state whose tensors are renamed. Pure.
- `_explain`: what an array library does with the memory of each.
- `_named`: lazy tensors by name, read together.
- `_mapping`: `LazyTensors`, these and how they are viewed, and `TensorView`: selected, renamed, cast, computed.
- `_combine`: a view of tensors that are computed from several mappings.
"""

from tensorkeep.tensors.lazy._assembled import AssembledReader, PlacedPiece, assemble
from tensorkeep.tensors.lazy._by_device import (
    COMPUTED_LENGTH,
    Computation,
    computed_of,
    computing_device,
    fill_computed,
)
from tensorkeep.tensors.lazy._combine import combine, combine_each, require_open
from tensorkeep.tensors.lazy._computed import Scope, computed_tensor
from tensorkeep.tensors.lazy._elements import numeric, stored_bytes
from tensorkeep.tensors.lazy._explain import MemoryUse, explain
from tensorkeep.tensors.lazy._html import tensors_html
from tensorkeep.tensors.lazy._lazy import LazyTensor
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
from tensorkeep.tensors.lazy._sharing import load_sharing
from tensorkeep.tensors.lazy._together import load_together, load_with_progress

__all__ = [
    "COMPUTED_LENGTH",
    "AssembledReader",
    "Computation",
    "LazyTensor",
    "LazyTensors",
    "MemoryUse",
    "PlacedPiece",
    "Renaming",
    "Scope",
    "Selector",
    "TensorView",
    "assemble",
    "chooser",
    "chosen_names",
    "combine",
    "combine_each",
    "computed_of",
    "computed_tensor",
    "computing_device",
    "explain",
    "fill_computed",
    "load_sharing",
    "load_together",
    "load_with_progress",
    "nothing_chosen",
    "numeric",
    "renamed_state",
    "require_open",
    "selectors_of",
    "stored_bytes",
    "tensors_html",
]
