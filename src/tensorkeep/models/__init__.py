"""A checkpoint into a model.

- `_match`: names and shapes of a model held against those of a checkpoint. Pure.
- `_slots`: the memory of a model's parameters and buffers, and the names and modules that it belongs to.
- `_hooks`: names that modules change when they are loaded.
- `_fill`: bytes of a checkpoint into tensors that exist, in bounded memory.
- `_fill_parts`: parts of a checkpoint's tensors into tensors that exist.
- `_plan`: which tensor of the checkpoint goes into which memory, checked before anything is written.
- `_tied`: weights that the model ties, and that differ in the checkpoint.
- `_replace`: new memory under the parameters and buffers of a model.
- `_carry_out`: a plan, carried out: this is where the model is written to.
- `_load`: `load_into`.
- `_placement`: which part of a tensor one rank has. Pure.
- `_spread`: tensors of which each rank has a part.
- `_replicas`: what several ranks have alike, read by one.
- `_sharded`: `load_sharded`.
"""

from tensorkeep.models._fill_parts import PartJob, check_castable, fill_parts
from tensorkeep.models._load import LoadReport, load_into
from tensorkeep.models._match import ShapeMismatch
from tensorkeep.models._sharded import load_sharded

__all__ = [
    "LoadReport",
    "PartJob",
    "ShapeMismatch",
    "check_castable",
    "fill_parts",
    "load_into",
    "load_sharded",
]
